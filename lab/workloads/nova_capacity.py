"""Join problems in which capacity binds: the published recipe at a given load, and problems with a known solution.

The load is what all joins take in whole, as a share of what all nodes can. At a high one, whether all joins can be
placed is unknown for capacities drawn at random. So in a *planted* problem a solution comes first: joins are cut as far
as the solution cuts them, the pieces are dealt to nodes, and capacities are drawn around what each node then takes in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.local.join_draws import SOURCES, capacities, rates
from meander.place.nova.partitioning import grid
from meander.place.nova.problem import NO_MATRIX, JoinProblem

Floats = NDArray[np.float64]

LOADS = (0.4, 0.6, 0.75, 0.9)
HEAVY = 0.02
"""Share of the joins with a heavy source where rates are skewed."""
HEAVY_TPS = 1_000.0
LARGEST_TPS = 400.0
"""Capacity that planted solutions do without in a single node: a heavier join has to be cut."""
CUT = 0.04
"""Share of the lighter joins that a planted solution cuts in two."""
MOST_FULL = 0.96
"""Share of the capacity that a planted solution takes up at most, broadcast included."""


@dataclass(frozen=True, slots=True)
class PlantedProblem:
    """A problem, and what the solution that it was drawn around costs."""

    problem: JoinProblem
    replicas_per_join: float
    broadcast: float
    """The input of its replicas, as a multiple of that of the joins whole."""


def drawn_rates(sources: int, rng: np.random.Generator, *, skewed: bool) -> Floats:
    """As published; skewed, some sources send many times as much as the others."""
    tps = rates(sources, rng)
    if skewed:
        heavy = rng.choice(sources, max(1, int(HEAVY * sources / 2)), replace=False)
        tps[heavy] = np.floor(rng.uniform(0.3, 1.0, len(heavy)) * HEAVY_TPS)
    return tps


def loaded(points: Floats, load: float, seed: int = 0, level: int = 10, *, skewed: bool = False) -> JoinProblem:
    """The published instance with capacities of the given unlikeness, all scaled so that the load is as wanted."""
    rng = np.random.default_rng(seed)
    nodes = len(points)
    sources = int(SOURCES * nodes) // 2 * 2
    tps = drawn_rates(sources, rng, skewed=skewed)
    capacity = capacities(nodes, sources, level, rng)
    return _paired(points, tps, capacity * (tps.sum() / load / capacity.sum()))


def planted(
    points: Floats, load: float, seed: int = 0, *, skewed: bool = False, hosts: float = 0.5, near: bool = False
) -> PlantedProblem:
    """A problem with a known solution that uses about this share of the nodes.

    Its pieces are at nodes drawn at random or, `near`, at some of those nearest to the sink.
    """
    rng = np.random.default_rng(seed)
    nodes = len(points)
    sources = int(SOURCES * nodes) // 2 * 2
    tps = drawn_rates(sources, rng, skewed=skewed)
    pieces, count = _pieces(tps[::2], tps[1::2], load, rng)
    order = np.argsort(np.linalg.norm(points - points[0], axis=1)) if near else rng.permutation(nodes)
    used = order[: max(1, min(nodes, int(hosts * nodes)))]
    dealt = np.concatenate((rng.permutation(used), rng.choice(used, max(0, len(pieces) - len(used)))))[: len(pieces)]
    planned = np.bincount(dealt, pieces, minlength=nodes)
    room = tps.sum() / load - planned.sum()
    share = np.where(planned > 0, planned, planned.sum() / nodes) * rng.exponential(1.0, nodes)
    problem = _paired(points, tps, planned + room * share / share.sum())
    return PlantedProblem(problem, count / (sources / 2), float(pieces.sum() / tps.sum()))


def _pieces(left: Floats, right: Floats, load: float, rng: np.random.Generator) -> tuple[Floats, int]:
    """The input of each piece of the solution, and their number: cut where it must be, and some more while there is
    room."""
    spare = (MOST_FULL / load - 1) * float(left.sum() + right.sum())
    cuts = []
    for x, y in zip(left, right, strict=True):
        a, b = grid(float(x), float(y), LARGEST_TPS, 256, 256)
        cuts.append((a, b))
        spare -= (b - 1) * x + (a - 1) * y
    for i in rng.permutation(len(cuts))[: int(CUT * len(cuts))]:
        less = float(min(left[i], right[i]))
        if cuts[i] == (1, 1) and less <= spare:
            cuts[i] = (2, 1) if left[i] >= right[i] else (1, 2)
            spare -= less
    assert spare >= 0, "the solution does not fit; draw fewer heavy sources"
    sizes = [np.full(a * b, x / a + y / b) for (a, b), x, y in zip(cuts, left, right, strict=True)]
    found = np.concatenate(sizes)
    return found[np.argsort(-found)], len(found)


def _paired(points: Floats, tps: Floats, capacity: Floats) -> JoinProblem:
    """The first node is the sink; sources are paired in order."""
    rows = np.arange(len(tps), dtype=np.int32)
    return JoinProblem(
        points, np.zeros(len(points)), capacity, rows + 1, tps, rows[::2].copy(), rows[1::2].copy(),
        np.zeros(len(tps) // 2, dtype=np.int32), NO_MATRIX,
    )  # fmt: skip
