"""A plain greedy that respects capacities: the largest join first, each whole where its tuples fare best."""

from __future__ import annotations

import numpy as np

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.place import place
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins
from meander.place.nova.settings import NovaSettings, Overload


def greedy(problem: JoinProblem) -> BaselineResult:
    """The same exact search as Nova's, with nothing else of it: no splitting, no weights, no improvement."""
    joins = place(problem, NovaSettings(sigma=1.0, overload=Overload.REFUSE, sink_weight=1.0, slack=0.0))
    return BaselineResult(whole_hosts(joins, problem.joins))


def whole_hosts(joins: Joins, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The node of each join; a join that had to be split counts where its first replica is."""
    host = np.full(count, -1, dtype=np.int64)
    rows = joins.rows()
    host[joins.board.replicas["join"][rows]] = joins.board.replicas["node"][rows]
    return host
