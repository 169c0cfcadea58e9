"""The stored record of a transition in flight, so that it goes on after a crash where it was.

Written before a step begins: after a crash the step has begun or not, and either way this step comes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meander.adapt.decisions import Transition
from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.restart import RESTART_CONCURRENT
from meander.deploy.protocols.sms import SMS
from meander.deploy.protocols.transitions import Itinerary, Step
from meander.model.ids import NodeId, OperatorId, QueryId

PREFIX = "transition "
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


def record_key(query: QueryId) -> str:
    return f"{PREFIX}{query}"


def to_json(progress: TransitionProgress) -> dict[str, Any]:
    transition, itinerary = progress.transition, progress.itinerary
    return {
        "source": transition.source,
        "target": transition.target,
        "nodes": sorted(transition.nodes.items()),
        "moves": transition.moves,
        "also": sorted(transition.also),
        "apart": sorted(itinerary.apart.items()),
        "reasons": sorted(itinerary.reasons.items()),
        "moved": list(progress.moved),
        "step": None if progress.step is None else _step_to_json(progress.step),
        "waiting": [_step_to_json(step) for step in progress.waiting],
        "held": sorted(progress.held.items()),
        "arrived": progress.has_arrived,
        "returning": progress.returning,
    }


def from_json(query: QueryId, data: dict[str, Any]) -> TransitionProgress:
    nodes = {OperatorId(o): NodeId(n) for o, n in data["nodes"]}
    also = frozenset(QueryId(q) for q in data["also"])
    transition = Transition(query, data["source"], data["target"], nodes, data["moves"], also)
    waiting = tuple(_step_from_json(step) for step in data["waiting"])
    apart = {OperatorId(o): str(name) for o, name in data["apart"]}
    reasons = {OperatorId(o): str(reason) for o, reason in data["reasons"]}
    return TransitionProgress(
        transition,
        Itinerary(waiting, apart, reasons),
        tuple(OperatorId(o) for o in data["moved"]),
        None if data["step"] is None else _step_from_json(data["step"]),
        waiting,
        {OperatorId(o): NodeId(n) for o, n in data["held"]},
        bool(data["arrived"]),
        data["returning"],
    )


def _step_to_json(step: Step) -> list[Any]:
    return [list(step.operators), None if step.protocol is None else step.protocol.name]


def _step_from_json(data: list[Any]) -> Step:
    operators, protocol = data
    return Step(tuple(OperatorId(o) for o in operators), None if protocol is None else STEP_PROTOCOLS[protocol])
