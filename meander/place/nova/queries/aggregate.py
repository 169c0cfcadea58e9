"""Decomposable aggregates (sum, count, average, extremes) as a tree: partial results are merged on the way to the sink.

Sources are grouped bottom-up: each group of nearby sources gets a merging node with room at the weighted median of its
members and the sink; the merged results are sources of the next level, at a reduced rate, until few enough are left for
the sink. A node takes in no more than it can, so groups are as large as room allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.index import tree as trees
from meander.place.nova.index.search import nearest
from meander.place.nova.median import median

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAN_IN = 8


@dataclass(frozen=True, slots=True)
class Merge:
    """A node that merges: its inputs are sources (>= 0) or earlier merges (-1 - merge)."""

    node: int
    inputs: tuple[int, ...]
    in_tps: float
    out_tps: float


def aggregation_tree(
    points: Floats,
    capacity_tps: Floats,
    source_node: Ints,
    source_tps: Floats,
    sink: int,
    *,
    reduction: float = 0.1,
    fan_in: int = FAN_IN,
    heights: Floats | None = None,
) -> list[Merge]:
    """Merges in an order in which inputs come before readers; the last one is at the sink. `heights` are the latencies
    of nodes to where their points are."""
    if not 0 < reduction <= 1 or fan_in < 2:
        raise InputError("an aggregation sends on between 0 and 1 of what it takes in, and merges at least two inputs")
    free = np.array(capacity_tps, dtype=np.float64)
    index = trees.build(
        points, np.zeros(len(points)) if heights is None else heights, free, np.ones(len(points), dtype=bool)
    )
    merges: list[Merge] = []
    level = [(i, int(n), float(r)) for i, (n, r) in enumerate(zip(source_node, source_tps, strict=True))]
    while len(level) > fan_in or sum(rate for _, _, rate in level) > free[sink]:
        above = []
        waiting = _groups(level, points, fan_in, float(free.max()))
        while waiting:
            group = waiting.pop()
            rate = sum(r for _, _, r in group)
            place = median(np.array([points[n] for _, n, _ in group] + [points[sink]]))
            node, _ = nearest(index, place, rate)
            if node < 0:
                if len(group) == 1:
                    raise InputError(f"no node has room for {rate:,.0f} tuples per second to aggregate; add capacity")
                waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
                continue
            free[node] -= rate
            trees.set_free(index, node, free[node])
            merges.append(Merge(int(node), tuple(i for i, _, _ in group), rate, reduction * rate))
            above.append((-len(merges), int(node), reduction * rate))
        if len(above) >= len(level):
            raise InputError("nodes are too small to merge anything; add capacity near the sources")
        level = above
    merges.append(
        Merge(sink, tuple(i for i, _, _ in level), sum(r for _, _, r in level), reduction * sum(r for _, _, r in level))
    )
    return merges


def _groups(
    level: list[tuple[int, int, float]], points: Floats, fan_in: int, most_tps: float
) -> list[list[tuple[int, int, float]]]:
    """Neighbours together: cut at the middle of the widest side until a group is small enough in number and rate."""
    waiting, found = [level], []
    while waiting:
        group = waiting.pop()
        if len(group) <= 1 or (len(group) <= fan_in and sum(r for _, _, r in group) <= most_tps):
            found.append(group)
            continue
        places = np.array([points[n] for _, n, _ in group])
        order = np.argsort(places[:, int(np.ptp(places, axis=0).argmax())], kind="stable")
        middle = len(group) // 2
        waiting += [[group[i] for i in order[:middle]], [group[i] for i in order[middle:]]]
    return found
