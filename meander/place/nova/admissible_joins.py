"""The number of joins that can be placed at all: a packing by amounts alone, without places, compiled.

The joins that take least go in, largest first, each to the fullest node that still has room, or in two pieces, of which
one fills the largest room. Rooms are counted by size, in steps, so that it costs nothing beside a placement.
Done for several numbers of joins: where not all fit, it pays to leave the largest ones for the end.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 4097
CLOSE = 1e-6
"""Of a step."""
MOST_JOINS = 20_000
"""Of more joins and their nodes, only every so many are packed."""
COARSE = 16
"""Half the numbers of joins that are tried, between half of them and all, and once more around the best."""


def affordable(problem: JoinProblem) -> tuple[float, float]:
    """The share of the joins that should be tried first, the smallest ones, and the share that finds no room then."""
    every = max(1, problem.joins // MOST_JOINS)
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    order = np.argsort(left + right, kind="stable")[every // 2 :: every]
    known = problem.capacity_tps[~np.isnan(problem.points).any(axis=1)]
    rooms = np.sort(known[np.isfinite(known)])[every // 2 :: every]
    if not len(order) or not len(rooms) or len(known[np.isinf(known)]):
        return 1.0, 0.0
    step = float(rooms[-1]) / (STEPS - 1)
    counts = np.bincount((rooms / max(step, 1e-12) + CLOSE).astype(np.int64), minlength=STEPS)
    best, refused = 1.0, np.inf
    for width in (0.5, 0.5 / COARSE):
        for share in np.linspace(min(1.0, best + (width if best < 1 else 0.0)), best - width, 2 * COARSE + 1):
            some = order[: round(share * len(order))][::-1]
            out = len(order) - len(some) + refused_by_packing(left[some], right[some], counts.copy(), step)
            if out < refused:
                best, refused = float(share), out
            if not out:
                return best, 0.0
    return best, refused / len(order)


@njit(cache=True, nogil=True)
def refused_by_packing(left: Floats, right: Floats, counts: Ints, step: float) -> int:
    """How many joins find no room, in this order."""
    refused, top = 0, counts.shape[0] - 1
    for i in range(left.shape[0]):
        while top > 0 and counts[top] == 0:
            top -= 1
        more, less = max(left[i], right[i]), min(left[i], right[i])
        if _put(counts, int(np.ceil((more + less) / step - CLOSE)), top):
            continue
        piece = top * step - less
        if piece <= 0 or piece >= more:
            refused += 1
            continue
        counts[top] -= 1
        counts[0] += 1
        if not _put(counts, int(np.ceil((more - piece + less) / step - CLOSE)), top):
            counts[top] += 1
            counts[0] -= 1
            refused += 1
    return refused


@njit(cache=True, nogil=True)
def _put(counts: Ints, need: int, top: int) -> bool:
    """Takes the smallest room that suffices."""
    for size in range(need, top + 1):
        if counts[size] > 0:
            counts[size] -= 1
            counts[size - need] += 1
            return True
    return False
