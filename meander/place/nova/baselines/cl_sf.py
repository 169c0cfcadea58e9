"""Clustered: a join whose sources share a cluster runs at its head, all others run at the sink."""

from __future__ import annotations

import numpy as np

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.baselines.clusters import clusters
from meander.place.nova.problem import JoinProblem


def cl_sf(problem: JoinProblem) -> BaselineResult:
    head, _ = clusters(problem)
    left = head[problem.source_node[problem.join_left]]
    right = head[problem.source_node[problem.join_right]]
    return BaselineResult(np.where(left == right, left, problem.join_sink).astype(np.int64))
