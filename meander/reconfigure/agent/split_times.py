"""Split times: the event times at which old fragments of an overlap end and new ones begin.

They lie behind all that the old fragments have seen and what still waits for them, so that each result is one side's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meander.deploy.fragments import Channel
from meander.deploy.protocols.sms import limits
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId, OperatorId
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.part import Part
from meander.run.fragments.retained_bindings import with_former
from meander.run.fragments.routing import Installed
from meander.run.frames import BEGIN, END, TS
from meander.run.operators.pairs import Pairs
from meander.run.operators.time_window import TimeWindow
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.store import Store

NEVER, FOREVER = BEGIN // 2, END // 2
"""Before and after all times that tuples can have: streams that have not begun, or have ended."""


def entering(part: Part) -> list[Channel]:
    """Channels for the new fragments' inputs from fragments that stay."""
    inside = part.change.fragments_after
    return [c for c in part.change.channels_after.values() if c.receiver in inside and c.sender not in inside]


def leaving(part: Part) -> list[Channel]:
    """Channels that old and new fragments feed together."""
    inside = part.change.fragments_after
    return [c for c in part.change.channels_after.values() if c.receiver not in inside]


def around(part: Part) -> set[FragmentId]:
    """All fragments that must be between two steps when an overlap begins or ends."""
    return {*(c.sender for c in entering(part)), *part.change.fragments_before, *part.change.fragments_after}


def seen(change: InFlightChange, store: Store) -> dict[OperatorId, int]:
    """Event times before which the operators here may have tuples that their new fragments never get."""
    exchange, found = store.exchange, dict[OperatorId, int]()
    for fragment in change.part.before.values():
        installed = change.old[fragment.id]
        reached = np.maximum(exchange.watermarks(installed.ports), BEGIN).tolist()
        behind = _ports_below(installed)
        for o in fragment.operators:
            answered = min((reached[p] for p in behind.get(o, ())), default=BEGIN)
            found[o] = max(answered, _newest_state(installed, o, store))
    return found


def entered(change: InFlightChange, store: Store) -> dict[OperatorId, int]:
    """The same for what waits in logs here for the old fragments."""
    part = change.part
    inside = part.change.fragments_before
    read = [c for c in part.local.channels_before.values() if c.receiver in inside and part.is_here(c.sender)]
    waiting = store.exchange.newest([c.id for c in read], TS).tolist()
    found: dict[OperatorId, int] = {}
    for channel, newest in zip(read, waiting, strict=True):
        found[channel.upstream] = max(found.get(channel.upstream, BEGIN), newest + 1)
    return found


def _ports_below(fragment: Installed) -> dict[OperatorId, set[int]]:
    """For each operator of a fragment the ports whose tuples get to it: only for these its time waits."""
    bound = fragment.bound
    found = {operator: {number} for number, operator in enumerate(bound.ports)}
    for operator, inputs in bound.members.inputs.items():
        found.setdefault(operator, set()).update(*(found[i] for i in inputs))
    return found


def _newest_state(fragment: Installed, operator: OperatorId, store: Store) -> int:
    """A time that all tuples in the state of an operator are before."""
    stage = next((s for s, o in fragment.bound.stateful.items() if o == operator), None)
    if stage is None:
        return BEGIN
    stateful = fragment.bound.template.stages[stage].stateful
    newest = BEGIN
    for table in range(len(fragment.bound.template.stages[stage].states)):
        key = stage * STATES_PER_STAGE + table
        buckets = store.state.buckets(fragment.fragment, key)
        if not buckets:
            continue
        if isinstance(stateful, TimeWindow):
            newest = max(newest, buckets[-1] + stateful.slide_ms)
        else:
            assert isinstance(stateful, Pairs)
            rows = store.state.read([fragment.fragment], key, buckets[-1]).table
            assert rows is not None
            newest = max(newest, int(rows.column(TS).to_numpy().max()) + 1)
    return newest


def split_times(
    part: Part, seen: Mapping[OperatorId, int], entered: Mapping[OperatorId, int], plan: GlobalPlan
) -> dict[OperatorId, int]:
    """Where old ends and new begins, from what the old fragments have seen, and what they have still to read."""
    both = with_former(plan)
    inputs = {i: entered.get(i, BEGIN) for o in seen for i in both[o].inputs}
    found = limits(both, seen, seen, {**entered, **inputs})
    return {c.upstream: min(found[c.upstream], FOREVER) for c in leaving(part)}


def answered_at(change: InFlightChange) -> int:
    """The event time that the inputs must reach before the old fragments have answered all that is theirs."""
    inner = {o: (f, number) for f in change.old.values() for number, o in enumerate(f.bound.outputs)}
    behind: dict[FragmentId, int] = {}

    def lag_of(operator: OperatorId) -> int:
        if operator not in inner:
            return 0
        fragment, number = inner[operator]
        if fragment.fragment not in behind:
            behind[fragment.fragment] = 0
            behind[fragment.fragment] = max(map(lag_of, fragment.bound.ports))
        return behind[fragment.fragment] + fragment.bound.template.lag_of(number)

    return max((time + lag_of(operator) for operator, time in change.times.items()), default=BEGIN)
