"""State strategies: the ways in which state gets to its new place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from meander.reconfigure.state.in_process import monotonic_ms
from meander.reconfigure.state.job import Job, StateMove


class Begin(Protocol):
    """Makes a move that is to be started."""

    def __call__(
        self, job: Job, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True
    ) -> StateMove: ...


@dataclass(frozen=True, slots=True)
class StateStrategy:
    """A way to move state, by name."""

    name: str
    about: str
    begin: Begin
    sends_ahead: bool = False
    """Whether the bulk of a large state goes while the operator still runs."""
    needs_input: bool = False
    """Whether senders have to keep what fragments consume, so that state can be built from it."""
