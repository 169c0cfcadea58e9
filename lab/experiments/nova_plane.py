"""Pressure and humidity joined by region and window on the data plane, placed by Nova and by every baseline in turn.

Eight sources, four regions, workers of very different capacity in the plane. One query runs throughout: from one way of
placing to the next its join is cut anew while tuples flow, and in the end all results are compared with the oracle of
the join as it was written. Latencies of paths and capacities of nodes are emulated, in virtual time: the clock goes on
by a tick, a slot makes a step, and how fast this machine is does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from lab.experiments.pacing import PacedExchange
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.nova.repartitioning import Repartitioning
from meander.deploy.fragments import Channel
from meander.lang import sql
from meander.model.errors import InputError
from meander.model.ids import ChannelId, NodeId, OperatorId
from meander.model.operators import WindowJoin
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
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
from meander.place.nova.queries.join_parts import JoinPart
from meander.place.nova.queries.question import pairs_of_query, parts_of, problem_of_query, whole_parts
from meander.place.nova.queries.shape import JoinShape, shape_of
from meander.place.nova.queries.wiring import Wiring
from meander.place.nova.settings import NovaSettings
from meander.reconfigure.emulated_paths import Paths
from meander.run.channels.base import ChannelAppend
from meander.run.connectors import source_for
from meander.run.connectors.base import Surroundings
from meander.run.delivery.latency import LatencyHistogram, Percentiles
from meander.run.frames import END, HIDDEN, NEWEST
from meander.run.host import Host, HostOptions
from meander.run.ingest.ingest import Ingest
from meander.run.oracle.batch import oracle
from meander.run.oracle.comparison import Comparison, compare
from meander.run.oracle.recording import Recording
from meander.run.store.commit import Commit

Floats = NDArray[np.float64]
REGIONS = 4
WINDOW_MS = 2
START_MS = 1_000_000
TICK_MS = 20
SETTLE_MS = 600
QUIET_TICKS = 30
"""Ticks without work after which nothing is on its way any more."""
MOST_TICKS = 3000
MOST_ROWS = 5_000_000
SINK = "base"
QUERY = f"""CREATE QUERY weather AS SELECT p.region, p.pressure, h.humidity FROM pressure AS p JOIN humidity AS h
ON p.region = h.region WINDOW TUMBLING({WINDOW_MS} ms) INTO results;"""


@dataclass(frozen=True, slots=True)
class NodePositions:
    """The positions of all nodes."""

    topology: Topology
    streams: dict[str, Stream]
    sinks: dict[str, SinkTarget]
    points: Floats

    def query(self) -> Query:
        return next(iter(sql(QUERY, self.streams, self.sinks).queries))


def world(rate_tps: float = 1000.0, seed: int = 0) -> NodePositions:
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
    return NodePositions(Topology.of(nodes, links), streams, sinks, placed)


@dataclass(frozen=True, slots=True)
class PlacingDecision:
    """A decision of one algorithm: parts, and the way between two nodes where it is not the straight one."""

    name: str
    parts: tuple[JoinPart, ...]
    overloaded: int
    """Nodes that take in more than they can, by the numbers."""
    route_ms: Callable[[int, int], float] | None = None


def ways_of_placing(problem: JoinProblem, improve_s: float = 0.5) -> list[PlacingDecision]:
    """Nova and every baseline; those without overload come first."""
    joins = place(problem, NovaSettings(improve_s=improve_s))
    if len(joins.unplaced):
        raise InputError(f"{len(joins.unplaced)} joins of the experiment fit nowhere")
    found = [PlacingDecision("nova", tuple(parts_of(joins)), len(joins.overloaded()))]
    for name, baseline in BASELINES.items():
        host = baseline(problem).host
        over = int((loads(problem, host) > problem.capacity_tps * (1 + 1e-9)).sum())
        way = {"tree": _along_tree, "cl_tree_sf": _along_heads}.get(name)
        parts = tuple(whole_parts(problem, host.tolist()))
        found.append(PlacingDecision(name, parts, over, way(problem) if way else None))
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
class MeasuredPlacing:
    """The result of one algorithm, in virtual time."""

    name: str
    overloaded: int
    replicas: int
    nodes: int
    results_tps: float
    """Results that arrived at the sink, per second."""
    latency: Percentiles
    switch_ms: int
    """The time that cutting the running join like this took."""


@dataclass(frozen=True, slots=True)
class PlaneOutcome:
    """All ways of placing, and whether the results of the whole run were the oracle's."""

    measured: tuple[MeasuredPlacing, ...]
    check: Comparison
    wanted_tps: float
    """The results per second if no node falls behind."""


def run(
    spark: SparkSession,
    directory: Path,
    *,
    rate_tps: float,
    seconds: float,
    names: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> PlaneOutcome:
    """Runs the query, placed in every way in turn (or in those named) for so many seconds of virtual time each."""
    here = world(rate_tps)
    catalog = Catalog(here.topology, dict(here.streams), dict(here.sinks))
    catalog.space = CostSpace(here.points, np.zeros(len(here.points)), np.ones(len(here.points)))
    shape = shape_of(here.query(), here.streams, here.sinks)
    problem = problem_of_query(catalog, shape, pairs_of_query(shape, here.streams))
    chosen = [p for p in ways_of_placing(problem) if not names or p.name in names]
    plane = Plane(spark, directory, catalog, shape)
    try:
        plane.begin(chosen[0])
        found = []
        for placed in chosen:
            progress(f"on the data plane: {placed.name}")
            found.append(plane.take(placed, seconds))
        progress("on the data plane: comparing all results with the oracle")
        check = plane.end()
    finally:
        plane.close()
    return PlaneOutcome(tuple(found), check, rate_tps * WINDOW_MS / 1000 * rate_tps * REGIONS)


class Plane:
    """One running query in virtual time, placed one way after the other."""

    def __init__(self, spark: SparkSession, directory: Path, catalog: Catalog, shape: JoinShape) -> None:
        self.spark, self.now_ms, self.batch, self.read_to = spark, START_MS, 0, 0
        self.engine = Engine(catalog, mechanism("bottom_up"))
        self.host = Host(HostOptions(directory / "host", 1), spark, clock=self.clock_ms)
        self.paced = PacedExchange(self.host.store, lambda: self.now_ms / 1000)
        self.host.store.exchange = self.paced
        self.loop = PlacementLoop(
            catalog, self.engine, self.host, emulated=True, background=False, clock=lambda: self.now_ms / 1000
        )
        self.ways: list[Callable[[int, int], float] | None] = [None]
        self.loop.paths = TreePaths(catalog.topology, True, {}, self.ways)
        self.loop.driver.agent.paths = self.loop.paths
        self.repartitioning = Repartitioning(self.loop, Wiring(catalog, self.engine.log, shape))
        around = Surroundings(directory, directory / "host")
        self.recordings = {n: Recording(source_for(s, around), s, MOST_ROWS) for n, s in catalog.streams.items()}
        self.ingest: Ingest | None = None
        self.latency = LatencyHistogram()
        self.results: list[pa.Table] = []

    def clock_ms(self) -> int:
        return self.now_ms

    def begin(self, first: PlacingDecision) -> None:
        self.ways[0] = first.route_ms
        self.repartitioning.start(first.parts)
        self._until(lambda: not self.loop.deployer.has_open_changes)
        self.host.warm_up()
        streams = self.loop.catalog.streams.values()
        self.ingest = Ingest(
            self.host.store, streams, self.host.feeding.channels, clock=self.clock_ms, sources=self.recordings
        )
        self.ingest.open()

    def take(self, placed: PlacingDecision, seconds: float) -> MeasuredPlacing:
        """Cuts the join this way without pacing, lets waiting tuples pass, then measures with pacing."""
        self.paced.pace({}, {})
        self.ways[0] = placed.route_ms
        started = self.now_ms
        applied = self.repartitioning.apply([], placed.parts, f"placed by {placed.name}")
        self._until(lambda: applied.ended is not None)
        switch_ms = self.now_ms - started
        self._until(lambda: not self.repartitioning.wiring.retired and not self.loop.deployer.has_open_changes)
        self.loop.driver.reroute(self.loop.deployer.deployment.channels)  # those that stayed may lead elsewhere
        self._for(SETTLE_MS)
        self._pace()
        before, start = self.latency.copy(), self.now_ms
        self._for(round(seconds * 1000))
        took = self.latency.since(before).percentiles()
        rate = took.count * 1000 / (self.now_ms - start)
        nodes = {p.node for p in placed.parts}
        return MeasuredPlacing(placed.name, placed.overloaded, len(placed.parts), len(nodes), rate, took, switch_ms)

    def end(self) -> Comparison:
        """Lets everything pass that waits, and compares."""
        self.paced.pace({}, {})
        channels = [c for readers in self.host.feeding.channels.values() for c in readers]
        self.ingest = None
        self.host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
        quiet = 0
        while quiet < QUIET_TICKS:
            quiet = 0 if self._tick() else quiet + 1
        query = next(iter(self.loop.catalog.plan.queries.values())).query
        inputs = {name: r.table() for name, r in self.recordings.items()}
        expected = next(iter(oracle(self.spark, query.plan, inputs).values()))
        return compare(expected, pa.concat_tables(self.results))

    def close(self) -> None:
        self.host.store.close()
        self.engine.close()

    def _pace(self) -> None:
        """Nodes that join take in no more of the sources' tuples than they can; results and forwarding are free."""
        plan, deployment = self.loop.catalog.plan, self.loop.deployer.deployment
        capacity = self.loop.catalog.topology.nodes.capacity_tps
        joining = {
            f.id: int(f.node)
            for f in deployment.fragments.values()
            if any(isinstance(plan[o].spec, WindowJoin) for o in f.operators)
        }
        node_of: dict[ChannelId, int] = {}
        for fragment, node in joining.items():
            installed = self.host.routing.fragments[fragment]
            for channel, operator in zip(installed.ports, installed.bound.ports, strict=True):
                if not self._is_result(operator):
                    node_of[channel] = node
        self.paced.pace(node_of, {n: float(capacity[NodeId(n)]) for n in set(node_of.values())})

    def _is_result(self, operator: OperatorId) -> bool:
        """Whether an operator hands on results of a join."""
        record = self.loop.catalog.plan[operator]
        return isinstance(record.spec, WindowJoin) or any(self._is_result(i) for i in record.inputs)

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(MOST_TICKS):
            if done():
                return
            self._tick()
        raise RuntimeError(f"nothing came of it in {MOST_TICKS * TICK_MS / 1000:g} s of virtual time")

    def _for(self, milliseconds: int) -> None:
        for _ in range(round(milliseconds / TICK_MS)):
            self._tick()

    def _tick(self) -> bool:
        """Some time goes by: sources emit, the slot makes a step, changes go on. Says whether anything waited."""
        self.now_ms += TICK_MS
        if self.ingest is not None:
            self.ingest.tick()
        busy = self.host.busy()
        if self.host.stepper.has_work(0):
            self.batch += 1
            self.host.stepper.step(0, self.batch)
        self.loop.poll()
        self.repartitioning.poll()
        self._collect()
        return busy

    def _collect(self) -> None:
        """Takes results as the sink does, and how old the newest of their inputs is."""
        sink_bindings = self.loop.sink_bindings()
        channel = sink_bindings[0].channel if sink_bindings else None
        if channel is None or channel not in self.paced.channels():
            return
        start, end = self.paced.start(channel), self.paced.end(channel)
        if end > start:
            table = self.paced.read(channel, start, end).table
            self.latency.add(self.now_ms - table.column(NEWEST).to_numpy().astype(np.int64))
            self.results.append(table.drop_columns(list(HIDDEN)))
            self.host.store.commit(Commit(consumed={channel: end}))
