"""The ground that schedules are played on: a small topology, streams, sinks, queries, and the tuples that enter.

    s0   s1   s2        sensors: cars come from s0 and s1, rain from s2
    |    |    |
    f0 - f1 - f2        fog, a ring with few slots; sink `near` is on f0
      \\  |  /
        hub             sink `middle`
         |
        cloud           sinks `one` and `two`

How many slots a node has, how wide links are and which ones lead one way only is drawn, so that room is often short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa

from meander.lang import sql
from meander.model.operators import Source
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import UNLIMITED, Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.run.frames import arrow_schema
from tests.run import reference

CARS = Schema.of(ts="bigint", id="bigint", road="string", speed="double")
RAIN = Schema.of(ts="bigint", id="bigint", road="string", mm="double")
STREAMS = {
    "cars": Stream("cars", CARS, "ts", ("s0", "s1"), rate_tps=10),
    "rain": Stream("rain", RAIN, "ts", ("s2",), rate_tps=10),
}
SINKS = {
    "one": SinkTarget("one", "cloud"),
    "two": SinkTarget("two", "cloud"),
    "middle": SinkTarget("middle", "hub"),
    "near": SinkTarget("near", "f0"),
}
SENSORS, FOGS = ("s0", "s1", "s2"), ("f0", "f1", "f2")
BETWEEN = ("g0", "g1")
MEMORIES_MB = (0.05, 0.1, 0.2, UNLIMITED)
"""An operator takes a sixteenth of a MB for running at all."""
MOVABLE = (*FOGS, "hub", "cloud", *SENSORS)
"""Nodes that operators can be pinned to."""
ROADS = ("a1", "b2", None)
FAST = "FROM cars WHERE speed > 10"
BODIES = {
    "fast": f"SELECT id, speed {FAST}",
    "kmh": f"SELECT id, speed * 2 AS kmh, road {FAST}",
    "faster": "SELECT id, speed FROM (SELECT id, speed FROM cars WHERE speed > 10) WHERE speed > 20",
    "all": "SELECT id, road FROM cars",
    "wet": "SELECT id, mm FROM rain WHERE mm > 1",
    "load": f"SELECT window_start, road, count(*) AS n, max(speed) AS v {FAST} GROUP BY road WINDOW TUMBLING(ts, 1 s)",
    "slide": "SELECT window_start, road, count(*) AS n FROM cars GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s)",
    "pairs": "SELECT a.id AS car, b.id AS rain FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 300 ms",
}
"""Queries that share sources, filters and projections with each other."""
PASSING = ("fast", "kmh", "faster", "all", "wet")
"""Those that give at most one row for each tuple, with the tuple's id."""
INTO = ("one", "two", "middle", "near", "one, two", "two, near")


@cache
def query(name: str, body: str, into: str) -> Query:
    (found,) = sql(text(body, into), STREAMS, SINKS, name).queries
    return found


def text(body: str, into: str) -> str:
    return f"{BODIES[body]} INTO {into}"


@dataclass(frozen=True)
class Ground:
    """A topology as it is when nothing is away."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    @staticmethod
    def drawn(rng: np.random.Generator) -> Ground:
        """Few slots, sometimes thin links, sometimes links that lead one way."""
        tight = rng.random() < 0.5
        slots = {
            **{s: int(rng.integers(0, 2 if tight else 3)) for s in SENSORS},
            **{f: int(rng.integers(1, 3 if tight else 5)) for f in FOGS},
            "hub": int(rng.integers(1, 4 if tight else 8)),
            "cloud": int(rng.integers(2, 8)) if tight else 40,
        }
        limit = float(rng.choice([30.0, 60.0])) if rng.random() < 0.3 else UNLIMITED
        nodes = [Node(s, NodeKind.SENSOR, slots[s], mobile=True) for s in SENSORS]
        nodes += [Node(f, NodeKind.EDGE, slots[f], limit) for f in FOGS]
        nodes += [Node("hub", NodeKind.EDGE, slots["hub"]), Node("cloud", NodeKind.CLOUD, slots["cloud"])]
        thin = rng.random() < 0.4
        links = [Link(s, f, 1) for s, f in zip(SENSORS, FOGS, strict=True)]
        links += [Link(f, FOGS[(i + 1) % 3], 1) for i, f in enumerate(FOGS) if rng.random() < 0.8]
        links += [Link(f, "hub", 2) for f in FOGS]
        links += [Link("hub", "cloud", 5)] + [Link("f1", "cloud", 20)] * int(rng.random() < 0.5)
        if thin:
            links = [replace(link, bandwidth_mbps=float(rng.choice([0.008, 0.02, 0.05]))) for link in links]
        one_way = rng.random() < 0.3
        links = [replace(link, directed=bool(one_way and rng.random() < 0.3)) for link in links]
        return Ground(tuple(nodes), tuple(links))

    @staticmethod
    def wide(rng: np.random.Generator) -> Ground:
        """As drawn, with memory that is short and two more nodes, `g0` and `g1`, between fog and cloud."""
        ground = Ground.drawn(rng)
        memory = {n: float(rng.choice(MEMORIES_MB)) for n in (*SENSORS, *FOGS, "hub")}
        nodes = [replace(n, memory_mb=memory.get(n.name, n.memory_mb)) for n in ground.nodes]
        nodes += [
            Node(g, NodeKind.EDGE, int(rng.integers(0, 4)), memory_mb=float(rng.choice(MEMORIES_MB))) for g in BETWEEN
        ]
        width = float(rng.choice([0.008, 0.02, 0.05])) if ground.is_thin else UNLIMITED
        ends = [("f1", "g0"), ("g0", "hub"), ("g0", "g1"), ("f2", "g1"), ("g1", "cloud")]
        links = [Link(a, b, float(rng.integers(1, 9)), width, directed=bool(rng.random() < 0.2)) for a, b in ends]
        return Ground(tuple(nodes), (*ground.links, *links))

    @staticmethod
    def roomy() -> Ground:
        """Everything fits everywhere, all links lead both ways."""
        nodes = [Node(s, NodeKind.SENSOR, 2, mobile=True) for s in SENSORS]
        nodes += [Node(f, NodeKind.EDGE, 8) for f in (*FOGS, "hub")] + [Node("cloud", NodeKind.CLOUD, 100)]
        links = [Link(s, f, 1) for s, f in zip(SENSORS, FOGS, strict=True)]
        links += [Link(f, FOGS[(i + 1) % 3], 1) for i, f in enumerate(FOGS)]
        links += [Link(f, "hub", 2) for f in FOGS] + [Link("hub", "cloud", 5)]
        return Ground(tuple(nodes), tuple(links))

    @property
    def is_thin(self) -> bool:
        return any(link.bandwidth_mbps < UNLIMITED for link in self.links)

    @property
    def has_little_memory(self) -> bool:
        return any(node.memory_mb < UNLIMITED for node in self.nodes)

    def topology(self) -> Topology:
        return Topology.of(self.nodes, self.links)

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    def links_of(self, name: str) -> Iterator[Link]:
        return (link for link in self.links if name in (link.source, link.target))


@dataclass
class Tuples:
    """Everything that entered, and the event time that every producer has reached. Times only go on."""

    entered: dict[tuple[str, str], list[tuple[int, int, str | None, float]]] = field(default_factory=dict)
    next_id: int = 1

    def drawn(self, rng: np.random.Generator, at_ms: int) -> Iterator[tuple[str, str, pa.Table]]:
        """A few tuples of some producers, in order, from this time on."""
        for name, stream in STREAMS.items():
            for node in stream.nodes:
                if rng.random() < 0.7:
                    yield name, node, self._made(rng, name, node, at_ms)

    def _made(self, rng: np.random.Generator, stream: str, node: str, at_ms: int) -> pa.Table:
        count = int(rng.integers(1, 4))
        times = np.sort(at_ms + rng.integers(0, 400, count)).tolist()
        rows = [
            (ts, self.next_id + i, ROADS[int(rng.integers(0, 3))], float(rng.integers(0, 40)))
            for i, ts in enumerate(times)
        ]
        self.next_id += count
        self.entered.setdefault((stream, node), []).extend(rows)
        return pa.Table.from_pylist(
            [dict(zip(STREAMS[stream].schema.names, row, strict=True)) for row in rows],
            arrow_schema(STREAMS[stream].schema),
        )

    def expected(
        self, wanted: Query, producer: tuple[str, str] | None = None
    ) -> Mapping[str, list[tuple[object, ...]]]:
        """What a query that saw every tuple gives, by sink; or every tuple of one producer."""
        plan = wanted.plan
        sources = {o: self._of(s.stream, producer) for o, s in plan.operators.items() if isinstance(s, Source)}
        found = reference.run(plan, sources)
        return {sink: [row.values for row in rows] for sink, rows in found.sinks.items()}

    def _of(self, stream: str, producer: tuple[str, str] | None) -> list[reference.Row]:
        return [
            reference.Row(row[0], -(1 << 62), row[0], row)
            for key, rows in sorted(self.entered.items())
            for row in rows
            if key[0] == stream and producer in (None, key)
        ]
