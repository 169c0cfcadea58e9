"""The outcome of a reconfiguration, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meander.model.ids import OperatorId


@dataclass(frozen=True, slots=True)
class ReconfigurationOutcome:
    """Times follow each other: their sum is the makespan."""

    number: int
    reason: str | None
    """Why it was aborted; None when it took effect."""
    contexts_s: float
    """Making the new fragments ready, until the markers are in the channels."""
    markers_s: float
    """Until every old fragment has reached its markers."""
    state_s: float
    """Until all state is in its new place, and until the change has taken effect."""
    state_bytes: int
    deployed: int
    updated: int
    undeployed: int
    waiting_s: float = 0.0
    """While old fragments answered what had begun, and new ones ran beside them."""
    windows_s: float = 0.0
    """How much of that the windows needed by themselves, if event time runs like the clock."""
    control_messages: int = 0
    control_bytes: int = 0
    """Control messages to the nodes and their confirmations, markers included."""
    operators: tuple[OperatorId, ...] = ()
    """Those that run in other fragments afterwards, or again."""
    moved: Mapping[OperatorId, int] = field(default_factory=dict)
    """Bytes of state that travelled, by operator."""
    overlapped: bool = False
    """Whether operators ran at both places for a while."""
    not_at_once: bool = False
    """Whether it would fail again if it were tried again at once: nothing has changed that made it fail."""

    @property
    def makespan_s(self) -> float:
        return self.contexts_s + self.markers_s + self.state_s + self.waiting_s


def never_begun(number: int, reason: str) -> ReconfigurationOutcome:
    """The outcome of a change that could not begin."""
    return ReconfigurationOutcome(number, reason, 0.0, 0.0, 0.0, 0, 0, 0, 0, not_at_once=True)
