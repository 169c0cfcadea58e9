"""The outcomes of expected moves: counts, bytes, and the last moves one by one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from meander.adapt.mobility.predictor import ExpectedMove
from meander.model.ids import OperatorId

RECENT = 20
"""So many of the last moves are shown one by one."""


class PredictionOutcome(StrEnum):
    """The outcome of an expected move."""

    HIT = "hit"
    MISS = "miss"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """A move that was expected, and what happened instead or as expected."""

    expected: ExpectedMove
    at_ms: int
    source: str
    target: str | None
    """The new attachment; None if the node has not moved in time."""
    operators: Sequence[OperatorId] = ()
    """Operators whose state was sent ahead."""
    bytes: int = 0

    @property
    def outcome(self) -> PredictionOutcome:
        if self.target is None:
            return PredictionOutcome.EXPIRED
        return PredictionOutcome.HIT if self.target == self.expected.attachment else PredictionOutcome.MISS

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.expected.node,
            "at_ms": self.at_ms,
            "from": self.source,
            "to": self.target,
            "expected": self.expected.attachment,
            "probability": round(self.expected.probability, 3),
            "outcome": self.outcome.value,
            "operators": [int(o) for o in self.operators],
            "bytes": self.bytes,
        }


@dataclass(slots=True)
class MoveOutcomes:
    """All of them since the process began."""

    outcomes: Counter[PredictionOutcome] = field(default_factory=Counter)
    used_bytes: int = 0
    wasted_bytes: int = 0
    """State that was sent ahead for moves that came, and for those that did not."""
    recent: deque[MoveOutcome] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, move: MoveOutcome) -> None:
        self.outcomes[move.outcome] += 1
        self.recent.append(move)
        if move.outcome is PredictionOutcome.HIT:
            self.used_bytes += move.bytes
        else:
            self.wasted_bytes += move.bytes

    def as_json(self) -> dict[str, Any]:
        """With the newest first."""
        return {
            "outcomes": {outcome.value: self.outcomes[outcome] for outcome in PredictionOutcome},
            "used_bytes": self.used_bytes,
            "wasted_bytes": self.wasted_bytes,
            "recent": [move.as_json() for move in reversed(self.recent)],
        }
