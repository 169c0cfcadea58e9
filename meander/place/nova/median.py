"""Phase II: the weighted geometric median, the point with the least sum of weighted distances (Eq. 6).

Three points have a closed form: either a point is so heavy that the pull of the others cannot move it, or the median
sees the three sides at angles that only the weights decide, and its barycentric coordinates follow from those angles
and the triangle's own. More points take Weiszfeld's iteration, in the form of Vardi and Zhang that can leave a point it
runs into. Joins come in bulk.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

ITERATIONS = 2000
FLAT = 1e-12
"""A triangle this flat, relative to its sides, is a line."""


@njit(cache=True, nogil=True)
def _apart(a: Floats, b: Floats) -> float:
    total = 0.0
    for d in range(a.shape[0]):
        total += (a[d] - b[d]) * (a[d] - b[d])
    return float(np.sqrt(total))


@njit(cache=True, nogil=True)
def _best_point(points: Floats, weights: Floats) -> int:
    best, found = np.inf, 0
    for i in range(points.shape[0]):
        total = 0.0
        for j in range(points.shape[0]):
            total += weights[j] * _apart(points[i], points[j])
        if total < best:
            best, found = total, i
    return found


@njit(cache=True, nogil=True)
def three(points: Floats, weights: Floats, out: Floats) -> None:
    """The median of three points, in closed form."""
    a, b, c = weights[0] ** 2, weights[1] ** 2, weights[2] ** 2
    heron = 2 * (a * b + b * c + c * a) - a * a - b * b - c * c
    shares, total = (0.0, 0.0, 0.0), 0.0
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        dot, one, two = 0.0, 0.0, 0.0
        for d in range(points.shape[1]):
            x, y = points[j, d] - points[i, d], points[k, d] - points[i, d]
            dot, one, two = dot + x * y, one + x * x, two + y * y
        area = one * two - dot * dot
        if area <= FLAT * one * two:
            out[:] = points[_best_point(points, weights)]
            return
        u, v = weights[j], weights[k]
        if u * u + v * v + 2 * u * v * dot / np.sqrt(one * two) <= weights[i] ** 2 or heron <= 0:
            out[:] = points[i if heron > 0 else _best_point(points, weights)]
            return
        seen = (weights[i] ** 2 - u * u - v * v) / np.sqrt(heron)
        share = 1.0 / (dot / np.sqrt(area) - seen)
        shares = (share, shares[0], shares[1])
        total += share
    for d in range(points.shape[1]):
        out[d] = (shares[2] * points[0, d] + shares[1] * points[1, d] + shares[0] * points[2, d]) / total


@njit(cache=True, nogil=True)
def many(points: Floats, weights: Floats, out: Floats, iterations: int, close: float) -> None:
    """The median of any number of points. `close` is the step, relative to the spread, that ends the iteration."""
    count, dimensions = points.shape
    if count == 3:
        three(points, weights, out)
        return
    total, spread = weights.sum(), 0.0
    for d in range(dimensions):
        out[d] = (weights * points[:, d]).sum() / total
        spread = max(spread, points[:, d].max() - points[:, d].min())
    if spread == 0.0 or count <= 2:
        out[:] = points[_best_point(points, weights)]
        return
    goal, pull = np.empty(dimensions), np.empty(dimensions)
    for _ in range(iterations):
        stiffness, own = 0.0, 0.0
        goal[:], pull[:] = 0.0, 0.0
        for j in range(count):
            away = _apart(points[j], out)
            if away <= 1e-14 * spread:
                own += weights[j]
                continue
            stiffness += weights[j] / away
            for d in range(dimensions):
                goal[d] += weights[j] / away * points[j, d]
                pull[d] += weights[j] / away * (points[j, d] - out[d])
        strength = np.sqrt((pull * pull).sum())
        if stiffness == 0.0 or strength <= own:
            break
        stay, moved = min(1.0, own / strength), 0.0
        for d in range(dimensions):
            x = (1 - stay) * goal[d] / stiffness + stay * out[d]
            moved += (x - out[d]) ** 2
            out[d] = x
        if moved <= (close * spread) ** 2:
            break
    nearest = _best_point(points, weights)
    if _sum(points, weights, points[nearest]) <= _sum(points, weights, out):
        out[:] = points[nearest]


@njit(cache=True, nogil=True)
def _sum(points: Floats, weights: Floats, at: Floats) -> float:
    total = 0.0
    for j in range(points.shape[0]):
        total += weights[j] * _apart(points[j], at)
    return total


@njit(cache=True, nogil=True)
def _of_joins(points: Floats, left: Ints32, right: Ints32, sink: Ints32, weights: Floats, out: Floats) -> None:
    corners = np.empty((3, points.shape[1]))
    for join in range(left.shape[0]):
        corners[0], corners[1], corners[2] = points[left[join]], points[right[join]], points[sink[join]]
        three(corners, weights, out[join])


def of_joins(points: Floats, left: Ints32, right: Ints32, sink: Ints32, sink_weight: float = 1.0) -> Floats:
    """The virtual place of every join: left, right and sink are nodes."""
    out = np.empty((len(left), points.shape[1]))
    _of_joins(points, left, right, sink, np.array([1.0, 1.0, sink_weight]), out)
    return out


def median(points: Floats, weights: Floats | None = None, *, iterations: int = ITERATIONS) -> Floats:
    """The geometric median of some points, weighted or not."""
    points = np.ascontiguousarray(points, dtype=np.float64)
    weights = np.ones(len(points)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    out = np.empty(points.shape[1])
    many(points, weights, out, iterations, 1e-10)
    return out
