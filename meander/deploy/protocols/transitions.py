"""Transition protocols: in which steps the operators of a query get to where another mechanism wants them.

A step begins when the one before has taken effect. Operators of a step move together: with their state, or by the
protocol that the step names. One function each, all in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.mfgs import all_at_once, levels, one_by_one
from meander.deploy.protocols.restart import RESTART_CONCURRENT
from meander.deploy.protocols.sms import SMS, split
from meander.model.errors import unknown
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId


@dataclass(frozen=True, slots=True)
class Step:
    """Operators that move together; without a protocol as for any change."""

    operators: tuple[OperatorId, ...]
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True)
class Itinerary:
    """The steps of one transition."""

    steps: tuple[Step, ...]
    apart: Mapping[OperatorId, str] = field(default_factory=dict)
    """Operators that need fragments of their own before they move; those of the same name share one."""
    reasons: Mapping[OperatorId, str] = field(default_factory=dict)
    """The reasons why operators do not move as the protocol would have it."""


@dataclass(frozen=True, slots=True)
class TransitionProtocol:
    """A protocol of transitions: its name, its description and its itinerary."""

    name: str
    about: str
    plan: Callable[[GlobalPlan, Iterable[OperatorId]], Itinerary]
    is_auto: bool = False
    """Whether it is chosen among itineraries by what each is predicted to take; `plan` is for want of a prediction."""


def _mfgs_sequential(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    return Itinerary(tuple(Step(tuple(step)) for step in one_by_one(plan, moving)))


def _mfgs_concurrent(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    return Itinerary(tuple(Step(tuple(step)) for step in levels(plan, moving)))


def _at_once(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    return Itinerary(tuple(Step(tuple(step)) for step in all_at_once(plan, moving)))


def _sms_sequential(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    steps: list[Step] = []
    apart: dict[OperatorId, str] = {}
    reasons: dict[OperatorId, str] = {}
    for (operator,) in one_by_one(plan, moving):
        beside, _, why = split(plan, [operator])
        steps.append(Step((operator,), SMS if beside else None))
        apart.update((o, str(o)) for o in beside)
        reasons.update(why)
    return Itinerary(tuple(steps), apart, reasons)


def _sms_concurrent(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    return mixed(plan, moving, ())


def mixed(plan: GlobalPlan, moving: Iterable[OperatorId], with_state: Collection[OperatorId]) -> Itinerary:
    """These operators move with their state, all others that can begin anew beside the old ones after that."""
    beside, at_marker, reasons = split(plan, moving, with_state)
    steps = (Step(tuple(at_marker)), Step(tuple(beside), SMS))
    return Itinerary(tuple(s for s in steps if s.operators), dict.fromkeys(beside, ""), reasons)


def _restart(plan: GlobalPlan, moving: Iterable[OperatorId]) -> Itinerary:
    found = tuple(o for step in all_at_once(plan, moving) for o in step)
    return Itinerary((Step(found, RESTART_CONCURRENT),) if found else ())


TRANSITIONS: tuple[TransitionProtocol, ...] = (
    TransitionProtocol("mfgs_sequential", "operators move with their state, one after the other", _mfgs_sequential),
    TransitionProtocol("mfgs_concurrent", "operators move with their state, level by level", _mfgs_concurrent),
    TransitionProtocol("at_once", "operators move with their state, all at the same time", _at_once),
    TransitionProtocol("sms_sequential", "operators begin anew beside the old ones, one by one", _sms_sequential),
    TransitionProtocol("sms_concurrent", "operators begin anew beside the old ones, all at once", _sms_concurrent),
    TransitionProtocol(
        "auto", "for each operator whichever of both is predicted to end sooner", _at_once, is_auto=True
    ),
    TransitionProtocol("restart", "the query stops as a whole, moves all its state, and starts again", _restart),
)


def transition_protocol(name: str) -> TransitionProtocol:
    """The protocol of a name, or an error that names them all."""
    for candidate in TRANSITIONS:
        if candidate.name == name:
            return candidate
    raise unknown("transition protocol", name, (p.name for p in TRANSITIONS))
