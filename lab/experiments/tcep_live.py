"""Congestion queries that really run, for measuring transitions: a host, live vehicles, and when results arrive.

Every query has a road of its own, with 18 streams and 43 operators; all roads have the same vehicles, units and fog
nodes. Section 1 is always jammed and section 2 always clear, so that results come all the time.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lab.workloads import tcep as road
from meander.adapt.decisions import Transition
from meander.adapt.per_query import PerQuery, place_again
from meander.coordinator.adaptation.transition_costs import Cost
from meander.coordinator.adaptation.transition_predictor import TransitionPace
from meander.coordinator.adaptation.transitions import Transitions
from meander.coordinator.loop.loop import PlacementLoop
from meander.local.recorded_run import MOST_CHECKED_ROWS, check_results
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import QueryId
from meander.model.plan import Query
from meander.model.streams import Stream
from meander.model.topology.elements import NodeKind
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.connectors import source_for
from meander.run.connectors.base import SinkBinding, SinkConnector, SourcePosition, Surroundings
from meander.run.connectors.memory import MemorySink
from meander.run.host import Host, HostOptions
from meander.run.oracle.recording import RecordedSink, Recording

ROOM = {NodeKind.EDGE: 120, NodeKind.CLOUD: 1_000}
"""Slots for ten queries where one has room on the published road."""
WAIT_S = 0.01
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The scene: number of queries, length of their windows, and the mechanisms between which they switch."""

    queries: int = 10
    window_ms: int = 1_000
    within_ms: int = 5_000
    source: str = "mdcep"
    target: str = "relaxation"
    slots: int = 1
    slower: float = 1.0
    """So many times less bandwidth than the links of the road have."""

    def roads(self) -> list[str]:
        return [f"r{number}_" for number in range(1, self.queries + 1)]

    def wanted(self) -> list[Query]:
        window, within = f"{self.window_ms} ms", f"{self.within_ms} ms"
        return [road.query("congestion", r, road=r, window=window, within=within) for r in self.roads()]

    def streams(self) -> dict[str, Stream]:
        """Every vehicle tells its speed once a window."""
        found: dict[str, Stream] = {}
        for name in self.roads():
            for stream in road.streams(1_000 / self.window_ms, name).values():
                found[stream.name] = replace(stream, options=_traffic(stream.name.removeprefix(name)))
        return found


def _traffic(stream: str) -> dict[str, str]:
    jammed = "_1" in stream.removeprefix("speed").removeprefix("density")[:2]
    speed, density = ("5..35", "50..70") if jammed else ("75..110", "5..20")
    ranges = {"range.vehicle": "1..99", "range.section": "1..2", "range.lane": "0..2", "range.position": "0..9000"}
    chosen = {**ranges, "range.speed": speed} if stream.startswith("speed") else {"range.section": "1..2"}
    if stream.startswith("density"):
        chosen["range.density"] = density
    return {"connector": "random", **chosen}


class TimedSink:
    """A sink that notes when how many rows came."""

    fixed_ranges = False

    def __init__(self, inner: SinkConnector) -> None:
        self.inner = inner
        self.times: list[float] = []
        self.rows: list[int] = []

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.inner.open(binding, schema, position)

    def write(self, table: pa.Table, first: int) -> Any:
        if len(table):
            self.times.append(time.perf_counter())
            self.rows.append(len(table))
        return self.inner.write(table, first)

    def close(self) -> None:
        self.inner.close()

    def longest_gap_s(self, start: float, end: float) -> float:
        """The longest time without a result in a span, also if the gap began before it."""
        first, last = bisect.bisect_left(self.times, start), bisect.bisect_right(self.times, end)
        known = self.times[max(0, first - 1) : last + 1]
        return max((b - a for a, b in pairwise(known)), default=end - start)

    def rate(self, start: float, end: float, width_s: float) -> list[int]:
        """Results in each slice of a span."""
        found = [0] * max(1, round((end - start) / width_s))
        for at, rows in zip(self.times, self.rows, strict=True):
            place = int((at - start) / width_s)
            if at >= start and place < len(found):
                found[place] += rows
        return found


@dataclass(frozen=True)
class SwitchedQueries:
    """All queries switched by one protocol."""

    protocol: str
    started: float
    """By the clock of `time.perf_counter`, as `ended`: when the last effect of the last transition was there."""
    ended: float
    costs: tuple[Cost, ...]
    failures: tuple[str, ...]
    longest_gap_s: float
    """The longest time in which a query gave nothing."""
    predicted_s: float = 0.0
    """The longest that one of them was predicted to take."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def waiting_s(self) -> float:
        """The longest that a query had nothing left to do but to wait for windows that had begun."""
        return max(c.waiting_s for c in self.costs)

    @property
    def windows_s(self) -> float:
        """The longest time that a query had to wait for windows that had begun."""
        return max(c.windows_s for c in self.costs)


@dataclass
class LiveStage:
    """The running queries."""

    scene: Scene
    loop: PlacementLoop
    sinks: dict[str, TimedSink]
    kept: dict[str, RecordedSink]
    recordings: dict[str, Recording]
    sink_bindings: list[SinkBinding]
    pace: TransitionPace = field(default_factory=TransitionPace)
    """Figures that predictions learned from earlier transitions."""
    quiet: list[tuple[float, float]] = field(default_factory=list)
    """Spans in which nothing changed."""

    def rest(self, seconds: float) -> None:
        """Lets time pass while nothing changes."""
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            self._carry_on()
        self.quiet.append((started, time.perf_counter()))

    def _carry_on(self) -> None:
        seen = self.loop.host.store.changes
        self.loop.poll()
        self.loop.host.store.wait(seen, WAIT_S)

    def switch(self, protocol: str, *, back: bool = False) -> SwitchedQueries:
        """All queries switch at the same time."""
        ends = (self.scene.source, self.scene.target)
        source, target = reversed(ends) if back else ends
        transitions = Transitions(self.loop, protocol)
        transitions.predictor.pace = self.pace
        queries = [query.id for query in self.scene.wanted()]  # reading their texts is no part of a transition
        started = time.perf_counter()
        arrived: dict[QueryId, float] = {}
        failures: list[str] = []
        predicted: list[float] = []
        with transitions.together():
            for query in queries:
                transitions.start(Transition(query, source, target, {}, 0))
        while transitions.under_way and time.perf_counter() - started < TIMEOUT_S:
            self._carry_on()
            for query, outcome in transitions.poll().items():
                arrived[query] = time.perf_counter()
                failures += [] if outcome.done else [outcome.reason]
                if outcome.took.get("predicted"):
                    predicted.append(outcome.took["predicted"]["seconds"])
        failures += [f"query {q} is still in its transition" for q in transitions.under_way]
        ended = max(arrived.values(), default=time.perf_counter())
        gap = max(self.sinks[o.name].longest_gap_s(started, ended) for o in self.sink_bindings)
        costs = tuple(transitions.costs[q] for q in arrived)
        return SwitchedQueries(protocol, started, ended, costs, tuple(failures), gap, max(predicted, default=0.0))

    def quiet_gap_s(self) -> float:
        """The longest time in which a query gave nothing while nothing changed."""
        return max(self.sinks[o.name].longest_gap_s(a, b) for a, b in self.quiet for o in self.sink_bindings)

    def rate(self, start: float, end: float, width_s: float) -> list[int]:
        """Results of all queries in each slice of a span."""
        each = [self.sinks[o.name].rate(start, end, width_s) for o in self.sink_bindings]
        return [sum(column) for column in zip(*each, strict=True)]

    def check(self, spark: SparkSession) -> tuple[int, int]:
        """Drains, and compares with the oracle: results that are lost, and double ones."""
        host = self.loop.host
        if not host.drain(end_streams=True, timeout_s=120.0):
            raise InputError("the queries could not be drained within 2 minutes; is something paused?")
        found, why = check_results(spark, self.loop.catalog, self.sink_bindings, self.recordings, self.kept)
        if why is not None:
            raise InputError(f"the results could not be compared with the oracle: {why}")
        return sum(c.lost for c in found.values()), sum(c.double for c in found.values())


@contextmanager
def on_stage(spark: SparkSession, scene: Scene, directory: Path, emulated: bool = True) -> Iterator[LiveStage]:
    """Starts the queries with the first mechanism, and stops them in the end."""
    catalog = Catalog(road.topology(ROOM, scene.slower), scene.streams(), dict(road.SINKS), rules=0)
    library = {name: mechanism(name) for name in dict.fromkeys((scene.source, scene.target, "bottom_up"))}
    engine = Engine(catalog, PerQuery(library, scene.source))
    host = Host(HostOptions(directory / "host", scene.slots), spark)
    loop = PlacementLoop(catalog, engine, host, emulated=emulated)
    around = Surroundings(directory, directory / "work")
    try:
        loop.apply([QueryAdded(0, query) for query in scene.wanted()])
        for query in scene.wanted():
            report = place_again(engine, query.id, scene.source)
            loop.follow((), report, loop.clock())
        if loop.waiting():
            operator, reason = next(iter(loop.waiting().items()))
            raise InputError(f"operator {operator} could not be placed: {reason}")
        host.start()
        loop.settle()
        host.warm_up()
        sink_bindings = loop.sink_bindings()
        kept = {o.name: RecordedSink(MemorySink()) for o in sink_bindings}
        sinks = {name: TimedSink(sink) for name, sink in kept.items()}
        recordings = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in catalog.streams.items()}
        host.deliver(sink_bindings, around, sinks)
        host.feeding.begin(catalog.streams.values(), around, recordings)
        stage = LiveStage(scene, loop, sinks, kept, recordings, list(sink_bindings))
        _wait_for_results(stage)
        yield stage
    finally:
        host.stop()
        engine.close()


def _wait_for_results(stage: LiveStage) -> None:
    deadline = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < deadline and not all(s.times for s in stage.sinks.values()):
        stage._carry_on()
    if not all(s.times for s in stage.sinks.values()):
        raise InputError(f"not every query gave a result within {TIMEOUT_S:.0f} s")
