"""From a deployment to what a site host installs: channels in the store, fragments in the routing table.

Ports of sources get an ingest channel each, sinks a result channel each; the outside world is at their other end.
Everything between fragments is named by position, so that fragments of one template write one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from meander.deploy.fragments import Channel, Deployment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.model.operators import Operator, Sink, Source
from meander.run.exchange.base import ChannelSpec
from meander.run.frames import by_position, channel_schema
from meander.run.routing import Installed, Wire
from meander.run.template import bind

OUTSIDE = 1_000_000_000
"""Channels to and from the outside world are numbered from here on, by operator; each operator has at most one."""


@dataclass(frozen=True)
class Installation:
    """What one deployment needs."""

    channels: tuple[ChannelSpec, ...]
    fragments: tuple[Installed, ...]
    ingest: Mapping[tuple[str, str], tuple[ChannelId, ...]] = field(default_factory=dict)
    """(stream, node) to the channels that its tuples enter by."""
    results: Mapping[OperatorId, ChannelId] = field(default_factory=dict)
    """Sink operator to the channel with its results."""


def installation(
    plan: GlobalPlan,
    deployment: Deployment,
    slots: Mapping[FragmentId, int],
    delays_ms: Mapping[ChannelId, int] | None = None,
) -> Installation:
    """Channels and bound fragments of a deployment; `delays_ms` emulate the latency of paths."""
    operators = {o: record.spec for o, record in plan.operators.items()}
    inputs = {o: record.inputs for o, record in plan.operators.items()}
    delays_ms = delays_ms or {}
    owner = deployment.fragment_of
    specs = [_between(plan, c, delays_ms.get(c.id, 0)) for c in deployment.channels.values()]
    by_sender: dict[OperatorId, list[Channel]] = {}
    for channel in deployment.channels.values():
        by_sender.setdefault(channel.upstream, []).append(channel)
    fragments: list[Installed] = []
    ingest: dict[tuple[str, str], tuple[ChannelId, ...]] = {}
    results: dict[OperatorId, ChannelId] = {}
    for fragment in deployment.fragments.values():
        bound = bind(operators, inputs, fragment.operators)
        ports: list[ChannelId] = []
        for operator in bound.ports:
            spec = operators[operator]
            if isinstance(spec, Source) and owner[operator] == fragment.id:
                assert spec.node is not None
                outside = ChannelId(OUTSIDE + operator)
                specs.append(ChannelSpec(outside, channel_schema(plan[operator].schema), None, fragment.id))
                ingest[spec.stream, spec.node] = (*ingest.get((spec.stream, spec.node), ()), outside)
                ports.append(outside)
            else:
                ports.append(deployment.channels[operator, fragment.id].id)
        outputs = tuple(_wires(o, operators[o], by_sender.get(o, []), delays_ms) for o in bound.outputs)
        for operator in bound.outputs:
            if isinstance(operators[operator], Sink):
                results[operator] = ChannelId(OUTSIDE + operator)
                schema = channel_schema(plan[operator].schema)
                specs.append(ChannelSpec(results[operator], schema, fragment.id, None))
        slot = slots.get(fragment.id, 0)
        fragments.append(Installed(fragment.id, fragment.version, slot, bound, tuple(ports), outputs))
    return Installation(tuple(specs), tuple(fragments), ingest, results)


def _between(plan: GlobalPlan, channel: Channel, delay_ms: int) -> ChannelSpec:
    schema: pa.Schema = channel_schema(by_position(plan[channel.upstream].schema))
    return ChannelSpec(channel.id, schema, channel.sender, channel.receiver, delay_ms)


def _wires(
    operator: OperatorId, spec: Operator, readers: list[Channel], delays_ms: Mapping[ChannelId, int]
) -> tuple[Wire, ...]:
    if isinstance(spec, Sink):
        return (Wire(ChannelId(OUTSIDE + operator), spec.columns),)
    return tuple(Wire(c.id, None, direct=not delays_ms.get(c.id, 0)) for c in readers)
