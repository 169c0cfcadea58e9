"""Rates and capacities drawn as in the published join problems, for topologies that say nothing about them.

Rates are whole numbers between 1 and 75 with a mean of 38. Capacities are uniform, up to 50 for sources and up to 200
for the others, mixed with an exponential of the same mean, the more so the higher the level (0, 2, .. 10).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOURCES = 0.6
"""Share of the nodes that are sources."""


def rates(sources: int, rng: np.random.Generator, most_tps: int = 75) -> Floats:
    """Whole numbers from 1 to `most_tps` whose mean is the middle of that, as nearly as whole numbers can."""
    found = rng.integers(1, most_tps + 1, sources)
    wanted = (most_tps + 1) * sources // 2
    while (off := wanted - int(found.sum())) != 0:
        step = 1 if off > 0 else -1
        able = np.flatnonzero((found + step >= 1) & (found + step <= most_tps))
        found[rng.choice(able, min(abs(off), len(able)), replace=False)] += step
    return found.astype(np.float64)


def capacities(nodes: int, sources: int, level: int, rng: np.random.Generator) -> Floats:
    """Whole numbers, alike (level 0) to very unlike (level 10), with the same sum at every level."""
    highest = np.full(nodes, 200.0)
    highest[1 : sources + 1] = 50.0
    uniform = rng.uniform(1, highest)
    alpha = (level / 10) ** (1 / 1.5)
    mixed = (1 - alpha) * uniform + alpha * rng.exponential((highest + 1) / 2)
    mixed = np.maximum(mixed, 1.0)
    return np.asarray(np.floor(mixed * uniform.sum() / mixed.sum()), dtype=np.float64)
