"""The quality of a cost space: its estimates against measured latencies, and the distance of those from any space at
all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.place.costspace.space import CostSpace

Floats = NDArray[np.float64]

MOST_TRIPLES = 200_000
MOST_PAIRS = 2_000_000


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Relative error is |estimate - measured| / measured, over pairs of nodes that were measured."""

    pairs: int
    median_relative: float
    p90_relative: float
    median_ms: float
    violations: float
    """Share of triples whose direct way is longer than a detour: no space can get those right."""
    violation_ms: float
    """By how much, in the median of those triples."""

    def __str__(self) -> str:
        return (
            f"{self.pairs:,} pairs, relative error {self.median_relative:.1%} in the median and "
            f"{self.p90_relative:.1%} at the 90th percentile ({self.median_ms:.3g} ms), "
            f"triangle inequality violated by {self.violations:.1%} of triples (by {self.violation_ms:.3g} ms)"
        )


def report(space: CostSpace, latency_ms: Floats, seed: int = 0) -> ErrorReport:
    """Compares estimates with a measured matrix (row and column are node ids; NaN and zero: not measured)."""
    nodes = len(latency_ms)
    if latency_ms.shape != (nodes, nodes) or nodes > len(space.heights):
        raise InputError(f"a matrix of {latency_ms.shape} does not fit a cost space of {len(space.heights)} nodes")
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(np.isfinite(latency_ms) & (latency_ms > 0) & ~np.eye(nodes, dtype=bool))
    known = ~np.isnan(space.coordinates[rows, 0]) & ~np.isnan(space.coordinates[columns, 0])
    rows, columns = rows[known], columns[known]
    if len(rows) > MOST_PAIRS:
        some = rng.choice(len(rows), MOST_PAIRS, replace=False)
        rows, columns = rows[some], columns[some]
    return against(space, rows, columns, latency_ms[rows, columns], *violations(latency_ms, rng))


def against(
    space: CostSpace, rows: NDArray[np.int64], columns: NDArray[np.int64], measured: Floats, share: float, by_ms: float
) -> ErrorReport:
    """Compares estimates with measured pairs."""
    if not len(rows):
        return ErrorReport(0, 0.0, 0.0, 0.0, share, by_ms)
    away = np.linalg.norm(space.coordinates[rows] - space.coordinates[columns], axis=1)
    off = np.abs(away + space.heights[rows] + space.heights[columns] - measured)
    median, p90 = np.percentile(off / measured, [50, 90])
    return ErrorReport(len(rows), float(median), float(p90), float(np.median(off)), share, by_ms)


def violations(latency_ms: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Share of sampled triples that violate the triangle inequality, and by how many ms in the median."""
    nodes = len(latency_ms)
    if nodes < 3:
        return 0.0, 0.0
    a, b, c = rng.integers(0, nodes, (3, MOST_TRIPLES))
    direct, first, second = latency_ms[a, c], latency_ms[a, b], latency_ms[b, c]
    real = (a != b) & (b != c) & (a != c)
    for leg in (direct, first, second):
        real &= np.isfinite(leg) & (leg > 0)
    excess = (direct - first - second)[real]
    broken = excess > 1e-9
    return float(broken.mean()) if len(excess) else 0.0, float(np.median(excess[broken])) if broken.any() else 0.0


def check(space: CostSpace, topology: Topology, samples: int = 64, seed: int = 0) -> ErrorReport:
    """Error against true path latencies, from some nodes to all."""
    rng = np.random.default_rng(seed)
    live = np.flatnonzero(topology.nodes.alive[: topology.nodes.count])
    some = np.sort(rng.choice(live, min(samples, len(live)), replace=False)) if len(live) else live
    rows = np.array([topology.adjacency.latencies_from(NodeId(int(n))) for n in some]).reshape(
        len(some), topology.nodes.count
    )
    start, goal = np.nonzero(np.isfinite(rows) & (rows > 0) & ~np.isnan(space.coordinates[: rows.shape[1], 0]))
    known = ~np.isnan(space.coordinates[some[start], 0])
    start, goal = start[known], goal[known]
    return against(space, some[start], goal, rows[start, goal], *violations(rows[:, some], rng))
