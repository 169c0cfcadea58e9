"""The interface of predictors: moves in, the likely next move out. They have no clock and do no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Attachment:
    """A mobile node is attached to another node from now on."""

    node: str
    line: str
    """Nodes of one line move alike: what one does is a prior for all others."""
    attachment: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ExpectedMove:
    """The likely next move of a mobile node."""

    node: str
    attachment: str
    probability: float
    in_ms: float | None
    """When, from now; 0 if it is overdue, None if nothing is known about it."""


class Predictor(Protocol):
    """Learns from moves, or knows a timetable."""

    NAME: ClassVar[str]

    def moved(self, move: Attachment) -> None:
        """A node is attached elsewhere, or for the first time."""

    def next(self, node: str, now_ms: int) -> ExpectedMove | None:
        """The likely next move of a node; None if there is no reason to expect any."""

    def as_json(self) -> dict[str, Any]:
        """The part of the predictor that survives a restart."""

    def learn(self, saved: Mapping[str, Any]) -> None:
        """Takes up what was saved."""


def line_of(kind: str, name: str) -> str:
    """Nodes of one kind whose names differ in their numbers only are one line.

    >>> line_of("sensor", "train-12"), line_of("sensor", "bus-12b-3")
    ('sensor train-#', 'sensor bus-#b-#')
    """
    found, number = "", False
    for letter in name:
        if not letter.isdigit():
            found += letter
        elif not number:
            found += "#"
        number = letter.isdigit()
    return f"{kind} {found}"
