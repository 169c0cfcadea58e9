"""Ten queries over 160 sources on one host: the rate it sustains, the latency at that rate, and memory over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from pyspark.sql import SparkSession

from lab.bench.dataplane.latency import Stopwatch
from lab.bench.report import Figure
from meander.lang import sql
from meander.lang.topology.reader import TopologyFile
from meander.local.process_memory import resident_mb
from meander.local.run_plan import plan_queries
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions

SOURCES, EDGES, QUERIES = 160, 10, 10
WARM_S = 4.0
START_S = 60.0
"""The waiting time for the first result."""
FLAT = 1.1
CARS = Schema.of(ts="timestamp", id="bigint", road="string", speed="double")
RAIN = Schema.of(ts="timestamp", id="bigint", mm="double")
MAPS = "SELECT id, road, speed * 3.6 AS kmh FROM cars WHERE speed > {0} INTO out"
JOINS = """SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.id = b.id AND a.speed > {0}
  WITHIN 500 ms INTO out"""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RateOutcome:
    """One rate that was offered."""

    offered_tps: float
    processed_tps: float
    latencies_ms: tuple[float, ...]
    kept_up: bool


def measure(
    spark: SparkSession, directory: Path, rates_tps: Sequence[float], seconds: float, progress: Progress
) -> list[Figure]:
    """The highest of the offered rates at which no backlog grows, and its latency."""
    figures: list[Figure] = []
    for name, text in (("map", MAPS), ("window join", JOINS)):
        outcomes: list[RateOutcome] = []
        for rate in rates_tps:
            progress(f"{QUERIES} queries over {SOURCES} sources, {name}, {rate:,.0f} tuples/s")
            fleet = QueryFleet(spark, directory / f"{name} {rate}", text, rate)
            outcomes.append(fleet.run(seconds))
            fleet.stop()
            if not outcomes[-1].kept_up:
                break
        best = ([o for o in outcomes if o.kept_up] or outcomes)[-1]
        title = f"{QUERIES} queries over {SOURCES} sources, {name}"
        figures.append(Figure.of(f"{title}, sustained", "tuples/s", [best.processed_tps if best.kept_up else 0.0]))
        for share in (0.5, 0.95) if best.latencies_ms else ():
            latency = float(np.quantile(best.latencies_ms, share))
            figures.append(Figure.of(f"{title}, latency p{round(100 * share)}", "ms", [latency]))
    return figures


def measure_memory(
    spark: SparkSession, directory: Path, rate_tps: float, seconds: float, progress: Progress
) -> list[Figure]:
    """Memory late in a run to memory early in it, of the driver's process and of the JVM's heap after a collection."""
    fleet = QueryFleet(spark, directory / "memory", JOINS, rate_tps)
    samples: list[tuple[float, float]] = []
    started = time.monotonic()
    try:
        while (elapsed := time.monotonic() - started) < seconds:
            progress(f"memory, {elapsed:.0f} of {seconds:.0f} s")
            time.sleep(seconds / 60)
            fleet.sink.latencies_ms.clear()  # notes of the measurement, not of the host
            samples.append((resident_mb(), jvm_heap_mb(spark)))
    finally:
        fleet.stop()
    figures = []
    for name, values in zip(("driver process", "heap of the JVM"), np.array(samples).T, strict=True):
        share = max(1, len(values) // 6)
        early, late = np.median(values[len(values) // 4 :][:share]), np.median(values[-share:])
        title = f"memory of the {name}, end to first third of {seconds:.0f} s"
        figures.append(Figure.of(title, "x", [late / early], FLAT))
        figures.append(Figure.of(f"memory of the {name}", "MB", list(values)))
    return figures


def jvm_heap_mb(spark: SparkSession) -> float:
    """The JVM's heap after a collection."""
    jvm = cast(Any, spark._jvm)
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def fleet_world(rate_tps: float, text: str) -> TopologyFile:
    """Sensors on edges on a cloud; half of them report rain when the query reads it."""
    sensors = [f"sensor-{i}" for i in range(SOURCES)]
    edges = [f"edge-{i}" for i in range(EDGES)]
    nodes = [Node(n, NodeKind.SENSOR, 2 * QUERIES) for n in sensors]
    nodes += [*(Node(n, NodeKind.EDGE, 64) for n in edges), Node("cloud", NodeKind.CLOUD, 1000)]
    links = [Link(n, edges[i % EDGES], 2) for i, n in enumerate(sensors)] + [Link(n, "cloud", 10) for n in edges]
    both = "rain" in text
    options = {"connector": "random", "range.id": "0..5000", "range.speed": "0..40"}
    cars = Stream("cars", CARS, "ts", tuple(sensors[:: 2 if both else 1]), rate_tps / SOURCES, options)
    streams = {"cars": cars}
    if both:
        streams["rain"] = replace(cars, name="rain", schema=RAIN, nodes=tuple(sensors[1::2]))
    sinks = {"out": SinkTarget("out", "cloud", {"connector": "memory", "event_time": "true"})}
    return TopologyFile(Topology.of(nodes, links), streams, sinks)


class QueryFleet:
    """A host that runs the ten queries."""

    def __init__(self, spark: SparkSession, directory: Path, text: str, rate_tps: float) -> None:
        self.rate_tps = rate_tps
        file = fleet_world(rate_tps, text)
        statements = (f"CREATE QUERY q{i} AS {text.format(i)};" for i in range(QUERIES))
        plan = plan_queries(file, sql("\n".join(statements), file.streams, file.sinks).queries, "bottom_up")
        around = Surroundings(directory, directory)
        self.entries = [c for readers in plan.installation.ingest.values() for c in readers]
        self.sink = Stopwatch()
        self.host = Host(HostOptions(directory), spark)
        self.host.install(plan.installation)
        self.host.warm_up()
        self.host.start()
        self.host.deliver(plan.sink_bindings, around, {o.name: self.sink for o in plan.sink_bindings})
        self.host.feeding.begin(file.streams.values(), around)

    def run(self, seconds: float) -> RateOutcome:
        deadline = time.monotonic() + START_S
        while not self.sink.latencies_ms and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(WARM_S)
        self.sink.latencies_ms.clear()
        before, started = self._processed(), time.monotonic()
        time.sleep(seconds)
        processed = (self._processed() - before) / (time.monotonic() - started)
        kept_up = self._waiting() < 2 * self.rate_tps
        return RateOutcome(self.rate_tps, processed, tuple(self.sink.latencies_ms), kept_up)

    def _processed(self) -> int:
        """Tuples of sources that steps have taken."""
        counters = self.host.store.exchange.counters
        return sum(counters(c).consumed_tuples for c in self.entries)

    def _waiting(self) -> int:
        counters = self.host.store.exchange.counters
        return sum(counters(c).pending_tuples for c in self.entries)

    def stop(self) -> None:
        self.host.stop()
