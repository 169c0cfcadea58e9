"""The cost space as other modules see it: a coordinate per node, whose distances estimate latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.place.costspace.index import NodeIndex

Floats = NDArray[np.float64]


@dataclass(slots=True)
class CostSpace:
    """Coordinates (nodes x dimensions) and heights in ms: latency(a, b) is about |x_a - x_b| + h_a + h_b.

    Rows are node ids. A node whose place is not known has NaN coordinates and no confidence.
    """

    coordinates: Floats
    heights: Floats
    confidence: Floats
    """Per node between 0 (no idea) and 1: one minus the expected relative error."""
    messages: int = 0
    """Measurements exchanged so far to build and keep the space."""
    _index: NodeIndex | None = field(default=None, repr=False, compare=False)

    @property
    def dimensions(self) -> int:
        return int(self.coordinates.shape[1])

    def knows(self, node: NodeId) -> bool:
        """Whether the node has a place."""
        return node < len(self.heights) and not np.isnan(self.coordinates[node, 0])

    def latency_ms(self, a: NodeId, b: NodeId) -> float:
        if a == b:
            return 0.0
        return float(np.linalg.norm(self.coordinates[a] - self.coordinates[b]) + self.heights[a] + self.heights[b])

    def near(self, point: Floats) -> Iterator[NDArray[np.int64]]:
        """All known nodes in chunks of growing size, by estimated latency to a point without height, nearest first."""
        if self._index is None:
            self._index = NodeIndex(self.coordinates, self.heights)
        return self._index.near(point)

    def put(self, node: NodeId, coordinate: Floats, height: float, confidence: float) -> None:
        """Gives one node its place, whether it is new or has moved. Nothing else changes."""
        if node >= len(self.heights):
            self._grow(node + 1)
        self.coordinates[node], self.heights[node], self.confidence[node] = coordinate, height, confidence
        if self._index is not None:
            self._index.moved(node, self.coordinates, self.heights)

    def forget(self, node: NodeId) -> None:
        """Takes a node's place away."""
        if node < len(self.heights):
            self.put(node, np.full(self.dimensions, np.nan), 0.0, 0.0)

    def _grow(self, needed: int) -> None:
        more = max(needed, 2 * len(self.heights)) - len(self.heights)
        self.coordinates = np.concatenate((self.coordinates, np.full((more, self.dimensions), np.nan)))
        self.heights = np.concatenate((self.heights, np.zeros(more)))
        self.confidence = np.concatenate((self.confidence, np.zeros(more)))
