"""Join problems to measure on: nodes in clusters of the plane, published latencies, rates and capacities of six kinds.

The published instance: the first node is the sink, the next 60% are sources that are paired in order, the rest only
works. Rates are whole numbers between 1 and 75 with a mean of 38. Capacities are uniform, up to 50 for sources and up
to 200 for the others, mixed with an exponential of the same mean, the more so the higher the level (0, 2, .. 10).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meander.local.join_draws import SOURCES, capacities, rates
from meander.place.costspace.mds import embed, symmetric
from meander.place.nova.problem import NO_MATRIX, UNLIMITED, JoinProblem

Floats = NDArray[np.float64]

LEVELS = (0, 2, 4, 6, 8, 10)
MEAN_TPS = 38
DATA = Path(os.environ.get("MEANDER_DATA", "../shared/data")) / "latency"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Measured latencies between nodes, and coordinates that estimate them."""

    name: str
    measured_ms: Floats
    points: Floats
    published_points: bool
    """Whether the coordinates are the published ones; otherwise they are found by scaling."""


def data_sets() -> list[DataSet]:
    """Every latency matrix at hand (`MEANDER_DATA`), in order of name."""
    return [data_set(path) for path in sorted(DATA.glob("*.npz"))] if DATA.is_dir() else []


def data_set(path: Path) -> DataSet:
    """One matrix with its coordinates."""
    with np.load(path, allow_pickle=False) as arrays:
        matrix = symmetric(np.array(arrays["rtt_ms"], dtype=np.float64))
        points = np.array(arrays["coords2d"], dtype=np.float64) if "coords2d" in arrays.files else None
    name = path.stem.rstrip("0123456789")
    return DataSet(name, matrix, embed(matrix, 2).coordinates if points is None else points, points is not None)


def clusters(nodes: int, seed: int = 0) -> Floats:
    """Gaussian clusters in a square of 100 ms."""
    rng = np.random.default_rng(seed)
    count = max(3, int(nodes**0.5) // 5)
    centres = np.column_stack((rng.uniform(0, 100, count), rng.uniform(-50, 50, count)))
    return np.asarray(centres[rng.integers(0, count, nodes)] + rng.normal(0, 5, (nodes, 2)), dtype=np.float64)


def instance(
    points: Floats,
    seed: int = 0,
    level: int = 10,
    *,
    matrix_ms: Floats = NO_MATRIX,
    most_tps: int = 75,
    unlimited: bool = False,
) -> JoinProblem:
    """The published instance over these nodes. With higher rates, capacities grow by the same factor."""
    rng = np.random.default_rng(seed)
    nodes = len(points)
    sources = int(SOURCES * nodes) // 2 * 2
    tps = rates(sources, rng, most_tps)
    capacity = capacities(nodes, sources, level, rng) * ((most_tps + 1) / (2 * MEAN_TPS))
    rows = np.arange(sources, dtype=np.int32)
    return JoinProblem(
        points, np.zeros(nodes), np.full(nodes, UNLIMITED) if unlimited else capacity, rows + 1, tps,
        rows[::2].copy(), rows[1::2].copy(), np.zeros(sources // 2, dtype=np.int32), matrix_ms,
    )  # fmt: skip


def crossed(points: Floats, seed: int = 0, level: int = 10) -> JoinProblem:
    """Two sources on the left, each joined with all on the right: joins at one node share what arrives there.

    The first node is the sink; about a third of the nodes are sources.
    """
    rng = np.random.default_rng(seed)
    nodes = len(points)
    right = max(2, nodes // 3 - 2)
    sources = 2 + right
    tps = rates(sources, rng)
    i, j = np.divmod(np.arange(2 * right, dtype=np.int32), np.int32(right))
    return JoinProblem(
        points, np.zeros(nodes), capacities(nodes, sources, level, rng), np.arange(1, sources + 1, dtype=np.int32), tps,
        i.astype(np.int32), (2 + j).astype(np.int32), np.zeros(2 * right, dtype=np.int32),
    )  # fmt: skip
