"""Execution: the only part of the loop that touches the running system, through what the deploy side implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from meander.adapt.decisions import Decision, Transition, TransitionOutcome
from meander.model.ids import QueryId

if TYPE_CHECKING:
    from meander.adapt.loop import AdaptationLoop


class Executor(Protocol):
    """Carries transitions out. Neither method waits for a transition to end."""

    def start(self, transition: Transition) -> None:
        """Begins a transition. Raises when it cannot; then nothing has changed."""

    def poll(self) -> Mapping[QueryId, TransitionOutcome]:
        """Transitions that ended since the last call, each told once."""


def begin(loop: AdaptationLoop, executor: Executor, now_ms: int, decisions: list[Decision]) -> list[Decision]:
    """Starts the decided transitions; those that could not be started follow as failures."""
    for decision in list(decisions):
        if decision.transition is None:
            continue
        try:
            executor.start(decision.transition)
        except Exception as error:  # the query goes on as it was
            decisions.append(
                loop.ended(now_ms, decision.query, TransitionOutcome(False, f"it could not be started: {error}"))
            )
    return decisions
