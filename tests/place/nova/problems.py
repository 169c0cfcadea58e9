"""Join problems for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]


def paired(nodes: int = 60, seed: int = 0, **fields: object) -> JoinProblem:
    """Node 0 is the sink, the next 60% are sources paired in order."""
    rng = np.random.default_rng(seed)
    sources = int(0.6 * nodes) // 2 * 2
    rows = np.arange(sources, dtype=np.int32)
    columns: dict[str, object] = {
        "points": rng.uniform(0, 100, (nodes, 2)),
        "heights": rng.exponential(1.0, nodes),
        "capacity_tps": rng.uniform(20, 200, nodes),
        "source_node": rows + 1,
        "source_tps": rng.integers(1, 76, sources).astype(float),
        "join_left": rows[::2].copy(),
        "join_right": rows[1::2].copy(),
        "join_sink": np.zeros(sources // 2, dtype=np.int32),
    }
    return JoinProblem(**(columns | fields))  # type: ignore[arg-type]


def shared(seed: int = 0, left: int = 6, right: int = 3, workers: int = 30) -> JoinProblem:
    """Everything joins everything: sources are shared by many joins, and two sinks by two queries."""
    rng = np.random.default_rng(seed)
    nodes = left + right + workers + 2
    i, j = np.divmod(np.arange(left * right, dtype=np.int32), np.int32(right))
    return JoinProblem(
        rng.uniform(0, 100, (nodes, 2)), np.zeros(nodes), rng.uniform(20, 120, nodes),
        np.arange(2, 2 + left + right, dtype=np.int32), rng.integers(1, 40, left + right).astype(float),
        i.astype(np.int32), (left + j).astype(np.int32), (np.arange(left * right) % 2).astype(np.int32),
    )  # fmt: skip


def tiny(seed: int) -> JoinProblem:
    """Two or three joins over few sources, so that they share some, on three or four nodes where room is short."""
    rng = np.random.default_rng(seed)
    joins, sources, nodes = int(rng.integers(2, 4)), int(rng.integers(3, 5)), int(rng.integers(3, 5))
    pairs = np.array([rng.choice(sources, 2, replace=False) for _ in range(joins)])
    pairs[1, 0] = pairs[0, rng.integers(0, 2)]
    if pairs[1, 0] == pairs[1, 1]:
        pairs[1, 1] = (pairs[1, 0] + 1) % sources
    rates = rng.integers(4, 40, sources).astype(float)
    total = float(rates[np.unique(pairs)].sum())
    capacity = rng.uniform(0.3, 0.8, nodes) * total
    if seed % 4:  # otherwise nothing may fit
        capacity[rng.integers(0, nodes)] = total
    return JoinProblem(
        rng.uniform(0, 100, (nodes, 2)), np.zeros(nodes), capacity,
        rng.integers(0, nodes, sources).astype(np.int32), rates, pairs[:, 0].astype(np.int32),
        pairs[:, 1].astype(np.int32), rng.integers(0, nodes, joins).astype(np.int32),
    )  # fmt: skip
