"""`sensors`: readings of the weather by region. Producers are sensors; together they go round all regions.

Each quantity swings around its mean with a period of its own, shifted by region, with a little noise; wind has storms.
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

_QUANTITIES: dict[str, tuple[float, float, float, float]] = {
    "temperature": (12, 9, 1.0, 0.3),
    "humidity": (60, 25, 1.3, 2.0),
    "pressure": (1013, 12, 2.1, 0.4),
    "value": (50, 40, 1.0, 2.0),
}
"""Mean, swing, length of its period in periods of the stream, noise."""
GIVES = {"id": "name", "sensor": "name", "region": "name", "station": "name", "wind": "number"} | dict.fromkeys(
    _QUANTITIES, "number"
)


class Weather:
    """The model."""

    def __init__(self, stream: Stream) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        names = options.words("region_names")
        count = len(names) or options.whole("regions", 6, least=1)
        prefix = "station" if "station" in stream.schema and "region" not in stream.schema else "region"
        self._names = pa.array(names or [f"{prefix}-{i + 1}" for i in range(count)])
        self._regions = count
        self._period_s = (options.duration("period", 600_000) or 1) / 1000
        self._numbers = producer_numbers(stream)
        self._nodes = pa.array(stream.nodes, pa.string())
        self._wanted = [name for name in _QUANTITIES if name in stream.schema]

    def __call__(self, due: Due) -> Mapping[str, Value]:
        region = (due.producer + due.index * len(self._nodes)) % self._regions
        sensor, place = Label(due.producer, self._nodes, self._numbers), Label(region, self._names)
        known: dict[str, Value] = {"id": sensor, "sensor": sensor, "region": place, "station": place}
        for name in self._wanted:
            mean, swing, periods, noisy = _QUANTITIES[name]
            known[name] = mean + swing * self._wave(due, region, periods) + noisy * self._noise(due, name)
        known["wind"] = self._wind(due, region)
        return known

    def _wave(self, due: Due, region: noise.Int64s, periods: float) -> Floats:
        wave: Floats = np.sin(2 * np.pi * (due.elapsed_s / (self._period_s * periods) + region / self._regions))
        return wave

    def _noise(self, due: Due, name: str) -> Floats:
        return 2 * noise.uniform(due.keys, due.index, noise.key("noise", name)) - 1

    def _wind(self, due: Due, region: noise.Int64s) -> Floats:
        """A breeze, and a storm that wanders from region to region."""
        storm = np.maximum(self._wave(due, region, 1.0), 0)
        return np.maximum(5 + 20 * storm + 3 * self._noise(due, "wind"), 0)


def make(stream: Stream, surroundings: Surroundings) -> Generator:
    return Generator(stream, Weather(stream), GIVES)


KIND = SourceKind(
    make,
    (
        *OPTIONS,
        ConnectorOption(
            "regions", "number of regions, named `region-1`, ... (`station-1`, ... for a column `station`)", "6"
        ),
        ConnectorOption("region_names", "names of the regions instead, between commas"),
        ConnectorOption("period", "how long the weather takes to come back", "10 min"),
    ),
    anywhere,
)
