"""Clustered, with a minimum spanning tree over the heads: tuples go to their head, then hop along the tree of heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.baselines.clusters import clusters
from meander.place.nova.baselines.spanning import meeting, path_up, spanning_parents
from meander.place.nova.judge import TupleLatencies
from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def cl_tree_sf(problem: JoinProblem) -> BaselineResult:
    head, heads = clusters(problem)
    sinks = np.unique(problem.join_sink)
    trees = {int(s): spanning_parents(problem, np.union1d(heads, [s]), int(s)) for s in sinks}
    ends = [problem.source_node[problem.join_left], problem.source_node[problem.join_right]]
    host = np.empty(problem.joins, dtype=np.int64)
    for join in range(problem.joins):
        parents = trees[int(problem.join_sink[join])]
        host[join] = meeting(parents, int(head[ends[0][join]]), int(head[ends[1][join]]))

    def hops(by: TupleLatencies) -> tuple[Floats, Floats]:
        left, right = (np.array([_way(by, trees, head, problem, j, int(side[j])) for j in range(problem.joins)])
                       for side in ends)  # fmt: skip
        return left, right

    return BaselineResult(host, hops)


def _way(by: TupleLatencies, trees: dict[int, Ints], head: Ints, problem: JoinProblem, join: int, source: int) -> float:
    path = np.array([source, *path_up(trees[int(problem.join_sink[join])], int(head[source]))])
    return float(by.latency_ms(path[:-1], path[1:]).sum())
