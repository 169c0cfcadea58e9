"""Nearest nodes in the cost space: a k-d tree, and a short list of nodes that moved after it was built.

A node's height adds to its latency, and distance + height is no distance a tree can search by. But it is never less
than the distance with the height as one more dimension. So the tree is searched by that, and nodes are handed out as
soon as no node further out can be closer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_CHUNK = 32
GROWTH = 4


class NodeIndex:
    """Answers "which nodes are nearest to this point" while nodes move. Built again when many have moved."""

    def __init__(self, coordinates: Floats, heights: Floats) -> None:
        self._build(coordinates, heights)

    def _build(self, coordinates: Floats, heights: Floats) -> None:
        from scipy.spatial import cKDTree

        self._coordinates, self._heights = coordinates, heights
        self._ids: Ints = np.flatnonzero(~np.isnan(coordinates[:, 0])).astype(np.int64)
        raised = np.column_stack((coordinates[self._ids], heights[self._ids]))
        self._tree = cKDTree(raised, copy_data=True) if len(self._ids) else None
        self._moved: dict[int, None] = {}
        self._most_moved = max(64, int(len(self._ids) ** 0.5))

    def moved(self, node: int, coordinates: Floats, heights: Floats) -> None:
        """Takes note of a node's new place; the arrays may have been replaced by longer ones."""
        self._coordinates, self._heights = coordinates, heights
        self._moved[node] = None
        if len(self._moved) > self._most_moved:
            self._build(coordinates, heights)

    def near(self, point: Floats) -> Iterator[Ints]:
        """All nodes, nearest first, in chunks. The first chunk costs a search of the tree, not a scan of all nodes."""
        moved = np.fromiter(self._moved, dtype=np.int64, count=len(self._moved))
        placed = moved[~np.isnan(self._coordinates[moved, 0])]
        handed, wanted = 0, FIRST_CHUNK
        ground = np.append(point, 0.0)
        while True:
            if self._tree is None or GROWTH * wanted >= len(self._ids):
                nodes, complete = self._ids, np.inf
            else:
                distance, rows = self._tree.query(ground, k=np.arange(1, wanted + 1))
                nodes, complete = self._ids[rows], float(np.asarray(distance)[-1])
            if len(moved):
                nodes = np.concatenate((nodes[~np.isin(nodes, moved)], placed))
            latency = self._latency(point, nodes)
            order = np.lexsort((nodes, latency))
            ready = nodes[order[: np.searchsorted(latency[order], complete)]]
            if len(ready) > handed:
                yield ready[handed:]
                handed = len(ready)
            if complete == np.inf:
                return
            wanted *= GROWTH

    def _latency(self, point: Floats, nodes: Ints) -> Floats:
        distance: Floats = np.linalg.norm(self._coordinates[nodes] - point, axis=1)
        return distance + self._heights[nodes]
