"""Clusters with a head each: nodes are grouped softly by distance, as LEACH-SF does; shared by the clustered baselines.

The node with the most capacity near a cluster's middle leads it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARE = 0.05
"""Clusters for each node; the literature's share of heads."""
MOST = 200
ROUNDS = 25
FUZZ = 2.0
CHUNK = 20_000


def clusters(problem: JoinProblem, seed: int = 0) -> tuple[Ints, Ints]:
    """Per node its cluster's head, and all heads. Centres are fuzzy c-means over the cost space."""
    known = np.flatnonzero(~np.isnan(problem.points[:, 0]))
    points = problem.points[known]
    count = int(np.clip(round(SHARE * len(known)), 1, MOST))
    rng = np.random.default_rng(seed)
    sample = points[rng.choice(len(points), min(len(points), CHUNK), replace=False)]
    centres = sample[rng.choice(len(sample), count, replace=False)].copy()
    for _ in range(ROUNDS):
        weight = _membership(sample, centres) ** FUZZ
        centres = (weight.T @ sample) / np.maximum(weight.sum(axis=0), 1e-12)[:, None]
    nearest = np.concatenate([
        _membership(points[i : i + CHUNK], centres).argmax(axis=1) for i in range(0, len(points), CHUNK)
    ])  # fmt: skip
    head = np.full(problem.nodes, -1, dtype=np.int64)
    for cluster in np.unique(nearest):
        members = known[nearest == cluster]
        away = np.linalg.norm(problem.points[members] - centres[cluster], axis=1)
        central = members[away <= np.median(away)]
        head[members] = central[problem.capacity_tps[central].argmax()]
    return head, np.unique(head[known])


def _membership(points: Floats, centres: Floats) -> Floats:
    squared = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    inverse = 1.0 / np.maximum(squared, 1e-12) ** (1 / (FUZZ - 1))
    return np.asarray(inverse / inverse.sum(axis=1, keepdims=True), dtype=np.float64)
