"""Pressure and humidity joined by region and window on the data plane, placed by Nova and by every baseline in turn.

Eight sources, four regions, workers of very different capacity in the plane. One query runs throughout: from one way of
placing to the next its join is cut anew while tuples flow, and in the end all results are compared with the oracle of
the join as it was written. Latencies of paths and capacities of nodes are emulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from meander.deploy.fragments import Channel
from meander.lab.embedded import MOST_CHECKED_ROWS, check_results
from meander.lab.pacing import PacedExchange
from meander.lang import sql
from meander.model.errors import InputError
from meander.model.ids import FragmentId, NodeId
from meander.model.operators import WindowJoin
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology import Link, Node, NodeKind, Topology
from meander.place.catalog import Catalog
from meander.place.costspace.space import CostSpace
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.nova.baselines import BASELINES
from meander.place.nova.baselines.base import loads
from meander.place.nova.baselines.clusters import clusters
from meander.place.nova.baselines.spanning import path_up, spanning_parents
from meander.place.nova.place import place
from meander.place.nova.problem import JoinProblem
from meander.place.nova.query import pairs_of_query, parts_of, problem_of_query, whole_parts
from meander.place.nova.settings import Settings
from meander.place.nova.shape import shape_of
from meander.place.nova.wiring import Part, Wiring
from meander.run.comparison import Comparison
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import Surroundings
from meander.run.connectors.latency import Percentiles
from meander.run.host import Host, HostOptions
from meander.run.paths import Paths
from meander.run.recording import RecordedSink, Recording
from meander.serve.loop import Loop
from meander.serve.parting import Parting

Floats = NDArray[np.float64]
REGIONS = 4
WINDOW_MS = 2
SETTLE_S = 60.0
SINK = "base"
QUERY = f"""CREATE QUERY weather AS SELECT p.region, p.pressure, h.humidity FROM pressure AS p JOIN humidity AS h
ON p.region = h.region WINDOW TUMBLING({WINDOW_MS} ms) INTO results;"""


@dataclass(frozen=True, slots=True)
class World:
    """Where everything is."""

    topology: Topology
    streams: dict[str, Stream]
    sinks: dict[str, SinkTarget]
    points: Floats

    def query(self) -> Query:
        return next(iter(sql(QUERY, self.streams, self.sinks).queries))


def world(rate_tps: float = 1000.0, seed: int = 0) -> World:
    """Regions around the sink, each with two sources and small workers near it; large workers are far away.

    A join of one region takes in two rates. The small workers cannot take one whole, three of them can; the large ones
    take one or two; the sink takes less than one, a source next to nothing.
    """
    rng = np.random.default_rng(seed)
    nodes = [Node(SINK, NodeKind.CLOUD, 1000, 1.5 * rate_tps)]
    points = [np.zeros(2)]
    for region in range(REGIONS):
        angle = 2 * np.pi * region / REGIONS
        middle = 40 * np.array([np.cos(angle), np.sin(angle)])
        for kind in ("p", "h"):
            nodes.append(Node(f"{kind}{region + 1}", NodeKind.SENSOR, 1000, 0.1 * rate_tps))
            points.append(middle * 1.3 + rng.uniform(-8, 8, 2))
        for number in range(3):
            nodes.append(Node(f"w{region + 1}{number + 1}", NodeKind.EDGE, 1000, rng.uniform(1.2, 1.6) * rate_tps))
            points.append(middle * 0.6 + rng.uniform(-10, 10, 2))
        nodes.append(Node(f"big{region + 1}", NodeKind.EDGE, 1000, rng.uniform(2.1, 4.5) * rate_tps))
        points.append(middle * 3 + rng.uniform(-10, 10, 2))
    placed = np.array(points)
    away = np.linalg.norm(placed[:, None] - placed[None], axis=2)
    links = [
        Link(nodes[i].name, nodes[j].name, float(away[i, j]))
        for i in range(len(nodes))
        for j in range(i + 1, len(nodes))
    ]
    options = {"connector": "sensors", "regions": str(REGIONS)}
    streams = {}
    for name, letter in (("pressure", "p"), ("humidity", "h")):
        producers = tuple(f"{letter}{r + 1}" for r in range(REGIONS))
        only = ", ".join(f"{n}=region-{r + 1}" for r, n in enumerate(producers))
        schema = Schema.of(ts="bigint", region="string", **{name: "double"})
        streams[name] = Stream(name, schema, "ts", producers, rate_tps, {**options, "only.region": only})
    sinks = {"results": SinkTarget("results", SINK, {"connector": "memory"})}
    return World(Topology.of(nodes, links), streams, sinks, placed)


@dataclass(frozen=True, slots=True)
class Placed:
    """What one way of placing decided: parts, and the way between two nodes where it is not the straight one."""

    name: str
    parts: tuple[Part, ...]
    overloaded: int
    """Nodes that take in more than they can, by the numbers."""
    way_ms: Callable[[int, int], float] | None = None


def ways_of_placing(problem: JoinProblem, improve_s: float = 0.5) -> list[Placed]:
    """Nova and every baseline; those that overload nobody come first."""
    joins = place(problem, Settings(improve_s=improve_s))
    if len(joins.unplaced):
        raise InputError(f"{len(joins.unplaced)} joins of the experiment fit nowhere")
    found = [Placed("nova", tuple(parts_of(joins)), len(joins.overloaded()))]
    for name, baseline in BASELINES.items():
        host = baseline(problem).host
        over = int((loads(problem, host) > problem.capacity_tps * (1 + 1e-9)).sum())
        way = {"tree": _along_tree, "cl_tree_sf": _along_heads}.get(name)
        parts = tuple(whole_parts(problem, host.tolist()))
        found.append(Placed(name, parts, over, way(problem) if way else None))
    return sorted(found, key=lambda p: (p.overloaded, p.name != "nova"))


def _along_tree(problem: JoinProblem) -> Callable[[int, int], float]:
    parents = spanning_parents(problem, np.arange(problem.nodes), int(problem.join_sink[0]))
    return lambda a, b: _length(problem, path_up(parents, a), b)


def _along_heads(problem: JoinProblem) -> Callable[[int, int], float]:
    head, heads = clusters(problem)
    sink = int(problem.join_sink[0])
    parents = spanning_parents(problem, np.union1d(heads, [sink]), sink)
    sources = set(problem.source_node.tolist())

    def way(a: int, b: int) -> float:
        path = path_up(parents, a) if a not in sources or a in heads else [a, *path_up(parents, int(head[a]))]
        return _length(problem, path, b)

    return way


def _length(problem: JoinProblem, path: Sequence[int], goal: int) -> float:
    """The latency along a path up to a node on it."""
    steps = np.array(path[: path.index(goal) + 1] if goal in path else [path[0], goal])
    return float(problem.latency_ms(steps[:-1], steps[1:]).sum())


@dataclass(frozen=True, slots=True)
class TreePaths(Paths):
    """Paths along the way that the current placement sends its tuples."""

    ways: list[Callable[[int, int], float] | None] = field(default_factory=lambda: [None])

    def delay_ms(self, channel: Channel) -> int:
        way = self.ways[0]
        if way is None or channel.path is None:
            return Paths.delay_ms(self, channel)
        return round(way(int(channel.path.nodes[0]), int(channel.path.nodes[-1])))


@dataclass(frozen=True, slots=True)
class Measured:
    """What one way of placing came to."""

    name: str
    overloaded: int
    replicas: int
    nodes: int
    results_tps: float
    """Results that arrived at the sink, per second."""
    latency: Percentiles
    switch_s: float
    """How long it took to cut the running join like this."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All ways of placing, and whether the results of the whole run were the oracle's."""

    measured: tuple[Measured, ...]
    check: Comparison | None
    drained: bool
    wanted_tps: float
    """Results per second if nobody falls behind."""


def run(
    spark: SparkSession,
    directory: Path,
    *,
    rate_tps: float,
    seconds: float,
    names: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Runs the query, placed in every way in turn (or in those named) for so many seconds each."""
    here = world(rate_tps)
    catalog = Catalog(here.topology, dict(here.streams), dict(here.sinks))
    catalog.space = CostSpace(here.points, np.zeros(len(here.points)), np.ones(len(here.points)))
    engine = Engine(catalog, mechanism("bottom_up"))
    host = Host(HostOptions(directory / "host", 1), spark)
    paced = PacedExchange(host.store)
    host.store.exchange = paced
    loop = Loop(catalog, engine, host, emulated=True)
    loop.paths = loop.reconfigurator.paths = TreePaths(catalog.topology, emulated=True)
    shape = shape_of(here.query(), here.streams, here.sinks)
    problem = problem_of_query(catalog, shape, pairs_of_query(shape, here.streams))
    chosen = [p for p in ways_of_placing(problem) if not names or p.name in names]
    try:
        turns = _Turns(
            spark, loop, paced, Wiring(catalog, engine.log, shape), Surroundings(directory, directory / "host")
        )
        turns.begin(chosen[0])
        found = []
        for placed in chosen:
            progress(f"on the data plane: {placed.name}")
            found.append(turns.take(placed, seconds))
        drained, check = turns.end()
    finally:
        host.stop()
        engine.close()
    return Outcome(tuple(found), check, drained, rate_tps * WINDOW_MS / 1000 * rate_tps * REGIONS)


class _Turns:
    """One running query, placed one way after the other."""

    def __init__(
        self, spark: SparkSession, loop: Loop, paced: PacedExchange, wiring: Wiring, around: Surroundings
    ) -> None:
        self.spark, self.loop, self.host, self.paced, self.around = spark, loop, loop.host, paced, around
        self.parting = Parting(loop, wiring)
        streams = loop.catalog.streams
        self.recordings = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in streams.items()}
        self.sinks: dict[str, RecordedSink] = {}

    def begin(self, first: Placed) -> None:
        self._send(first)
        self.parting.start(first.parts)
        self.host.start()
        self.loop.settle()
        self.host.warm_up()
        outlets = self.loop.outlets()
        self.sinks = {o.name: RecordedSink(sink_for(o, self.around)) for o in outlets}
        self.host.deliver(outlets, self.around, self.sinks)
        self.host.feed(self.loop.catalog.streams.values(), self.around, self.recordings)
        self._wait(lambda: self.host.totals.steps > 0)

    def take(self, placed: Placed, seconds: float) -> Measured:
        """Cuts the join this way without pacing, lets what waits pass, then measures with pacing."""
        self.paced.pace({}, {})
        started = time.monotonic()
        self._send(placed)
        applied = self.parting.apply([], placed.parts, f"placed by {placed.name}")
        self._wait(lambda: applied.ended is not None)
        switch_s = time.monotonic() - started
        self._wait(lambda: not self.parting.wiring.retired and not self.loop.deployer.has_open_changes)
        self._pause(1.0)
        self._pace()
        delivery = self.host.delivery
        assert delivery is not None
        before, start = delivery.latencies()["weather"], time.monotonic()
        self._pause(seconds)
        took = delivery.latencies()["weather"].since(before).percentiles()
        elapsed = time.monotonic() - start
        nodes = {p.node for p in placed.parts}
        parts = len(placed.parts)
        return Measured(placed.name, placed.overloaded, parts, len(nodes), took.count / elapsed, took, switch_s)

    def end(self) -> tuple[bool, Comparison | None]:
        self.paced.pace({}, {})
        drained = self.host.drain(end_streams=True, timeout_s=SETTLE_S)
        checks, _ = check_results(self.spark, self.loop.catalog, self.loop.outlets(), self.recordings, self.sinks)
        return drained, next(iter(checks.values()), None)

    def _send(self, placed: Placed) -> None:
        paths = self.loop.paths
        assert isinstance(paths, TreePaths)
        paths.ways[0] = placed.way_ms

    def _pace(self) -> None:
        """Fragments that join take in no more than their node can."""
        deployment, plan = self.loop.deployer.deployment, self.loop.catalog.plan
        capacity = self.loop.catalog.topology.nodes.capacity_tps
        node_of: dict[FragmentId, int] = {}
        for fragment in deployment.fragments.values():
            if any(isinstance(plan[o].spec, WindowJoin) for o in fragment.operators):
                node_of[fragment.id] = int(fragment.node)
        self.paced.pace(node_of, {n: float(capacity[NodeId(n)]) for n in set(node_of.values())})

    def _wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not until() and time.monotonic() < deadline:
            self._pause(0.05)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self.loop.poll()
            self.parting.poll()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))
