"""The interface of placement mechanisms. Adding one: a new file with a subclass, and one line in the table beside
it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.problem import Problem, Proposal


@dataclass(frozen=True, slots=True)
class Metadata:
    """The strengths and needs of a mechanism; selection starts from this before there are measures."""

    optimises: tuple[Metric, ...]
    summary: str
    needs_cost_space: bool = False
    routes_all: bool = False
    """It also routes flows between pinned operators of the delta."""
    most_operators: int | None = None
    """It refuses deltas with more free operators than this."""
    leaves_lock: bool = False
    """Its solver computes outside Python's lock: several amenders place large deltas on several cores at once."""


class Mechanism(ABC):
    """A placement algorithm. Stateless between calls; all randomness comes from the problem's seed."""

    name: str
    metadata: Metadata

    def allowed(self, problem: Problem) -> Mapping[OperatorId, frozenset[NodeId]]:
        """The only nodes that it would ever use for a free operator; operators that may run anywhere are left out."""
        return {}

    def of(self, operator: OperatorId) -> str:
        """The mechanism that places an operator, where several are one."""
        return self.name

    def assign(self, operators: Iterable[OperatorId], mechanism: str) -> None:  # noqa: B027 - one alone has no choice
        """Lets a mechanism place these operators from now on, where several are one."""

    def leaves_lock_for(self, operators: Sequence[OperatorId]) -> bool:
        """Whether these free operators would be placed by a solver that leaves Python's lock."""
        return self.metadata.leaves_lock

    @abstractmethod
    def place(self, problem: Problem) -> Proposal:
        """Chooses a node for every free operator, or says why it cannot. Takes the resources it uses from
        `problem.room`."""
