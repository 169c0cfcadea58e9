"""What a placement mechanism is. Adding one: a new file with a subclass, and one line in the table beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from meander.model.demands import Metric
from meander.place.problem import Problem, Proposal


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a mechanism is good for and what it needs; selection starts from this when nothing is known yet."""

    optimises: tuple[Metric, ...]
    summary: str
    needs_cost_space: bool = False
    most_operators: int | None = None
    """It refuses deltas with more free operators than this."""


class Mechanism(ABC):
    """A placement algorithm. Stateless between calls; all randomness comes from the problem's seed."""

    name: str
    metadata: Metadata

    @abstractmethod
    def place(self, problem: Problem) -> Proposal:
        """Chooses a node for every free operator, or says why it cannot. Takes from `problem.room` what it uses."""
