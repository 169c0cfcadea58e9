"""The best placement there is, for small cases: a mixed-integer program over cells, nodes and what arrives where.

Binary x[cell, node] says that a cell of a join's grid is at a node; y[partition, node] that a partition of a source
arrives there, which costs its rate once, however many cells read it. So splitting and broadcasting are part of the
question. Solved by HiGHS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from meander.model.errors import InputError
from meander.place.nova.joins import Joins
from meander.place.nova.partition import parts
from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

MOST_CHOICES = 200_000


@dataclass(frozen=True, slots=True)
class Exact:
    """The least cost and the proven bound below it (equal when solved to the end); None if nothing fits."""

    cost_ms: float | None
    bound_ms: float


def cost_of(joins: Joins, sink_weight: float = 1.0) -> float:
    """What a placement costs: per join the mean over its cells of both ways from source to sink."""
    board, total = joins.board, 0.0
    for r in joins.replicas():
        left, right = board.sources["node"][board.joins["ends"][r.join]]
        share = len(r.left) * len(r.right) / (r.left_parts * r.right_parts)
        nodes, sink = np.array([r.node]), np.array([board.joins["sink"][r.join]])
        onward = 2 * sink_weight * float(joins.latency_ms(nodes, sink)[0])
        ways = sum(float(joins.latency_ms(np.array([end]), nodes)[0]) for end in (left, right))
        total += share * (ways + onward)
    return total


def solve(problem: JoinProblem, sigma: float, *, sink_weight: float = 1.0, time_s: float = 60.0) -> Exact:
    """The least total cost over all placements with the parts that sigma allows."""
    left_tps, right_tps = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    count = parts(left_tps, right_tps, sigma)
    cells = [(j, a, b) for j in range(problem.joins) for a in range(count[j, 0]) for b in range(count[j, 1])]
    streams = sorted({(j, side, part) for j, a, b in cells for side, part in ((0, a), (1, b))})
    position = {stream: i for i, stream in enumerate(streams)}
    nodes = problem.nodes
    if (len(cells) + len(streams)) * nodes > MOST_CHOICES:
        raise InputError(f"{len(cells)} cells on {nodes} nodes are too many for an exact answer; use a smaller case")
    everyone = np.arange(nodes)
    cost = np.zeros((len(cells) + len(streams), nodes))
    for i, (j, _, _) in enumerate(cells):
        onward = 2 * sink_weight * problem.latency_ms(everyone, np.full(nodes, problem.join_sink[j]))
        for source in (problem.join_left[j], problem.join_right[j]):
            onward = onward + problem.latency_ms(np.full(nodes, problem.source_node[source]), everyone)
        cost[i] = onward / (count[j, 0] * count[j, 1])
    rows = _Rows(cost.size)
    for i, (j, a, b) in enumerate(cells):
        rows.add([(i * nodes + v, 1.0) for v in range(nodes)], 1.0, 1.0)
        for stream in (position[j, 0, a], position[j, 1, b]):
            for v in range(nodes):
                rows.add([(i * nodes + v, 1.0), ((len(cells) + stream) * nodes + v, -1.0)], -np.inf, 0.0)
    rates = [(left_tps if s[1] == 0 else right_tps)[s[0]] / count[s[0], s[1]] for s in streams]
    for v in np.flatnonzero(np.isfinite(problem.capacity_tps)).tolist():
        arriving = [((len(cells) + i) * nodes + v, float(rates[i])) for i in range(len(streams))]
        rows.add(arriving, -np.inf, float(problem.capacity_tps[v]))
    found = milp(
        cost.ravel(), integrality=np.ones(cost.size, dtype=np.int64), bounds=Bounds(0, 1),
        constraints=rows.constraint(), options={"time_limit": time_s, "mip_rel_gap": 1e-6},
    )  # fmt: skip
    if found.x is None:
        return Exact(None, float("inf"))
    return Exact(float(found.fun), float(found.mip_dual_bound))


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
