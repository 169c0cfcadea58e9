"""The answer of a baseline: a node for each join, and the latencies its tuples then have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.judge import Quality, TupleLatencies, verdict
from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """A host per join (NOWHERE: not placed). Tuples travel straight, or hop by hop if the baseline routes them."""

    host: Ints
    hops: Callable[[TupleLatencies], tuple[Floats, Floats]] | None = None
    """Per join the latency of its left and of its right, where tuples follow a tree."""


Baseline = Callable[[JoinProblem], BaselineResult]


def judge_outcome(outcome: BaselineResult, problem: JoinProblem, by: TupleLatencies | None = None) -> Quality:
    """The same measure as for Nova: latency over direct transmission, and the share of used nodes with overload."""
    by = problem if by is None else by
    placed = np.flatnonzero(outcome.host != NOWHERE)
    left, right = problem.source_node[problem.join_left], problem.source_node[problem.join_right]
    sink, host = problem.join_sink[placed], outcome.host[placed]
    direct = np.concatenate([by.latency_ms(side[placed], sink) for side in (left, right)])
    if outcome.hops is not None:
        through = np.concatenate([side[placed] for side in outcome.hops(by)])
    else:
        onward = by.latency_ms(host, sink)
        through = np.concatenate([by.latency_ms(side[placed], host) + onward for side in (left, right)])
    load = loads(problem, outcome.host)
    used = np.flatnonzero(load > 0)
    over = float((load[used] > problem.capacity_tps[used] * (1 + 1e-9)).mean()) if len(used) else 0.0
    return verdict(through, direct, over, len(used), len(placed), problem.joins - len(placed), float(load.sum()))


def loads(problem: JoinProblem, host: Ints) -> Floats:
    """The tuples/s that arrive at each node; a source that several joins of a node read arrives once."""
    placed = np.flatnonzero(host != NOWHERE)
    node = np.concatenate((host[placed], host[placed]))
    source = np.concatenate((problem.join_left[placed], problem.join_right[placed])).astype(np.int64)
    once = np.unique(node * len(problem.source_node) + source)
    arriving = problem.source_tps[once % len(problem.source_node)]
    return np.bincount(once // len(problem.source_node), arriving, minlength=problem.nodes).astype(np.float64)
