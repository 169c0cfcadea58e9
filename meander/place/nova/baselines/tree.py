"""The minimum spanning tree to the sink, as in sensor networks: tuples hop along it and join where their ways meet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.baselines.spanning import meeting, path_up, spanning_parents
from meander.place.nova.judge import TupleLatencies
from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]


def tree(problem: JoinProblem) -> BaselineResult:
    known = np.flatnonzero(~np.isnan(problem.points[:, 0]))
    host = np.empty(problem.joins, dtype=np.int64)
    ends = [problem.source_node[problem.join_left], problem.source_node[problem.join_right]]
    trees = {int(sink): spanning_parents(problem, known, int(sink)) for sink in np.unique(problem.join_sink)}
    for join in range(problem.joins):
        host[join] = meeting(trees[int(problem.join_sink[join])], int(ends[0][join]), int(ends[1][join]))

    def hops(by: TupleLatencies) -> tuple[Floats, Floats]:
        """Both inputs and the result follow the tree, so each tuple's way is its source's way to the root."""
        sums = {sink: _to_root(parents, known, by) for sink, parents in trees.items()}
        left, right = (
            np.array([sums[int(s)][int(n)] for s, n in zip(problem.join_sink, side, strict=True)]) for side in ends
        )
        return left, right

    return BaselineResult(host, hops)


def _to_root(parents: NDArray[np.int64], nodes: NDArray[np.int64], by: TupleLatencies) -> Floats:
    """Per node the latency along the tree to the root."""
    inner = nodes[parents[nodes] >= 0]
    hop = np.zeros(len(parents))
    hop[inner] = by.latency_ms(inner, parents[inner])
    total = np.full(len(parents), np.nan)
    total[nodes[parents[nodes] < 0]] = 0.0
    for node in nodes:
        path = []
        for step in path_up(parents, int(node)):
            if not np.isnan(total[step]):
                break
            path.append(step)
        for step in reversed(path):
            total[step] = total[parents[step]] + hop[step]
    return total
