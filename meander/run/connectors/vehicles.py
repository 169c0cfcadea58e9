"""`vehicles`: vehicles on roads with congestion waves that move against the traffic. Producers are roads.

Seen from the wave, the speed depends on the place only. The time to drive through one wave is a small table; reading it
backwards gives each vehicle's place at any time; the place is the integral of the speed that is reported.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

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
    "id": "number",
    "vehicle": "number",
    "road": "name",
    "x": "number",
    "position": "number",
    "speed": "number",
    "lane": "number",
}
_START, _LANE = noise.key("start"), noise.key("lane")
_POINTS = 1025
_WAVES_PER_ROAD = 5
_WAVE_SPEED = 4.5  # m/s, against the traffic
_JAM_SHARE = 0.25
_EDGE_M = 30.0


class Roads:
    """The model: each road is a loop with a whole number of waves on it."""

    def __init__(self, stream: Stream) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self._road_m = options.number("road_m", 10_000, 100)
        self._vehicles = options.whole("vehicles", 50, least=1)
        self._lanes = options.whole("lanes", 3, least=1)
        self._free = options.number("free_speed", 33, 1)
        self._jam = options.number("jam_speed", 3, 0.1)
        self._wave_m = self._road_m / _WAVES_PER_ROAD
        self._z = np.linspace(0, self._wave_m, _POINTS)
        self._tables = [self._times(1 - 0.12 * lane / max(1, self._lanes - 1)) for lane in range(self._lanes)]
        self._numbers = producer_numbers(stream)
        self._nodes = pa.array(stream.nodes, pa.string())

    def _profile(self, z: Floats, factor: float) -> Floats:
        """The speed at a place of the wave: free, with a jam in its middle."""
        inside = np.abs(z - self._wave_m / 2) - self._wave_m * _JAM_SHARE / 2
        jam = 1 / (1 + np.exp(np.clip(inside / _EDGE_M, -50, 50)))
        return factor * self._free + (self._jam - factor * self._free) * jam

    def _times(self, factor: float) -> tuple[Floats, Floats]:
        """The speed at each point of a wave, and the time until it is reached."""
        speed = self._profile(self._z, factor)
        pace = 1 / (speed + _WAVE_SPEED)
        step = self._z[1]
        return speed, np.concatenate([[0.0], np.cumsum((pace[1:] + pace[:-1]) / 2 * step)])

    def __call__(self, due: Due) -> Mapping[str, Value]:
        vehicle = due.index % self._vehicles
        lane = noise.whole(due.keys, vehicle, _LANE, self._lanes)
        start = noise.uniform(due.keys, vehicle, _START) * self._road_m
        x, speed = np.empty(due.index.size), np.empty(due.index.size)
        for number, (speeds, times) in enumerate(self._tables):
            at = np.flatnonzero(lane == number)
            begun = np.interp(start[at] % self._wave_m, self._z, times)
            waves, rest = np.divmod(begun + due.elapsed_s[at], times[-1])
            z = np.interp(rest, times, self._z)
            behind = np.floor(start[at] / self._wave_m) * self._wave_m
            x[at] = (behind + waves * self._wave_m + z - _WAVE_SPEED * due.elapsed_s[at]) % self._road_m
            speed[at] = np.interp(z, self._z, speeds)
        number_of = self._numbers[due.producer] * 10_000 + vehicle
        return {
            "id": number_of,
            "vehicle": number_of,
            "road": Label(due.producer, self._nodes, self._numbers),
            "x": x,
            "position": x,
            "speed": speed,
            "lane": lane,
        }


def make(stream: Stream, surroundings: Surroundings) -> Generator:
    return Generator(stream, Roads(stream), GIVES)


KIND = SourceKind(
    make,
    (
        *OPTIONS,
        ConnectorOption("vehicles", "vehicles on each road; each tuple is about the next one", "50"),
        ConnectorOption("lanes", "lanes of a road, counted from 0", "3"),
        ConnectorOption("road_m", "length of a road in metres; vehicles begin again at its end", "10000"),
        ConnectorOption("free_speed", "m/s without congestion, on the first lane", "33"),
        ConnectorOption("jam_speed", "m/s inside a congestion", "3"),
    ),
    anywhere,
)
