"""The best placement there is, for small cases: a mixed-integer program over cells, nodes and their input.

Binary x[cell, node] says that a cell of a join's grid is at a node; y[piece, node] that a piece of a source arrives
there, which costs its rate once, however many cells of however many joins read it. Joins may part a source differently:
its pieces are what lies between the borders of all their partitions, so every partition is whole pieces. That is how
the board counts, too. So splitting and broadcasting are part of the question. Solved by HiGHS.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from meander.model.errors import InputError
from meander.place.nova.partition_count import parts
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

MOST_CHOICES = 200_000
INFEASIBLE = 2
"""The status of `milp` that says so; without an answer it may also have run out of time."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The least cost and the proven bound below it, equal when solved to the end."""

    cost_ms: float | None
    """None if nothing was found; it is certain that nothing fits when the bound is infinite."""
    bound_ms: float


def cost_of(joins: Joins, sink_weight: float = 1.0) -> float:
    """The cost of a placement: per join the mean over its cells of both ways from source to sink."""
    board, total = joins.board, 0.0
    for r in joins.replicas():
        left, right = board.sources["node"][board.joins["ends"][r.join]]
        share = len(r.left) * len(r.right) / (r.left_parts * r.right_parts)
        nodes, sink = np.array([r.node]), np.array([board.joins["sink"][r.join]])
        onward = 2 * sink_weight * float(joins.latency_ms(nodes, sink)[0])
        latencies = sum(float(joins.latency_ms(np.array([end]), nodes)[0]) for end in (left, right))
        total += share * (latencies + onward)
    return total


def solve(problem: JoinProblem, sigma: float, *, sink_weight: float = 1.0, time_s: float = 60.0) -> Exact:
    """The least total cost over all placements with the parts that sigma allows.

    Of the least free capacity only that counts which no order of placing can get round: nodes that have less when they
    are empty run nothing.
    """
    left_tps, right_tps = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    count = parts(left_tps, right_tps, sigma)
    cells = [(j, a, b) for j in range(problem.joins) for a in range(count[j, 0]) for b in range(count[j, 1])]
    pieces = _Pieces(problem, count)
    if bool((left_tps / count[:, 0] + right_tps / count[:, 1] > problem.bandwidth_tps).any()):
        return Exact(None, float("inf"))
    known = np.flatnonzero(~np.isnan(problem.points).any(axis=1) & (problem.capacity_tps >= problem.least_free_tps))
    nodes = len(known)
    if (len(cells) + len(pieces.rates_tps)) * nodes > MOST_CHOICES:
        raise InputError(f"{len(cells)} cells on {nodes} nodes are too many for an exact answer; use a smaller case")
    cost = np.zeros((len(cells) + len(pieces.rates_tps), nodes))
    for i, (j, _, _) in enumerate(cells):
        onward = 2 * sink_weight * problem.latency_ms(known, np.full(nodes, problem.join_sink[j]))
        for source in (problem.join_left[j], problem.join_right[j]):
            onward = onward + problem.latency_ms(np.full(nodes, problem.source_node[source]), known)
        cost[i] = onward / (count[j, 0] * count[j, 1])
    rows = _Rows(cost.size)
    for i, (j, a, b) in enumerate(cells):
        rows.add([(i * nodes + v, 1.0) for v in range(nodes)], 1.0, 1.0)
        for piece in (*pieces.read(j, 0, a), *pieces.read(j, 1, b)):
            for v in range(nodes):
                rows.add([(i * nodes + v, 1.0), ((len(cells) + piece) * nodes + v, -1.0)], -np.inf, 0.0)
    capacity_tps = problem.capacity_tps[known]
    for v in np.flatnonzero(np.isfinite(capacity_tps)).tolist():
        arriving = [((len(cells) + piece) * nodes + v, rate) for piece, rate in enumerate(pieces.rates_tps)]
        rows.add(arriving, -np.inf, float(capacity_tps[v]))
    found = milp(
        cost.ravel(), integrality=np.ones(cost.size, dtype=np.int64), bounds=Bounds(0, 1),
        constraints=rows.constraint(), options={"time_limit": time_s, "mip_rel_gap": 1e-6},
    )  # fmt: skip
    if found.x is None:
        return Exact(None, float("inf") if found.status == INFEASIBLE else 0.0)
    return Exact(float(found.fun), float(found.mip_dual_bound))


class _Pieces:
    """Each source, cut at the borders of all partitions that joins read of it."""

    def __init__(self, problem: JoinProblem, count: Ints32) -> None:
        self._problem, self._count = problem, count
        borders: dict[int, set[Fraction]] = {}
        for j in range(problem.joins):
            for side in range(2):
                cuts = int(count[j, side])
                borders.setdefault(self._source(j, side), set()).update(Fraction(k, cuts) for k in range(cuts + 1))
        self.rates_tps: list[float] = []
        """The cost of each piece at a node where it arrives."""
        self._first: dict[int, int] = {}
        self._borders = {source: sorted(found) for source, found in borders.items()}
        for source, found in self._borders.items():
            self._first[source] = len(self.rates_tps)
            rate = float(problem.source_tps[source])
            self.rates_tps += [rate * float(high - low) for low, high in pairwise(found)]

    def _source(self, join: int, side: int) -> int:
        return int((self._problem.join_left, self._problem.join_right)[side][join])

    def read(self, join: int, side: int, part: int) -> range:
        """The pieces that a partition of a join's side consists of."""
        source, cuts = self._source(join, side), int(self._count[join, side])
        borders, first = self._borders[source], self._first[source]
        low, high = (bisect_left(borders, Fraction(k, cuts)) for k in (part, part + 1))
        return range(first + low, first + high)


class _Rows:
    """Constraints, collected row by row."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._entries: list[tuple[int, int, float]] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def add(self, entries: list[tuple[int, float]], low: float, high: float) -> None:
        self._entries += [(len(self._low), column, value) for column, value in entries]
        self._low.append(low)
        self._high.append(high)

    def constraint(self) -> LinearConstraint:
        row, column, value = (np.array(part) for part in zip(*self._entries, strict=True))
        matrix = coo_array((value, (row, column)), shape=(len(self._low), self._columns)).tocsr()
        return LinearConstraint(matrix, np.array(self._low), np.array(self._high))
