"""Small state: operators begin at their new place without state, beside the old ones, which answer what had begun.

All input goes to both from the moment of the fork on. An operator that has seen all input from some time on gives the
same results as one that has seen everything, but for a while only its younger results are complete. `complete_from`
says from which time on they are. Up to there the old operator answers, from there on the new one: nothing is missing,
nothing is double, and no state travels. A window belongs to the old operator if it began before the new one had its
input, a pair if one of its tuples did; windows that slide are told apart one by one.

Sessions and count windows have no such time: a session can grow for ever, and which tuples a count window holds
depends on all tuples before. These operators move with their state instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from meander.deploy.fragments import Deployment, DeploymentChange
from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.mfgs import levels
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId
from meander.model.operators import STATEFUL, Conjunction, Operator, Sequence, WindowAggregate, WindowJoin
from meander.model.windows import Between, Count, Session, Sliding, Tumbling, Within

SMS = Protocol("sms", "runs operators at both places until the old ones have answered what had begun", overlaps=True)


def complete_from(spec: Operator, since_ms: int) -> int | None:
    """From which event time on results are complete if the input is, from `since_ms` on; None if never for sure.

    Results of windows carry the window's end, pairs the time of their later tuple.

    >>> from meander.model.windows import Sliding
    >>> complete_from(Sequence(within_ms=500), 1_200)
    1700
    """
    match spec:
        case WindowAggregate(window=Tumbling() | Sliding() as window):
            size, slide = _size(window)
            return _first(since_ms, slide) - slide + size + 1  # just behind the last window that began too early
        case WindowAggregate():
            return None
        case WindowJoin(window=window) | Conjunction(window=window):
            if isinstance(window, Within | Between):
                return since_ms + window.ms
            size, slide = _size(window)
            return _first(since_ms, slide) - slide + size  # where the last window that began too early ends
        case Sequence(within_ms=within_ms):
            return since_ms + within_ms
        case _:
            return since_ms


def _size(window: Tumbling | Sliding) -> tuple[int, int]:
    return window.size_ms, window.slide_ms if isinstance(window, Sliding) else window.size_ms


def _first(since_ms: int, slide_ms: int) -> int:
    """The first window start that is not before a time."""
    return -(-since_ms // slide_ms) * slide_ms


def obstacle(spec: Operator) -> str | None:
    """The reason why an operator cannot begin without state; None if it can."""
    if complete_from(spec, 0) is not None:
        return None
    window = spec.window if isinstance(spec, WindowAggregate) else None
    if isinstance(window, Session):
        return "a session can go on for ever, so its state is moved"
    assert isinstance(window, Count)
    return "a count window depends on all tuples before it, so its state is moved"


def limits(
    plan: GlobalPlan, operators: Iterable[OperatorId], seen: Mapping[OperatorId, int], entered: Mapping[OperatorId, int]
) -> dict[OperatorId, int]:
    """For each operator the time from which its results are complete at the new place.

    `seen` are times before which an operator's old state may hold tuples that its new one never gets; `entered` the
    same for an operator's output that the old readers have still to read.
    """
    inside = set(operators)
    found: dict[OperatorId, int] = {}
    stack = sorted(inside, reverse=True)
    while stack:
        operator = stack[-1]
        inputs = plan[operator].inputs
        waiting = [i for i in inputs if i in inside and i not in found]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        since = max(seen[operator], *(max(found.get(i, entered[i]), entered[i]) for i in inputs))
        complete = complete_from(plan[operator].spec, since)
        assert complete is not None
        found[operator] = complete
    return found


def split(
    plan: GlobalPlan, moving: Iterable[OperatorId], with_state: Collection[OperatorId] = ()
) -> tuple[list[OperatorId], list[OperatorId], dict[OperatorId, str]]:
    """Operators that can overlap, those that move at a marker, and why those among them that have state do.

    Operators of `with_state` move at a marker although they could overlap.

    An operator without state through which tuples pass as they are, without a window before it among those that
    overlap, moves at a marker: a tuple that comes late has no side of a time that it must be on. If only operators that
    overlap read it, it runs twice with them: each of its tuples goes to both sides of them, as the input would.
    """
    moving = list(moving)
    beside_: dict[OperatorId, None] = {}
    at_marker: list[OperatorId] = []
    reasons: dict[OperatorId, str] = {}
    for level in levels(plan, moving):
        for operator in level:
            spec = plan[operator].spec
            if isinstance(spec, STATEFUL):
                reason = obstacle(spec)
                if reason is None and operator not in with_state:
                    beside_[operator] = None
                    continue
                if reason is not None:
                    reasons[operator] = reason
            elif all(i in beside_ for i in plan[operator].inputs):
                beside_[operator] = None
                continue
            at_marker.append(operator)
    for operator in reversed(at_marker):
        readers = plan[operator].readers
        if readers and not isinstance(plan[operator].spec, STATEFUL) and all(r in beside_ for r in readers):
            beside_[operator] = None
    order = [o for level in levels(plan, moving) for o in level]
    return [o for o in order if o in beside_], [o for o in order if o not in beside_], reasons


def may_overlap(plan: GlobalPlan, change: DeploymentChange, wanted: Mapping[OperatorId, Protocol]) -> bool:
    """Whether a change only brings operators that can run twice from fragments of their own to others."""
    before, after = (
        {o for f in side.values() for o in f.operators} for side in (change.fragments_before, change.fragments_after)
    )
    both = change.fragments_before.keys() & change.fragments_after.keys()
    if before != after or both or any(o not in wanted or not wanted[o].overlaps for o in before):
        return False
    return not split(plan, before)[1]


def beside(change: DeploymentChange, deployment: Deployment) -> DeploymentChange:
    """The change with channels of their own for the new fragments' inputs: the old ones go on reading theirs."""
    inside = change.fragments_after
    channels = {
        key: replace(c, id=deployment.fresh_channel()) if c.receiver in inside else c
        for key, c in change.channels_after.items()
    }
    return DeploymentChange(change.fragments_before, change.fragments_after, change.channels_before, channels)
