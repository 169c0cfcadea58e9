"""`trains`: a fleet on a ring line. Trains stand at stations, speed up, cruise, brake; passengers change at stations.

All stretches between stations are alike, so where a train is follows from the time by arithmetic. Producers are trains,
spread evenly over the ring.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors import noise
from meander.run.connectors.base import SourceKind, Surroundings
from meander.run.connectors.columns import Label, Value
from meander.run.connectors.generator import OPTIONS, Generator, producer_numbers
from meander.run.connectors.noise import Floats
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import anywhere
from meander.run.connectors.schedule import Due

GIVES = {
    "id": "name",
    "train": "name",
    "station": "name",
    "next_station": "name",
    "position": "number",
    "speed": "number",
    "passengers": "number",
    "lap": "number",
    "lon": "number",
    "lat": "number",
}
_PASSENGERS = noise.key("passengers")
_ACCELERATION = 1.0  # m/s²
_CENTRE = (13.39, 52.51)  # degrees
_DEGREE_M = 111_320.0


class Ring:
    """The model: stations at equal distances, every stretch driven with the same speed profile."""

    def __init__(self, stream: Stream) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        names = options.words("station_names")
        count = len(names) or options.whole("stations", 6, least=2)
        self._names = pa.array(names or [f"station-{i + 1}" for i in range(count)])
        self._stations = count
        self._stretch_m = options.number("stretch_m", 1500, 1)
        self._top = options.number("top_speed", 25, 0.1)
        self._dwell_s = (options.duration("dwell", 20_000) or 0) / 1000
        self._seats = options.whole("seats", 400, least=1)
        self._rise_s = min(self._top / _ACCELERATION, np.sqrt(self._stretch_m / _ACCELERATION))
        self._peak = self._rise_s * _ACCELERATION
        cruise_m = self._stretch_m - self._peak * self._rise_s
        self._drive_s = 2 * self._rise_s + cruise_m / self._peak
        self._leg_s = self._dwell_s + self._drive_s
        self._numbers = producer_numbers(stream)
        self._nodes = pa.array(stream.nodes, pa.string())
        self._shares = np.arange(len(stream.nodes)) / max(1, len(stream.nodes))

    def __call__(self, due: Due) -> Mapping[str, Value]:
        legs = due.elapsed_s / self._leg_s + self._shares[due.producer] * self._stations
        leg = np.floor(legs).astype(np.int64)
        driven_s = np.maximum((legs - leg) * self._leg_s - self._dwell_s, 0)
        station, train = leg % self._stations, Label(due.producer, self._nodes, self._numbers)
        position = station * self._stretch_m + self._way(driven_s)
        angle = 2 * np.pi * position / (self._stations * self._stretch_m)
        radius = self._stations * self._stretch_m / (2 * np.pi) / _DEGREE_M
        return {
            "id": train,
            "train": train,
            "station": Label(station, self._names),
            "next_station": Label((station + 1) % self._stations, self._names),
            "position": position,
            "speed": self._speed(driven_s),
            "passengers": np.floor(self._seats * self._load(due, leg)).astype(np.int64),
            "lap": leg // self._stations,
            "lon": _CENTRE[0] + radius * np.cos(angle) / np.cos(np.radians(_CENTRE[1])),
            "lat": _CENTRE[1] + radius * np.sin(angle),
        }

    def _speed(self, driven_s: Floats) -> Floats:
        """Up, level, down."""
        speed: Floats = np.minimum(np.minimum(driven_s, self._drive_s - driven_s) * _ACCELERATION, self._peak).clip(0)
        return speed

    def _way(self, driven_s: Floats) -> Floats:
        """The way since the station: the integral of the speed."""
        rise = np.minimum(driven_s, self._rise_s)
        level = np.clip(driven_s - self._rise_s, 0, self._drive_s - 2 * self._rise_s)
        left = np.clip(self._drive_s - driven_s, 0, self._rise_s)
        brake_m = _ACCELERATION / 2 * (self._rise_s**2 - left**2)
        way: Floats = _ACCELERATION / 2 * rise**2 + self._peak * level + np.where(left < self._rise_s, brake_m, 0)
        return way

    def _load(self, due: Due, leg: noise.Int64s) -> Floats:
        """The load of a train on a stretch: trains are emptier on one side of the ring."""
        side = 0.35 + 0.25 * np.sin(2 * np.pi * (leg % self._stations) / self._stations)
        load: Floats = np.clip(side + 0.4 * (noise.uniform(due.keys, leg, _PASSENGERS) - 0.5), 0, 1)
        return load


def make(stream: Stream, surroundings: Surroundings) -> Generator:
    if not stream.nodes:
        raise InputError(f"stream {stream.name!r} has no nodes; each train is a node")
    return Generator(stream, Ring(stream), GIVES)


KIND = SourceKind(
    make,
    (
        *OPTIONS,
        ConnectorOption("stations", "number of stations, named `station-1`, `station-2`, ...", "6"),
        ConnectorOption("station_names", "names of the stations instead, between commas"),
        ConnectorOption("stretch_m", "metres between two stations", "1500"),
        ConnectorOption("top_speed", "m/s", "25"),
        ConnectorOption("dwell", "how long a train stands at a station", "20 s"),
        ConnectorOption("seats", "how many passengers a train holds", "400"),
    ),
    anywhere,
)
