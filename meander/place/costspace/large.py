"""Coordinates for very many nodes: a small core finds its places together, then everyone else settles by itself.

Springs between a million nodes fold: whole regions end up mirrored, and no number of rounds unfolds them. A core of a
few hundred nodes is embedded well, by Vivaldi from several starts of which the best counts; every other node measures a
few of the core and solves its own least squares of relative errors. Nodes do not depend on each other, so the work is
linear, and measurements are asked for in portions, so memory stays small.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.costspace.space import CostSpace
from meander.place.costspace.vivaldi import LEAST_MS, Vivaldi

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Measure = Callable[[Ints, Ints], Floats]
"""Latencies between pairs of nodes; NaN where one cannot be measured."""

CORE = 512
CORE_SAMPLES = 64
SAMPLES = 20
STARTS = 3
PORTION = 65_536
STEPS = 12


def embed_many(
    nodes: int,
    measure: Measure,
    vivaldi: Vivaldi | None = None,
    *,
    core: int = CORE,
    samples: int = SAMPLES,
) -> CostSpace:
    """A place for every node from `samples` measurements each, to random nodes of the core."""
    if nodes < 2 or core < 3 or samples < 3:
        raise InputError("coordinates need at least two nodes, a core of three and three measurements per node")
    vivaldi = vivaldi or Vivaldi()
    rng = np.random.default_rng(vivaldi.seed)
    members = np.sort(rng.choice(nodes, min(core, nodes), replace=False)).astype(np.int64)
    middle, messages = _core(members, measure, vivaldi, rng)
    coordinates = np.full((nodes, vivaldi.dimensions), np.nan)
    heights, error = np.zeros(nodes), np.ones(nodes)
    usable = np.flatnonzero(~np.isnan(middle.coordinates[:, 0]))
    for begin in range(0, nodes, PORTION):
        some = np.arange(begin, min(begin + PORTION, nodes), dtype=np.int64)
        near = usable[rng.integers(0, len(usable), (len(some), samples))]
        own = np.repeat(some, samples)
        latency = np.asarray(measure(own, members[near].ravel()), dtype=np.float64).reshape(near.shape)
        latency[members[near] == some[:, None]] = np.nan
        messages += int(np.isfinite(latency).sum())
        _settle_all(
            near, latency, middle.coordinates, middle.heights, middle.confidence, vivaldi.height,
            coordinates[some[0] : some[-1] + 1], heights[some[0] : some[-1] + 1], error[some[0] : some[-1] + 1],
        )  # fmt: skip
    coordinates[members], heights[members] = middle.coordinates, middle.heights
    error[members] = 1 - middle.confidence
    return CostSpace(coordinates, heights, np.clip(1 - error, 0, 1), messages=messages)


def _core(members: Ints, measure: Measure, vivaldi: Vivaldi, rng: np.random.Generator) -> tuple[CostSpace, int]:
    """The best of a few embeddings of the core, and how many measurements it took."""
    count = len(members)
    near = rng.integers(0, count, (count, min(CORE_SAMPLES, count)))
    own = np.repeat(np.arange(count), near.shape[1])
    latency = np.asarray(measure(members[own], members[near.ravel()]), dtype=np.float64).reshape(near.shape)
    latency[near == np.arange(count)[:, None]] = np.nan
    spaces = [replace(vivaldi, seed=vivaldi.seed + start).embed(near, latency) for start in range(STARTS)]
    best = max(spaces, key=lambda space: float(np.median(space.confidence)))
    return best, int(np.isfinite(latency).sum())


@njit(cache=True, nogil=True)
def _settle_all(
    near: Ints,
    latency: Floats,
    places: Floats,
    levels: Floats,
    trust: Floats,
    with_height: bool,
    coordinates: Floats,
    heights: Floats,
    error: Floats,
) -> None:
    dimensions = places.shape[1]
    state, best = np.empty(dimensions + 1), np.empty(dimensions + 1)
    for i in range(near.shape[0]):
        closest, measured = -1, 0
        for j in range(near.shape[1]):
            if np.isfinite(latency[i, j]):
                measured += 1
                if closest < 0 or latency[i, j] < latency[i, closest]:
                    closest = j
        if measured == 0:
            continue
        least = np.inf
        for start in range(2):
            for d in range(dimensions):
                state[d] = places[near[i, closest], d]
                if start == 1:
                    state[d] = 2 * places[:, d].mean() - state[d]
            state[dimensions] = 0.0
            stress = _fit(near[i], latency[i], places, levels, trust, with_height, state)
            if stress < least:
                least = stress
                best[:] = state
            if stress < 1e-3 * measured:
                break
        coordinates[i], heights[i] = best[:dimensions], best[dimensions]
        error[i] = min(np.sqrt(least / measured), 1.0)


@njit(cache=True, nogil=True)
def _stress(near: Ints, latency: Floats, places: Floats, levels: Floats, trust: Floats, state: Floats) -> float:
    dimensions, total = places.shape[1], 0.0
    for j in range(near.shape[0]):
        if np.isfinite(latency[j]):
            away = 0.0
            for d in range(dimensions):
                away += (state[d] - places[near[j], d]) ** 2
            wanted = max(latency[j], LEAST_MS)
            total += (
                max(trust[near[j]], 0.05) * ((np.sqrt(away) + levels[near[j]] + state[dimensions]) / wanted - 1) ** 2
            )
    return total


@njit(cache=True, nogil=True)
def _fit(
    near: Ints, latency: Floats, places: Floats, levels: Floats, trust: Floats, with_height: bool, state: Floats
) -> float:
    """Least squares of relative errors by damped Gauss-Newton steps; leaves the best state found in `state`."""
    dimensions = places.shape[1]
    size = dimensions + 1 if with_height else dimensions
    normal, pull, slope = np.empty((size, size)), np.empty(size), np.empty(size)
    tried = state.copy()
    now, damping = _stress(near, latency, places, levels, trust, state), 1e-2
    for _ in range(STEPS):
        normal[:], pull[:] = 0.0, 0.0
        for j in range(near.shape[0]):
            if not np.isfinite(latency[j]):
                continue
            away = 1e-18
            for d in range(dimensions):
                away += (state[d] - places[near[j], d]) ** 2
            away = np.sqrt(away)
            wanted = max(latency[j], LEAST_MS)
            for d in range(dimensions):
                slope[d] = (state[d] - places[near[j], d]) / (away * wanted)
            if with_height:
                slope[dimensions] = 1 / wanted
            off = (away + levels[near[j]] + state[dimensions]) / wanted - 1
            weight = max(trust[near[j]], 0.05)
            for a in range(size):
                pull[a] -= weight * slope[a] * off
                for b in range(size):
                    normal[a, b] += weight * slope[a] * slope[b]
        for a in range(size):
            normal[a, a] *= 1 + damping
            normal[a, a] += 1e-15
        _solve(normal, pull)
        tried[:] = state
        for a in range(size):
            tried[a] += pull[a]
        if tried[dimensions] < 0:
            tried[dimensions] = 0.0
        then = _stress(near, latency, places, levels, trust, tried)
        if then < now:
            done = now - then < 1e-4 * now
            state[:], now, damping = tried, then, damping * 0.2
            if done:
                break
        else:
            damping *= 10
    return now


@njit(cache=True, nogil=True)
def _solve(matrix: Floats, right: Floats) -> None:
    """Gauss elimination with pivots, for a handful of unknowns; the answer replaces the right side."""
    size = right.shape[0]
    for a in range(size):
        pivot = a
        for b in range(a + 1, size):
            if abs(matrix[b, a]) > abs(matrix[pivot, a]):
                pivot = b
        if pivot != a:
            for c in range(size):
                matrix[a, c], matrix[pivot, c] = matrix[pivot, c], matrix[a, c]
            right[a], right[pivot] = right[pivot], right[a]
        if abs(matrix[a, a]) < 1e-300:
            continue
        for b in range(a + 1, size):
            factor = matrix[b, a] / matrix[a, a]
            for c in range(a, size):
                matrix[b, c] -= factor * matrix[a, c]
            right[b] -= factor * right[a]
    for a in range(size - 1, -1, -1):
        for b in range(a + 1, size):
            right[a] -= matrix[a, b] * right[b]
        right[a] = right[a] / matrix[a, a] if abs(matrix[a, a]) >= 1e-300 else 0.0
