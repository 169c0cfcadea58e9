"""Does a change take the same time among a hundred thousand queries, and among a million nodes?

Every measured change is the same: a query that adds three operators to two that run already, or its removal, or a
sensor that changes its edge. Only what surrounds it grows. Sizes take turns, batch by batch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lab.bench.report import Figure
from lab.workloads.isqp import Sites, tails
from lab.workloads.nes_queries import SCHEMA
from meander.local.process_memory import resident_mb
from meander.local.topologies import TopologyShape, iot_lab
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.ids import NodeId, QueryId
from meander.model.plan import Query
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, NodeKind
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

QUERIES = (1_000, 10_000, 100_000)
NODES = (1_000, 100_000, 1_000_000)
MOST_RATIO = 1.5
BATCH, ROUNDS = 8, 4
PRODUCING = 640
"""Sensors that queries read, in a topology of any size."""
NOTES = (
    "scale: every measured change adds or removes three operators, or moves one sensor to another edge",
    "scale: memory is what the process grew by while the world was built",
)

Progress = Callable[[str], None]


def figures(quick: bool, progress: Progress) -> list[Figure]:
    repeats = 12 if quick else 60
    return _queries(repeats, 1_000 if quick else 10_000, progress) + _nodes(repeats, progress)


@dataclass(slots=True)
class RunningWorld:
    """A running world, with the next number of a query to add."""

    engine: Engine
    shape: Sites
    mb: float
    next: int


def many_queries(count: int, distinct: int) -> RunningWorld:
    """So many queries, of which at most `distinct` differ: users who ask the same share all but their sinks."""
    gc.collect()
    shape = Sites()
    before = resident_mb()
    engine = Engine(shape.catalog(), mechanism("bottom_up"))
    plans = tails(min(count, distinct), shape)
    copies = count // len(plans)
    for query in plans:
        events = [QueryAdded(0, Query(QueryId(f"{query.id}-{copy}"), query.plan)) for copy in range(copies)]
        engine.run(events)
    return RunningWorld(engine, shape, resident_mb() - before, count)


def many_nodes(count: int) -> RunningWorld:
    """A topology of so many nodes, alike everywhere, with a thousand queries on some of its sensors."""
    gc.collect()
    before = resident_mb()
    lab = iot_lab(
        count // 100,
        count // 50,
        count - 3 * (count // 100),
        edges_per_sensor=2,
        clouds_per_edge=3,
        shape=TopologyShape(seed=7),
    )
    kinds = lab.nodes.kind[: lab.nodes.count]
    sensors = np.flatnonzero(kinds == NodeKind.SENSOR)
    chosen = sensors[:: max(len(sensors) // PRODUCING, 1)][:PRODUCING]
    streams, sinks = {}, {}
    for i, sensor in enumerate(map(int, chosen)):
        edge = lab.neighbours(NodeId(sensor))[0]
        cloud = next(n for n in lab.neighbours(edge) if lab.nodes.kind[n] == NodeKind.CLOUD)
        name = f"stream-{i}-0"
        streams[name] = Stream(name, SCHEMA, "time1", (lab.name(NodeId(sensor)),), rate_tps=100.0)
        sinks[f"sink-{i}"] = SinkTarget(f"sink-{i}", lab.name(cloud))
    engine = Engine(Catalog(lab, streams, sinks), mechanism("bottom_up"))
    mb = resident_mb() - before
    shape = Sites(sites=len(chosen), sensors=1, clouds=len(chosen))
    world = RunningWorld(engine, shape, mb, 0)
    for query in fresh_tails(world, 1_000):
        engine.run([QueryAdded(0, query)])
    return world


def fresh_tails(world: RunningWorld, count: int) -> list[Query]:
    """Fresh queries; in a world with a sink near every sensor they deliver there."""
    found = tails(count, world.shape, first=world.next, near=world.shape.sensors == 1)
    world.next += count
    return found


def _queries(repeats: int, distinct: int, progress: Progress) -> list[Figure]:
    worlds = {}
    for count in QUERIES:
        progress(f"scale: {count:,} queries running")
        worlds[count] = many_queries(count, distinct)
    took = change_queries(worlds, repeats)
    largest = worlds[QUERIES[-1]]
    return [
        *(Figure.of(f"scale: query change among {n:,} queries", "us", took[n]) for n in QUERIES),
        _ratio("scale: query change, most to fewest queries", took, QUERIES),
        Figure.of(f"scale: memory per query, {QUERIES[-1]:,} queries", "bytes", [largest.mb * 2**20 / QUERIES[-1]]),
    ]


def _nodes(repeats: int, progress: Progress) -> list[Figure]:
    worlds = {}
    for count in NODES:
        progress(f"scale: {count:,} nodes")
        worlds[count] = many_nodes(count)
    took = change_queries(worlds, repeats)
    moved = move_sensors(worlds, repeats)
    largest = worlds[NODES[-1]]
    return [
        *(Figure.of(f"scale: query change among {n:,} nodes", "us", took[n]) for n in NODES),
        _ratio("scale: query change, most to fewest nodes", took, NODES),
        *(Figure.of(f"scale: move of a sensor among {n:,} nodes", "us", moved[n]) for n in NODES),
        _ratio("scale: move of a sensor, most to fewest nodes", moved, NODES),
        Figure.of(f"scale: memory per node, {NODES[-1]:,} nodes", "bytes", [largest.mb * 2**20 / NODES[-1]]),
    ]


def _ratio(name: str, took: dict[int, list[float]], sizes: tuple[int, ...]) -> Figure:
    pairs = zip(took[sizes[0]], took[sizes[-1]], strict=True)
    return Figure.of(name, "ratio", [last / first for first, last in pairs], MOST_RATIO)


def change_queries(worlds: dict[int, RunningWorld], repeats: int) -> dict[int, list[float]]:
    """Microseconds per change, for each size and repeat: a few batches of additions and their removals."""
    took: dict[int, list[float]] = {n: [] for n in worlds}
    for repeat in range(repeats + 1):
        for size, world in worlds.items():
            spent = 0.0
            for _ in range(ROUNDS):
                queries = fresh_tails(world, BATCH)
                for query in queries:
                    world.engine.applicator.preparation.prepare(query)
                spent += world.engine.run([QueryAdded(0, q) for q in queries]).total_s
                spent += world.engine.run([QueryRemoved(0, q.id) for q in queries]).total_s
            if repeat:
                took[size].append(spent / (2 * ROUNDS * BATCH) * 1e6)
    return took


def move_sensors(worlds: dict[int, RunningWorld], repeats: int) -> dict[int, list[float]]:
    """Microseconds per move: a sensor with queries loses the link to its first edge, and gets it back."""
    took: dict[int, list[float]] = {n: [] for n in worlds}
    for repeat in range(repeats + 1):
        for size, world in worlds.items():
            topology = world.engine.catalog.topology
            away: list[ChangeEvent] = []
            back: list[ChangeEvent] = []
            for i in range(BATCH):
                stream = world.engine.catalog.streams[f"stream-{(repeat * BATCH + i) % world.shape.sites}-0"]
                sensor = topology.id(stream.nodes[0])
                edge = topology.neighbours(sensor)[-1]
                arc = topology.adjacency.between(sensor, edge)
                assert arc is not None
                link = Link(topology.name(sensor), topology.name(edge), float(topology.arcs.latency_ms[arc]))
                away.append(LinkRemoved(0, link.source, link.target))
                back.append(LinkAdded(0, link))
            spent = world.engine.run(away).total_s + world.engine.run(back).total_s
            if repeat:
                took[size].append(spent / (2 * BATCH) * 1e6)
    return took
