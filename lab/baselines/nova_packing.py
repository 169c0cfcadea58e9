"""How many joins can be placed when latency does not matter: a packing heuristic with exact amounts, to compare with.

The joins that take least, largest first, each at the fullest node that still has room, or in two pieces of which one
fills the largest room; for several numbers of joins, of which the best counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from meander.place.nova.problem import JoinProblem

TRIED = 31
"""Numbers of joins that are tried, between half of them and all."""


def refused_at_least_cost(problem: JoinProblem) -> int:
    """Joins that the packing leaves out."""
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    order = np.argsort(left + right, kind="stable")
    rooms = sorted(problem.capacity_tps.tolist())
    best = problem.joins
    for count in np.linspace(problem.joins, problem.joins // 2, TRIED).astype(int).tolist():
        free, out = list(rooms), problem.joins - count
        for join in order[:count][::-1].tolist():
            out += not _packed(free, max(left[join], right[join]), min(left[join], right[join]))
        best = min(best, out)
    return best


def _packed(free: list[float], more: float, less: float) -> bool:
    """Takes room for one join; rooms are in ascending order."""
    if _taken(free, more + less):
        return True
    if len(free) < 2 or free[-1] <= less or free[-1] + free[-2] < more + 2 * less:
        return False
    largest = free.pop()
    insort(free, 0.0)
    return _taken(free, more - (largest - less) + less)


def _taken(free: list[float], need: float) -> bool:
    at = bisect_left(free, need)
    if at == len(free):
        return False
    insort(free, free.pop(at) - need)
    return True
