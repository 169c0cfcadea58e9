"""Batches of events that were applied: placed at once, deployed as changes take effect."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from meander.model.ids import OperatorId
from meander.place.engine import BatchReport
from meander.reconfigure.outcome import ReconfigurationOutcome


@dataclass(slots=True, eq=False)
class Applied:
    """A batch of events on its way: placed at once, in effect when nothing of it is open."""

    report: BatchReport
    started: float
    """The time at which it was taken up, by the loop's clock."""
    placement_s: float
    operators: frozenset[OperatorId] = frozenset()
    """Operators that it moved, or whose routes it changed."""
    rerouted: int = 0
    open: set[int] = field(default_factory=set)
    """Reconfigurations in flight that belong to it."""
    waits: bool = True
    """Whether some of it waits for reconfigurations in flight."""
    outcomes: list[ReconfigurationOutcome] = field(default_factory=list)
    ended: float | None = None
    """The time at which all of it was in effect."""

    def continued(self, report: BatchReport) -> None:
        """Another batch of the engine belongs to it: operators that it placed were placed again."""
        moves = {move.operator: move for move in self.report.moves}
        for move in report.moves:
            before = moves.get(move.operator)
            moves[move.operator] = move if before is None else replace(move, source=before.source)
        self.report.moves = [m for m in moves.values() if m.source != m.target]
        self.report.unplaced = {**self.report.unplaced, **report.unplaced}
        self.operators |= touched(report)


def touched(report: BatchReport) -> frozenset[OperatorId]:
    difference = report.difference
    return frozenset([*difference.operators, *(o for edge in difference.rerouted for o in edge)])
