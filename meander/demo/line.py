"""The ring line of the demo: a closed curve around Berlin, base stations along it, gateways, exchanges, a cloud.

Nothing here was downloaded or measured: the curve is a circle with a few waves on it, about as wide and as high as the
Ringbahn. Stations stand at equal distances on it, because the `trains` source drives equal stretches.

    train ── base station ── gateway ─┬─ exchange-1 ─┬─ cloud         sinks: alerts at the control room,
                 (a ring of 27)       └─ exchange-2 ─┴─ control              dashboard in the cloud

The way from one base station to another is long, so the fragment of a train has to move with the train.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meander.model.errors import InputError
from meander.run.connectors.noise import Floats

STATIONS = 27
GATEWAYS = 4
WEATHER = 6
CENTRE = (13.385, 52.508)
HALF = (0.100, 0.042)
"""Half of the line's width and height, in degrees."""
STRETCH_M, TOP_SPEED, DWELL_S = 700, 22, 6
"""Shorter stretches and stops than in Berlin, so that something happens every few seconds."""
UPLINK_MS, BESIDE_MS = 8, 30
"""Latency from a base station to its gateway, and to the next base station: a way round when that one is cut."""
TRAIN_TPS, WEATHER_TPS = 5, 1
_SAMPLES = 2_000


@dataclass(frozen=True)
class Curve:
    """Points of a closed curve, found by the share of its length."""

    lon: Floats
    lat: Floats
    share: Floats

    def at(self, share: Floats | float) -> tuple[Floats, Floats]:
        """Longitude and latitude; a share of 1 is the beginning again."""
        turned = np.mod(share, 1.0)
        return np.interp(turned, self.share, self.lon), np.interp(turned, self.share, self.lat)


def curve() -> Curve:
    """The line. Trains go round it clockwise, as on maps of rings the first station is in the west."""
    angle = np.pi - np.linspace(0, 2 * np.pi, _SAMPLES + 1)
    radius = 1 + 0.07 * np.cos(2 * angle + 0.5) - 0.05 * np.cos(3 * angle - 0.4) + 0.02 * np.cos(5 * angle)
    lon = CENTRE[0] + HALF[0] * radius * np.cos(angle)
    lat = CENTRE[1] + HALF[1] * radius * np.sin(angle)
    steps = np.hypot(np.diff(lon) * np.cos(np.radians(CENTRE[1])), np.diff(lat))
    way = np.concatenate([[0.0], np.cumsum(steps)])
    return Curve(lon, lat, way / way[-1])


def base(number: int) -> str:
    """The base station at a station, counted from 0 and round the ring."""
    return f"base-{number % STATIONS + 1}"


def gateway_of(number: int) -> str:
    """The gateway above a base station."""
    return f"gateway-{number % STATIONS * GATEWAYS // STATIONS + 1}"


def first_bases(trains: int) -> list[int]:
    """The first positions of trains: evenly spread, each linked to the station that is nearest, or nearly so."""
    return [round(i * STATIONS / trains) % STATIONS for i in range(trains)]


def regions(trains: int, count: int) -> dict[str, list[str]]:
    """The line in so many parts: base stations, with the weather stations and trains that begin there."""
    if not 1 <= count <= STATIONS:
        raise InputError(f"the line can be cut into 1 to {STATIONS} parts, not {count}")
    found: dict[str, list[str]] = {f"region-{k + 1}": [] for k in range(count)}
    places = [(i, base(i)) for i in range(STATIONS)]
    places += [(_weather_at(i) % STATIONS, f"weather-{i + 1}") for i in range(WEATHER)]
    places += [(at, f"train-{i + 1}") for i, at in enumerate(first_bases(trains))]
    for station, node in places:
        found[f"region-{station * count // STATIONS + 1}"].append(node)
    return found


def topology(trains: int) -> str:
    """The topology file of the demo."""
    return "\n".join(_lines(trains)) + "\n"


def _lines(trains: int) -> Iterator[str]:
    line = curve()
    yield "# The ring line of `meander demo`, generated: trains report, everything else computes."
    yield "nodes:"
    yield _node("cloud", "cloud", 128, CENTRE)
    yield _node("control", "edge", 32, (CENTRE[0], CENTRE[1] - 0.3 * HALF[1]))
    for i, side in enumerate((-1, 1)):
        yield _node(f"exchange-{i + 1}", "edge", 64, (CENTRE[0] + side * 0.24 * HALF[0], CENTRE[1] - 0.06 * HALF[1]))
    for i in range(GATEWAYS):
        yield _node(f"gateway-{i + 1}", "edge", 32, _inner(line, (i + 0.5) / GATEWAYS, 0.55))
    for i in range(STATIONS):
        yield _node(base(i), "edge", 16, _point(line, i / STATIONS))
    for i in range(WEATHER):
        yield _node(f"weather-{i + 1}", "sensor", 1, _inner(line, _weather_at(i) / STATIONS, 1.18))
    for i in range(trains):
        yield f"  - {{name: train-{i + 1}, kind: sensor, slots: 0, mobile: true}}"
    yield "links:"
    for i in range(GATEWAYS):
        yield _link(f"gateway-{i + 1}", "exchange-1", 2, 1000)
        yield _link(f"gateway-{i + 1}", "exchange-2", 4, 1000)
    for i in range(2):
        yield _link(f"exchange-{i + 1}", "cloud", 8, 1000)
        yield _link(f"exchange-{i + 1}", "control", 2 + i, 1000)
    for i in range(STATIONS):
        yield _link(base(i), gateway_of(i), UPLINK_MS, 500)
        yield _link(base(i), base(i + 1), BESIDE_MS, 500)
    for i in range(WEATHER):
        yield _link(f"weather-{i + 1}", base(_weather_at(i)), 4, 10)
    for i, at in enumerate(first_bases(trains)):
        yield _link(f"train-{i + 1}", base(at), 5, 50)
    names = ",".join(base(i) for i in range(STATIONS))
    yield "streams:"
    yield from _stream(
        "train",
        "ts timestamp, id bigint, station string, speed double, passengers int",
        "train-*",
        TRAIN_TPS,
        {
            "connector": "trains",
            "station_names": names,
            "stretch_m": STRETCH_M,
            "top_speed": TOP_SPEED,
            "dwell": f"{DWELL_S} s",
        },
    )
    yield from _stream(
        "weather",
        "ts timestamp, station string, temperature double, wind double",
        "weather-*",
        WEATHER_TPS,
        {"connector": "sensors", "region_names": names, "period": "2 min"},
    )
    yield "sinks:"
    yield "  - {name: alerts, node: control}"
    yield "  - {name: dashboard, node: cloud}"


def _weather_at(number: int) -> int:
    return 2 + number * STATIONS // WEATHER


def _point(line: Curve, share: float) -> tuple[float, float]:
    lon, lat = line.at(share)
    return float(lon), float(lat)


def _inner(line: Curve, share: float, depth: float) -> tuple[float, float]:
    """A point between the centre (0) and the line (1), or beyond."""
    lon, lat = _point(line, share)
    return CENTRE[0] + depth * (lon - CENTRE[0]), CENTRE[1] + depth * (lat - CENTRE[1])


def _node(name: str, kind: str, slots: int, at: tuple[float, float]) -> str:
    return f"  - {{name: {name}, kind: {kind}, slots: {slots}, lon: {at[0]:.5f}, lat: {at[1]:.5f}}}"


def _link(source: str, target: str, latency_ms: float, bandwidth_mbps: float) -> str:
    return f"  - {{source: {source}, target: {target}, latency_ms: {latency_ms:g}, bandwidth_mbps: {bandwidth_mbps:g}}}"


def _stream(name: str, schema: str, nodes: str, rate_tps: float, options: dict[str, object]) -> Iterator[str]:
    yield f"  - name: {name}"
    yield f'    schema: "{schema}"'
    yield f"    nodes: {nodes}"
    yield f"    rate_tps: {rate_tps:g}"
    yield "    options:"
    for key, value in options.items():
        yield f'      {key}: "{value}"'
