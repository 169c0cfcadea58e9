"""Every join at its sink: the lower bound of latency, and all load in one place."""

from __future__ import annotations

import numpy as np

from meander.place.nova.baselines.base import BaselineResult
from meander.place.nova.problem import JoinProblem


def sink_based(problem: JoinProblem) -> BaselineResult:
    return BaselineResult(problem.join_sink.astype(np.int64))
