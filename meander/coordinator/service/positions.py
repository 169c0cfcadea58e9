"""The positions of moving things: the newest of each, published a few times a second."""

from __future__ import annotations

import time
from collections.abc import Mapping

from meander.coordinator.read_model.hub import Hub

POSITIONS_S = 0.2
"""MovingPositions go out at most so often."""


class MovingPositions:
    """Things that move on the page's map, by name."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._told = 0.0
        self.newest: dict[str, dict[str, float]] = {}

    def move(self, positions: Mapping[str, Mapping[str, float]]) -> None:
        self.newest = {**self.newest, **{name: dict(place) for name, place in positions.items()}}
        now = time.monotonic()
        if now - self._told >= POSITIONS_S:
            self._told = now
            self._hub.publish("positions", self.newest)
