"""The fleet of the demo: where trains are, and which base station each of them reaches.

Positions come from the model that also generates the trains' tuples, so the map shows what the tuples say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meander.demo.line import STATIONS, STRETCH_M, Curve, base, curve
from meander.model.streams import Stream
from meander.run.connectors.noise import Floats
from meander.run.connectors.schedule import Due
from meander.run.connectors.trains import Ring

MARGIN = 0.1
"""The distance in stretches by which another base station must be nearer before a train changes to it."""
LATENCY_MS, BANDWIDTH_MBPS = 5, 50


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The fleet's view of the world: the living nodes, and the base station of each train."""

    alive: frozenset[str]
    base_of: Mapping[str, str]

    @classmethod
    def of(cls, topology: Mapping[str, Any]) -> Surveyed:
        """Reads what `GET /topology` gives."""
        alive = frozenset(node["name"] for node in topology["nodes"] if node["alive"])
        ends = [pair for link in topology["links"] for pair in ((link["a"], link["b"]), (link["b"], link["a"]))]
        return cls(alive, {one: other for one, other in ends if one.startswith("train-") and other.startswith("base-")})


@dataclass
class TrainFleet:
    """All trains of a stream."""

    stream: Stream
    line: Curve = field(default_factory=curve)

    def __post_init__(self) -> None:
        self._ring = Ring(self.stream)
        count = len(self.stream.nodes)
        self._every = np.arange(count, dtype=np.int64)
        self._keys = np.zeros(count, np.uint64)

    def stretches(self, elapsed_s: float) -> Floats:
        """The position of each train on the ring, in stretches between stations."""
        same = np.full(self._every.size, elapsed_s)
        due = Due(self._every, self._every, (same * 1000).astype(np.int64), same, self._keys)
        return np.asarray(self._ring(due)["position"], dtype=np.float64) / STRETCH_M

    def places(self, elapsed_s: float) -> dict[str, tuple[float, float]]:
        """Longitude and latitude of each train."""
        lon, lat = self.line.at(self.stretches(elapsed_s) / STATIONS)
        return {t: (float(x), float(y)) for t, x, y in zip(self.stream.nodes, lon, lat, strict=True)}

    def handovers(self, elapsed_s: float, world: Surveyed) -> list[dict[str, Any]]:
        """Events for the trains that should be linked to another base station than they are."""
        living = [i for i in range(STATIONS) if base(i) in world.alive]
        events: list[dict[str, Any]] = []
        if not living:
            return events
        for train, at in zip(self.stream.nodes, self.stretches(elapsed_s), strict=True):
            if train not in world.alive:
                continue
            now = world.base_of.get(train)
            best = min(living, key=lambda i: _away(at, i))
            if now is not None and _away(at, _number(now)) <= _away(at, best) + MARGIN:
                continue
            if now is not None:
                events.append({"event": "link_removed", "source": train, "target": now})
            events.append(
                {
                    "event": "link_added",
                    "source": train,
                    "target": base(best),
                    "latency_ms": LATENCY_MS,
                    "bandwidth_mbps": BANDWIDTH_MBPS,
                }
            )
        return events


def _away(at: float, station: int) -> float:
    """The distance round the ring, in stretches."""
    ahead = abs(at - station) % STATIONS
    return min(ahead, STATIONS - ahead)


def _number(name: str) -> int:
    return int(name.removeprefix("base-")) - 1


def trains_in(events: Sequence[Mapping[str, Any]]) -> int:
    """The number of trains that change their base station with these events."""
    return sum(e["event"] == "link_added" for e in events)
