"""More than latency: other distances between nodes, such as energy or price, as further dimensions of the cost space.

A space of a second metric is stretched by its weight and put beside the first: the squared distance in both together is
the sum of both. A weight says how many ms one unit of the metric is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.costspace.space import CostSpace

Floats = NDArray[np.float64]


def beside(space: CostSpace, others: Sequence[tuple[CostSpace, float]]) -> CostSpace:
    """One space of all metrics. Heights, too, add up by their weights."""
    columns, heights, confidence = [space.coordinates], space.heights.copy(), space.confidence.copy()
    for other, weight in others:
        if len(other.heights) != len(space.heights):
            raise InputError(f"a metric of {len(other.heights)} nodes does not fit a space of {len(space.heights)}")
        if not weight >= 0:
            raise InputError(f"the weight of a metric must not be negative, but is {weight:g}")
        columns.append(weight * other.coordinates)
        heights += weight * other.heights
        confidence = np.minimum(confidence, other.confidence)
    return CostSpace(np.concatenate(columns, axis=1), heights, confidence, space.messages)


def per_node(space: CostSpace, price: Floats, weight: float) -> CostSpace:
    """A price of using a node, for all its neighbours alike: it counts as height, half on the way in and half out."""
    if len(price) != len(space.heights) or not (np.asarray(price) >= 0).all() or not weight >= 0:
        raise InputError("give every node a price that is not negative, and a weight that is not negative")
    heights = space.heights + weight * np.asarray(price) / 2
    return CostSpace(space.coordinates.copy(), heights, space.confidence.copy(), space.messages)
