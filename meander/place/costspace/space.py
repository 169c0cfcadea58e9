"""The cost space as everybody else sees it: a coordinate per node, whose distances estimate latencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import NodeId


@dataclass(slots=True)
class CostSpace:
    """Coordinates (nodes x dimensions) and heights in ms: latency(a, b) is about |x_a - x_b| + h_a + h_b."""

    coordinates: NDArray[np.float64]
    heights: NDArray[np.float64]
    confidence: NDArray[np.float64]
    """Per node between 0 (no idea) and 1: one minus the expected relative error."""

    def latency_ms(self, a: NodeId, b: NodeId) -> float:
        if a == b:
            return 0.0
        return float(np.linalg.norm(self.coordinates[a] - self.coordinates[b]) + self.heights[a] + self.heights[b])

    def latencies_to(self, point: NDArray[np.float64], nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Estimated latency from each node to a point without height."""
        distance: NDArray[np.float64] = np.linalg.norm(self.coordinates[nodes] - point, axis=1)
        return distance + self.heights[nodes]
