"""Each join, largest first, at the node with the most capacity left, wherever that is: what a cloud would do."""

from __future__ import annotations

import heapq

import numpy as np

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.problem import JoinProblem


def top_c(problem: JoinProblem) -> BaselineResult:
    known = np.flatnonzero(~np.isnan(problem.points[:, 0]))
    heap = [(-float(problem.capacity_tps[node]), int(node)) for node in known]
    heapq.heapify(heap)
    host = np.empty(problem.joins, dtype=np.int64)
    demand = problem.demand_tps
    for join in np.argsort(-demand, kind="stable"):
        free, node = heap[0]
        host[join] = node
        heapq.heapreplace(heap, (free + float(demand[join]), node))
    return BaselineResult(host)
