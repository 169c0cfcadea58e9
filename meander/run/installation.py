"""From a deployment to the installation on a site host: channels in the store, fragments in the routing table.

Ports of sources get an ingest channel each, sinks a result channel each; the outside world is at their other end.
Everything between fragments is named by position, so that fragments of one template write one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from meander.deploy.fragments import Channel, ChannelKey, Deployment, Fragment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.model.operators import STATEFUL, Operator, Sink, Source, describe
from meander.run.channels.base import ChannelSpec
from meander.run.fragments.routing import Installed, LateWire, Wire
from meander.run.fragments.template import BoundFragment, bind
from meander.run.frames import by_position, channel_schema
from meander.run.step.late_tuples import late_schema

OUTSIDE = 1_000_000_000
"""Channels to and from the outside world are numbered from here on, by operator; each operator has at most one."""

LATE = 1 << 62
"""Channels of late tuples are numbered from here on, by sink, operator and input."""


@dataclass(frozen=True, slots=True)
class LateOutput:
    """The late tuples of one input of an operator, for one sink of a query that the operator serves."""

    sink: OperatorId
    operator: OperatorId
    side: int
    sides: int
    """Of how many inputs."""

    @property
    def channel(self) -> ChannelId:
        return ChannelId(LATE + (((self.sink << 30) + self.operator) << 1) + self.side)

    @property
    def label(self) -> str:
        """The name that tells it from others of the same sink."""
        return f"{self.operator}" if self.sides == 1 else f"{self.operator}-{('left', 'right')[self.side]}"


@dataclass(frozen=True)
class Installation:
    """The parts of one deployment on a host."""

    channels: tuple[ChannelSpec, ...]
    fragments: tuple[Installed, ...]
    ingest: Mapping[tuple[str, str], tuple[ChannelId, ...]] = field(default_factory=dict)
    """(stream, node) to the channels that its tuples enter by."""
    results: Mapping[OperatorId, ChannelId] = field(default_factory=dict)
    """Sink operator to the channel with its results."""
    late: tuple[LateOutput, ...] = ()
    """The side outputs that were asked for."""


def installation(
    plan: GlobalPlan,
    deployment: Deployment,
    slots: Mapping[FragmentId, int],
    delays_ms: Mapping[ChannelId, int] | None = None,
    late: Iterable[OperatorId] = (),
) -> Installation:
    """Channels and bound fragments of a whole deployment."""
    return install(plan, deployment.fragments.values(), deployment.channels, slots, delays_ms, late)


def install(
    plan: GlobalPlan,
    fragments: Iterable[Fragment],
    channels: Mapping[ChannelKey, Channel],
    slots: Mapping[FragmentId, int],
    delays_ms: Mapping[ChannelId, int] | None = None,
    late: Iterable[OperatorId] = (),
    known: Mapping[tuple[FragmentId, int], BoundFragment] | None = None,
) -> Installation:
    """Channels and bound fragments; `channels` are those from and to the fragments, `delays_ms` emulate their paths.

    `late` names the sinks that want to know which tuples came too late for the operators above them. `known` are
    fragments, by id and version, that have been bound before, when the plan may have been another one.
    """
    delays_ms = delays_ms or {}
    specs = [_between(plan, c, delays_ms.get(c.id, 0)) for c in channels.values()]
    by_sender: dict[OperatorId, list[Channel]] = {}
    for channel in channels.values():
        by_sender.setdefault(channel.upstream, []).append(channel)
    installed: list[Installed] = []
    ingest: dict[tuple[str, str], tuple[ChannelId, ...]] = {}
    results: dict[OperatorId, ChannelId] = {}
    late_outputs = [output for sink in dict.fromkeys(late) for output in _late_outputs(plan, sink)]
    specs += [ChannelSpec(o.channel, _late_schema(plan, o)) for o in late_outputs]
    for fragment in fragments:
        bound = (known or {}).get((fragment.id, fragment.version)) or _bound(plan, fragment)
        inside = set(fragment.operators)
        ports: list[ChannelId] = []
        for operator in bound.ports:
            spec = plan[operator].spec
            if isinstance(spec, Source) and operator in inside:
                assert spec.node is not None
                outside = ChannelId(OUTSIDE + operator)
                specs.append(ChannelSpec(outside, channel_schema(plan[operator].schema), None, fragment.id))
                ingest[spec.stream, spec.node] = (*ingest.get((spec.stream, spec.node), ()), outside)
                ports.append(outside)
            else:
                ports.append(channels[operator, fragment.id].id)
        outputs = tuple(_wires(o, plan[o].spec, by_sender.get(o, [])) for o in bound.outputs)
        for operator in bound.outputs:
            if isinstance(plan[operator].spec, Sink):
                results[operator] = ChannelId(OUTSIDE + operator)
                schema = channel_schema(plan[operator].schema)
                specs.append(ChannelSpec(results[operator], schema, fragment.id, None))
        slot = slots.get(fragment.id, 0)
        wires = _late_wires(plan, bound, late_outputs)
        installed.append(Installed(fragment.id, fragment.version, slot, bound, tuple(ports), outputs, wires))
    return Installation(tuple(specs), tuple(installed), ingest, results, tuple(late_outputs))


def _bound(plan: GlobalPlan, fragment: Fragment) -> BoundFragment:
    """The fragment's template, its output included: a later reader of its operators, such as a query that waits to
    begin, must not change the numbering of its state when it starts again."""
    inputs = {o: plan[o].inputs for o in fragment.operators}
    near = {*inputs, *(i for o in fragment.operators for i in plan[o].inputs)}
    operators = {o: plan[o].spec for o in near}
    return bind(operators, inputs, fragment.operators, {o: plan[o].schema for o in near}, fragment.outputs)


def _late_outputs(plan: GlobalPlan, sink: OperatorId) -> list[LateOutput]:
    """One for each input of each operator with memory that the sink's results come through."""
    found = dict.fromkeys([sink])
    stack = [sink]
    while stack:
        fresh = [o for o in plan[stack.pop()].inputs if o not in found]
        found.update(dict.fromkeys(fresh))
        stack.extend(fresh)
    remembering = [o for o in sorted(found) if isinstance(plan[o].spec, STATEFUL)]
    return [LateOutput(sink, o, side, n) for o in remembering for n in [len(plan[o].inputs)] for side in range(n)]


def _late_schema(plan: GlobalPlan, output: LateOutput) -> pa.Schema:
    return late_schema(plan[plan[output.operator].inputs[output.side]].schema)


def _late_wires(
    plan: GlobalPlan, bound: BoundFragment, outputs: Iterable[LateOutput]
) -> dict[tuple[int, int], tuple[LateWire, ...]]:
    stages = {operator: stage for stage, operator in bound.stateful.items()}
    found: dict[tuple[int, int], tuple[LateWire, ...]] = {}
    for output in outputs:
        if output.operator in stages:
            key = (stages[output.operator], output.side)
            wire = LateWire(output.channel, describe(plan[output.operator].spec), _late_schema(plan, output))
            found[key] = (*found.get(key, ()), wire)
    return found


def _between(plan: GlobalPlan, channel: Channel, delay_ms: int) -> ChannelSpec:
    """A channel from fragment to fragment as the store knows it."""
    schema: pa.Schema = channel_schema(by_position(plan[channel.upstream].schema))
    return ChannelSpec(channel.id, schema, channel.sender, channel.receiver, delay_ms)


def _wires(operator: OperatorId, spec: Operator, readers: list[Channel]) -> tuple[Wire, ...]:
    if isinstance(spec, Sink):
        return (Wire(ChannelId(OUTSIDE + operator), spec.columns),)
    return tuple(Wire(c.id) for c in readers)
