"""The five queries of the TCEP evaluation as ready scenarios: streams, sinks, plans, a road, and vehicle traces.

Congestion detection, per road section: two averages over four speed streams each, which conjunctions bring together, a
conjunction of the averages, one with the section's density, and a filter; then a sequence over the two sections. With
18 sources, a projection and the sink these are 43 operators.

        cloud
       /     \\
   fog-1 --- fog-2 -- consumer      the sink, in a control room
   / | \\     / | \\
  rsu-1 - rsu-2 ... - rsu-6        road-side units; density is measured at the first and the last
   |       |            |
  vehicles (mobile), one per speed stream
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from meander.lang.fluent import DataStream, Environment, Windowing, sliding, tumbling
from meander.model.errors import unknown
from meander.model.ids import QueryId
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology

SECTIONS, AVERAGES, SPEEDS = 2, 2, 4
UNITS = 6
NAMES = ("stream", "filter", "conjunction", "join", "congestion")
SINK = "consumer"
SPEED = Schema.of(ts="bigint", vehicle="bigint", section="int", lane="int", position="double", speed="double")
DENSITY = Schema.of(ts="bigint", section="int", density="double")
SLOW_KMH, FREE_KMH, DENSE, SPARSE = 40.0, 70.0, 40.0, 25.0


def speed_stream(section: int, number: int, road: str = "") -> str:
    return f"{road}speed_{section}_{number}"


def density_stream(section: int, road: str = "") -> str:
    return f"{road}density_{section}"


def vehicle(section: int, number: int) -> str:
    return f"vehicle-{section}-{number}"


def streams(rate_tps: float = 1.0, road: str = "") -> dict[str, Stream]:
    """One speed stream per vehicle, one density stream per section; those of another road have names of their own."""
    found: dict[str, Stream] = {}
    for section in range(1, SECTIONS + 1):
        for number in range(1, AVERAGES * SPEEDS + 1):
            name = speed_stream(section, number, road)
            found[name] = Stream(name, SPEED, "ts", (vehicle(section, number),), rate_tps)
        name = density_stream(section, road)
        found[name] = Stream(name, DENSITY, "ts", (f"rsu-{1 if section == 1 else UNITS}",), rate_tps)
    return found


SINKS: Mapping[str, SinkTarget] = {SINK: SinkTarget(SINK, "consumer")}


@dataclass(frozen=True, slots=True)
class Road:
    """The streams that a query reads, and how long its windows are."""

    known: Environment
    name: str = ""
    window: str = "1 s"
    within: str = "60 s"

    def speed(self, section: int, number: int, alias: str) -> DataStream:
        return self.known.stream(speed_stream(section, number, self.name)).alias(alias)

    def density(self, section: int) -> DataStream:
        return self.known.stream(density_stream(section, self.name)).alias("d")

    @property
    def pane(self) -> Windowing:
        return tumbling(self.window)


def query(
    kind: str,
    name: str | None = None,
    demands: Sequence[str] = (),
    sink: str = SINK,
    road: str = "",
    window: str = "1 s",
    within: str = "60 s",
) -> Query:
    """One of the five, under a name; a road has streams of its own. Congestion has other windows when asked to."""
    if kind not in _BUILDERS:
        raise unknown("TCEP query", kind, _BUILDERS, "TCEP queries")
    known = Road(Environment(streams(road=road)), road, window, within)
    return _BUILDERS[kind](known).into(sink).demand(*demands).query(QueryId(name or kind))


def _stream(known: Road) -> DataStream:
    return known.speed(1, 1, "a").select("ts", "vehicle", "speed")


def _filter(known: Road) -> DataStream:
    return known.speed(1, 1, "a").where(f"speed < {SLOW_KMH}")


def _conjunction(known: Road) -> DataStream:
    both = known.speed(1, 1, "a").and_(known.speed(2, 1, "b"), window=tumbling("1 s"))
    return both.select("a.vehicle AS first", "b.vehicle AS second", "a.speed AS first_kmh", "b.speed AS second_kmh")


def _join(known: Road) -> DataStream:
    window = sliding("5 s", "1 s")
    joined = known.speed(1, 1, "a").join(known.speed(1, 2, "b"), "a.section = b.section AND b.ts > a.ts", window=window)
    return joined.select("a.vehicle AS first", "b.vehicle AS second", "b.ts - a.ts AS later_ms")


def _average(known: Road, section: int, which: int) -> DataStream:
    """The mean of four vehicles' speeds in each window."""
    aliases = "abcd"
    first = which * SPEEDS + 1
    together = known.speed(section, first, aliases[0])
    for offset in range(1, SPEEDS):
        together = together.and_(known.speed(section, first + offset, aliases[offset]), window=known.pane)
    mean = " + ".join(f"{alias}.speed" for alias in aliases)
    return together.window(known.pane).select("window_start", "window_end", f"avg(({mean}) / {SPEEDS}) AS kmh")


def _section(known: Road, section: int, condition: str) -> DataStream:
    """Speed and density of a section, when they are as the condition says."""
    left, right = (_average(known, section, which).alias(f"v{which}") for which in range(AVERAGES))
    both = left.and_(right, window=known.pane).and_(known.density(section), window=known.pane)
    return both.where(condition)


def _congestion(known: Road) -> DataStream:
    jam = _section(known, 1, f"(v0.kmh + v1.kmh) / 2 < {SLOW_KMH} AND d.density > {DENSE}").alias("jam")
    clear = _section(known, 2, f"(v0.kmh + v1.kmh) / 2 > {FREE_KMH} AND d.density < {SPARSE}").alias("clear")
    found = jam.then(clear, within=known.within)
    return found.select("jam.kmh AS slow_kmh", "clear.kmh AS free_kmh", "jam.density AS dense")


_BUILDERS = dict(zip(NAMES, (_stream, _filter, _conjunction, _join, _congestion), strict=True))


def topology(slots: Mapping[NodeKind, int] | None = None, slower: float = 1.0) -> Topology:
    """The drawing above; vehicles begin at units spread along their section. All links have so many times less
    bandwidth."""
    room = {NodeKind.SENSOR: 1, NodeKind.EDGE: 8, NodeKind.CLOUD: 200} | dict(slots or {})
    nodes = [
        Node("consumer", NodeKind.EDGE, 64, capacity_tps=600),
        Node("cloud", NodeKind.CLOUD, room[NodeKind.CLOUD], capacity_tps=20_000),
    ]
    links = [Link("consumer", "fog-2", 8.0, 50.0)]
    for fog in (1, 2):
        nodes.append(Node(f"fog-{fog}", NodeKind.EDGE, 4 * room[NodeKind.EDGE], capacity_tps=1_200))
        links.append(Link(f"fog-{fog}", "cloud", 25.0, 200.0))
    links.append(Link("fog-1", "fog-2", 4.0, 100.0))
    for unit in range(1, UNITS + 1):
        nodes.append(Node(f"rsu-{unit}", NodeKind.EDGE, room[NodeKind.EDGE], capacity_tps=160))
        links.append(Link(f"rsu-{unit}", f"fog-{1 if unit <= UNITS // 2 else 2}", 6.0, 50.0))
        if unit > 1:
            links.append(Link(f"rsu-{unit - 1}", f"rsu-{unit}", 3.0, 20.0))
    for name, begins_at in vehicles().items():
        nodes.append(Node(name, NodeKind.SENSOR, room[NodeKind.SENSOR], capacity_tps=40, mobile=True))
        links.append(Link(name, begins_at, 5.0, 5.0))
    return Topology.of(nodes, [replace(link, bandwidth_mbps=link.bandwidth_mbps / slower) for link in links])


def vehicles() -> dict[str, str]:
    """Vehicles and the unit at which each begins."""
    half, per_section = UNITS // 2, AVERAGES * SPEEDS
    return {
        vehicle(section, number): f"rsu-{(section - 1) * half + (number - 1) * half // per_section + 1}"
        for section in range(1, SECTIONS + 1)
        for number in range(1, per_section + 1)
    }


def traces(seconds: int = 60, seed: int = 0, jams: Mapping[int, tuple[int, int]] | None = None) -> dict[str, pa.Table]:
    """A second-by-second trace of every stream. `jams` says in which seconds a section is congested."""
    rng = np.random.default_rng(seed)
    jams = {1: (seconds // 4, seconds // 2)} if jams is None else jams
    time_s = np.arange(seconds)
    found: dict[str, pa.Table] = {}
    for section in range(1, SECTIONS + 1):
        start, end = jams.get(section, (0, 0))
        jammed = (time_s >= start) & (time_s < end)
        for number in range(1, AVERAGES * SPEEDS + 1):
            speed = np.where(jammed, 15.0, 95.0) + rng.normal(0, 5, seconds)
            columns = {
                "ts": pa.array(time_s * 1000 + rng.integers(0, 900), pa.int64()),
                "vehicle": pa.array(np.full(seconds, section * 100 + number), pa.int64()),
                "section": pa.array(np.full(seconds, section), pa.int32()),
                "lane": pa.array(np.full(seconds, number % 3), pa.int32()),
                "position": pa.array(np.cumsum(speed) / 3.6),
                "speed": pa.array(speed),
            }
            found[speed_stream(section, number)] = pa.table(columns)
        density = np.where(jammed, 60.0, 12.0) + rng.normal(0, 2, seconds)
        found[density_stream(section)] = pa.table(
            {
                "ts": pa.array(time_s * 1000 + 500, pa.int64()),
                "section": pa.array(np.full(seconds, section), pa.int32()),
                "density": pa.array(density),
            }
        )
    return found
