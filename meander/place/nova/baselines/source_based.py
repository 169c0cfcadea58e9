"""Every join at the source that sends more, so that less has to travel."""

from __future__ import annotations

import numpy as np

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.problem import JoinProblem


def source_based(problem: JoinProblem) -> BaselineResult:
    more_left = problem.source_tps[problem.join_left] >= problem.source_tps[problem.join_right]
    source = np.where(more_left, problem.join_left, problem.join_right)
    return BaselineResult(problem.source_node[source].astype(np.int64))
