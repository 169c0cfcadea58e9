"""The stored record of a transition in flight, so that it goes on after a crash where it was.

Written before a step begins: after a crash the step has begun or not, and either way this step comes next.
"""

from __future__ import annotations

from dataclasses import dataclass

from meander.adapt.decisions import Transition
from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.restart import RESTART_CONCURRENT
from meander.deploy.protocols.sms import SMS
from meander.deploy.protocols.transitions import Itinerary, Step
from meander.model.ids import NodeId, OperatorId
from meander.run.store.records.decisions import TransitionRecord, TransitionStep

STEP_PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (SMS, RESTART_CONCURRENT)}


@dataclass(frozen=True, slots=True)
class TransitionProgress:
    """The progress of a transition."""

    transition: Transition
    itinerary: Itinerary
    moved: tuple[OperatorId, ...]
    step: Step | None
    waiting: tuple[Step, ...]
    held: dict[OperatorId, NodeId]
    """The present nodes of operators that are to move in a later step."""
    has_arrived: bool
    returning: str | None


def record_of(progress: TransitionProgress) -> TransitionRecord:
    transition, itinerary = progress.transition, progress.itinerary
    return TransitionRecord(
        transition.query,
        transition.source,
        transition.target,
        dict(transition.nodes),
        transition.moves,
        transition.also,
        dict(itinerary.apart),
        dict(itinerary.reasons),
        progress.moved,
        None if progress.step is None else _recorded(progress.step),
        tuple(map(_recorded, progress.waiting)),
        dict(progress.held),
        progress.has_arrived,
        progress.returning,
    )


def progress_of(record: TransitionRecord) -> TransitionProgress:
    waiting = tuple(map(_step, record.waiting))
    return TransitionProgress(
        Transition(record.query, record.source, record.target, record.nodes, record.moves, record.also),
        Itinerary(waiting, record.apart, record.reasons),
        record.moved,
        None if record.step is None else _step(record.step),
        waiting,
        dict(record.held),
        record.has_arrived,
        record.returning,
    )


def _recorded(step: Step) -> TransitionStep:
    return TransitionStep(step.operators, None if step.protocol is None else step.protocol.name)


def _step(recorded: TransitionStep) -> Step:
    return Step(recorded.operators, None if recorded.protocol is None else STEP_PROTOCOLS[recorded.protocol])
