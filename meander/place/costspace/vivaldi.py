"""Vivaldi: coordinates from latencies to a few neighbours, as springs that push and pull (Dabek et al., SIGCOMM 2004).

A node's place is a point in the plane plus a height above it: the way through its access link, which every path pays.
Each measurement moves a node by a share of the error; the share adapts to how sure the node and its neighbour are. All
nodes at once are a compiled loop over arrays; one new or moved node settles among its neighbours and moves no other.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.place.costspace.space import CostSpace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_MS = 1e-3
"""Shorter latencies are taken for this much, so that relative errors stay defined."""
LEAST_ERROR = 1e-3


@dataclass(frozen=True, slots=True)
class Vivaldi:
    """The algorithm's constants. The defaults are those of the literature (cc and ce) and suit a few thousand nodes."""

    dimensions: int = 2
    height: bool = True
    rounds: int = 1000
    """Times that every node measures one neighbour."""
    cc: float = 0.25
    """Share of the error by which a node moves at most."""
    ce: float = 0.25
    """The rate at which a node's estimate of its own error changes."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dimensions < 1 or self.rounds < 1 or not (0 < self.cc <= 1 and 0 < self.ce <= 1):
            raise InputError("Vivaldi needs at least one dimension and one round, and cc and ce between 0 and 1")

    def embed(self, neighbours: Ints, latency_ms: Floats) -> CostSpace:
        """Coordinates for all nodes from latencies to sampled neighbours (both nodes x samples; NaN: not measured)."""
        nodes = len(neighbours)
        if latency_ms.shape != neighbours.shape:
            raise InputError(f"{neighbours.shape} neighbours need as many latencies, not {latency_ms.shape}")
        rng = np.random.default_rng(self.seed)
        measured = np.isfinite(latency_ms) & (neighbours != np.arange(nodes)[:, None])
        spread = float(np.median(latency_ms[measured])) if measured.any() else 1.0
        coordinates = rng.normal(0, max(spread, LEAST_MS) / 4, (nodes, self.dimensions))
        heights, error = np.zeros(nodes), np.ones(nodes)
        if self.height:
            heights[:] = spread / 10
        order = np.argsort(~measured, axis=1, kind="stable")
        latency = np.maximum(np.take_along_axis(latency_ms, order, axis=1), LEAST_MS)
        near = np.take_along_axis(neighbours, order, axis=1)
        usable = measured.sum(axis=1)
        _embed(near, latency, usable, coordinates, heights, error, self.rounds, self.cc, self.ce, self.height, rng)
        unknown = usable == 0
        coordinates[unknown], heights[unknown], error[unknown] = np.nan, 0.0, 1.0
        return CostSpace(coordinates, heights, np.clip(1 - error, 0, 1), messages=int(usable.sum()))

    def settle(self, space: CostSpace, node: NodeId, neighbours: Ints, latency_ms: Floats) -> None:
        """Gives one new or moved node its place from measurements to a few neighbours; the others stay."""
        known = np.array([space.knows(NodeId(int(n))) and n != node for n in neighbours], dtype=bool)
        known &= np.isfinite(latency_ms)
        near, latency = neighbours[known].astype(np.int64), np.maximum(latency_ms[known], LEAST_MS).astype(np.float64)
        space.messages += len(neighbours)
        if not len(near):
            space.forget(node)
            return
        trust = np.maximum(space.confidence[near], 0.05)
        closest = near[latency.argmin()]
        start = space.coordinates[node] if space.knows(node) else space.coordinates[closest]
        rng = np.random.default_rng(self.seed)
        point, height = _settle(
            start.copy(), space.coordinates[near], space.heights[near], latency, trust, self.height, rng
        )
        away = np.linalg.norm(space.coordinates[near] - point, axis=1) + space.heights[near] + height
        error = float(np.median(np.abs(away - latency) / latency))
        space.put(node, point, height, float(np.clip(1 - error, 0, 1)))


@njit(cache=True, nogil=True)
def _embed(
    neighbours: Ints,
    latency: Floats,
    usable: Ints,
    coordinates: Floats,
    heights: Floats,
    error: Floats,
    rounds: int,
    cc: float,
    ce: float,
    with_height: bool,
    rng: np.random.Generator,
) -> None:
    """Every node looks at one neighbour per round. Steps shrink over the rounds, so that the last ones average."""
    nodes, dimensions = coordinates.shape
    apart = np.empty(dimensions)
    for turn in range(rounds):
        cooling = 1.0 if turn < rounds // 2 else 2.0 * (rounds - turn) / rounds
        for i in range(nodes):
            if usable[i] == 0:
                continue
            s = rng.integers(0, usable[i])
            j = neighbours[i, s]
            if usable[j] == 0 and turn > 0 and error[j] >= 1:
                continue
            distance = 0.0
            for d in range(dimensions):
                apart[d] = coordinates[i, d] - coordinates[j, d]
                distance += apart[d] * apart[d]
            distance = np.sqrt(distance)
            if distance < 1e-9:
                for d in range(dimensions):
                    apart[d] = rng.normal()
                distance = np.sqrt((apart * apart).sum())
                apart *= 1e-6 / distance
                distance = 1e-6
            estimate = distance + heights[i] + heights[j]
            weight = error[i] / max(error[i] + error[j], 1e-9)
            relative = abs(estimate - latency[i, s]) / latency[i, s]
            error[i] = max(min(relative * ce * weight + error[i] * (1 - ce * weight), 1.0), LEAST_ERROR)
            step = cc * weight * cooling * (latency[i, s] - estimate) / estimate
            for d in range(dimensions):
                coordinates[i, d] += step * apart[d]
            if with_height:
                heights[i] = max(heights[i] + step * (heights[i] + heights[j]), 1e-6)


@njit(cache=True, nogil=True)
def _settle(
    point: Floats,
    others: Floats,
    heights: Floats,
    latency: Floats,
    trust: Floats,
    with_height: bool,
    rng: np.random.Generator,
) -> tuple[Floats, float]:
    """Least squares of relative errors by majorisation, from several starts: one may end in a mirror image."""
    count, dimensions = others.shape
    weight = trust / (latency * latency)
    best, best_point, best_height = np.inf, point.copy(), 0.0
    for attempt in range(4):
        x = point.copy()
        if attempt > 0:
            for d in range(dimensions):
                x[d] = others[:, d].mean() + rng.normal() * latency.mean()
        h = 0.0
        for _ in range(200):
            moved = 0.0
            goal = np.zeros(dimensions)
            total, rise = 0.0, 0.0
            for j in range(count):
                distance = 1e-9
                for d in range(dimensions):
                    distance += (x[d] - others[j, d]) ** 2
                distance = np.sqrt(distance)
                wanted = max(latency[j] - heights[j] - h, 0.0)
                for d in range(dimensions):
                    goal[d] += weight[j] * (others[j, d] + wanted * (x[d] - others[j, d]) / distance)
                total += weight[j]
                rise += weight[j] * (latency[j] - heights[j] - distance)
            for d in range(dimensions):
                step = goal[d] / total - x[d]
                moved += step * step
                x[d] += step
            if with_height:
                before = h
                h = max(0.0, h + 0.5 * (rise / total - h))
                moved += (h - before) ** 2
            if moved < 1e-10:
                break
        stress = 0.0
        for j in range(count):
            distance = 0.0
            for d in range(dimensions):
                distance += (x[d] - others[j, d]) ** 2
            stress += weight[j] * (np.sqrt(distance) + heights[j] + h - latency[j]) ** 2
        if stress < best:
            best, best_point, best_height = stress, x.copy(), h
    return best_point, best_height
