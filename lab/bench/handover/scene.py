"""A train on a ring of base stations, with an operator beside it that remembers much.

The service runs as a user starts it, links are emulated with their latency and bandwidth, and everything that goes in
and comes out is kept, so that the run can be compared with the oracle. A handover takes the train's link from one base
station to the next; the join of its two streams follows it, with its window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.adapt.mobility.settings import PredictionSettings
from meander.api.coordinator import Coordinator, running
from meander.coordinator.options import CoordinatorOptions
from meander.local.recorded_run import MOST_CHECKED_ROWS, check_results
from meander.model.streams import Stream
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import SinkBinding, SinkConnector, SourceConnector, SourcePosition, Surroundings
from meander.run.oracle.recording import RecordedSink, Recording

QUERY = "follow"


@dataclass(frozen=True, slots=True)
class Ring:
    """The scene's size."""

    node: str = "train-1"
    stations: int = 3
    dwell_s: float = 6.0
    window_s: int = 25
    readings_tps: int = 500
    probes_tps: int = 50
    link_mbps: float = 20.0
    """Of the links between base stations."""
    latency_ms: float = 4.0
    turns: bool = False
    """Whether it goes back at the last station, as on a road, instead of round."""
    jitter: float = 0.0
    """By which share of `dwell_s` stays differ."""
    stays: tuple[float, ...] = ()
    """How long each stay lasts, where that was recorded."""
    columns: int = 20
    """Numbers that each reading carries: what makes the state large, and what no compression makes smaller."""

    def attachment(self, number: int) -> str:
        """The station of a stay."""
        if not self.turns:
            return f"base-{number % self.stations}"
        place = number % (2 * self.stations - 2)
        return f"base-{min(place, 2 * self.stations - 2 - place)}"

    def stay_s(self, number: int) -> float:
        """How long a stay lasts."""
        if self.stays:
            return self.stays[number % len(self.stays)]
        return self.dwell_s * (1 + self.jitter * float(np.random.default_rng(number).uniform(-1, 1)))

    @property
    def state_bytes(self) -> int:
        """About what the join remembers when its window is full."""
        return round(self.readings_tps * self.window_s * (self.columns + 2) * 8)

    def topology(self) -> str:
        bases = [f"base-{i}" for i in range(self.stations)]
        columns = ", ".join(f"x{i}: double" for i in range(self.columns))
        wide = f"{{ts: timestamp, id: bigint, {columns}}}"
        keys = f'range.id: "0..{self.readings_tps * self.window_s // 2}"'
        ranges = ", ".join(f'range.x{i}: "0..1000000"' for i in range(self.columns))
        lines = ["nodes:", "  - {name: cloud, kind: cloud, slots: 64}"]
        lines += [f"  - {{name: {b}, kind: edge, slots: 8}}" for b in bases]
        lines += [f"  - {{name: {self.node}, kind: sensor, slots: 0, mobile: true}}", "links:"]
        for i, b in enumerate(bases):
            lines.append(f"  - {{source: {b}, target: cloud, latency_ms: 10, bandwidth_mbps: 1000}}")
            after = bases[(i + 1) % len(bases)]
            lines.append(
                f"  - {{source: {b}, target: {after}, latency_ms: {self.latency_ms:g}, "
                f"bandwidth_mbps: {self.link_mbps:g}}}"
            )
        lines += [
            f"  - {{source: {self.node}, target: base-0, latency_ms: 2, bandwidth_mbps: 100}}",
            "detour: 1",
            "streams:",
            f"  - {{name: reading, schema: {wide}, event_time: ts, nodes: {self.node}, rate_tps: {self.readings_tps},",
            f"     options: {{connector: random, {keys}, {ranges}}}}}",
            f"  - {{name: probe, schema: {{ts: timestamp, id: bigint}}, event_time: ts, nodes: {self.node},",
            f'     rate_tps: {self.probes_tps}, options: {{connector: random, {keys}, seed: "7"}}}}',
            "sinks:",
            "  - {name: out, node: cloud}",
        ]
        return "\n".join(lines) + "\n"

    def query(self) -> str:
        columns = ", ".join(f"r.x{i} AS x{i}" for i in range(self.columns))
        return (
            f"SELECT p.ts AS ts, r.ts AS read_ts, p.id AS id, {columns} "
            f"FROM probe AS p JOIN reading AS r ON p.id = r.id WITHIN {self.window_s} s INTO out"
        )


class TimedResults:
    """A sink that notes when rows came, and how old they were: since the later of the two tuples."""

    fixed_ranges = False

    def __init__(self, inner: SinkConnector) -> None:
        self.inner = inner
        self.path = getattr(inner, "path", None)
        self.times: list[float] = []
        self.ages_s: list[np.ndarray[Any, np.dtype[np.float64]]] = []

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.inner.open(binding, schema, position)

    def write(self, table: pa.Table, first: int) -> Any:
        if len(table):
            now = time.time()
            both = [table.column(c).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() for c in ("ts", "read_ts")]
            self.times.append(now)
            self.ages_s.append(now - np.maximum(*both) / 1e6)
        return self.inner.write(table, first)

    def close(self) -> None:
        self.inner.close()

    def gap_s(self, start: float, end: float) -> float:
        """The longest time without a result in a span."""
        known = [start, *(t for t in self.times if start <= t <= end), end]
        return float(np.max(np.diff(known)))

    def ages(self, start: float, end: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Event-time latencies of what came in a span."""
        found = [a for t, a in zip(self.times, self.ages_s, strict=True) if start <= t <= end]
        return np.concatenate(found) if found else np.array([end - start])


@dataclass
class HandoverRun:
    """The measures of one way to hand over."""

    gaps_s: list[float] = field(default_factory=list)
    quiet_gaps_s: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    p95_s: list[float] = field(default_factory=list)
    worst_s: list[float] = field(default_factory=list)
    quiet_p50_s: list[float] = field(default_factory=list)
    quiet_p95_s: list[float] = field(default_factory=list)
    effect_s: list[float] = field(default_factory=list)
    """From the change of the link until all of it was in effect."""
    pause_s: list[float] = field(default_factory=list)
    """How long the join had stopped."""
    state_bytes: list[float] = field(default_factory=list)
    outcomes: dict[str, Any] = field(default_factory=dict)
    results: int = 0
    lost: int = 0
    double: int = 0


@dataclass(frozen=True, slots=True)
class HandoverWay:
    """A way to hand over."""

    name: str
    state: str
    prediction: PredictionSettings = field(default_factory=PredictionSettings)


class RingRun:
    """One run of the scene."""

    def __init__(self, ring: Ring, way: HandoverWay, directory: Path, spark: SparkSession) -> None:
        self.ring, self.way, self.directory, self.spark = ring, way, directory, spark
        self.recordings: dict[str, Recording] = {}
        self.recorded: dict[str, RecordedSink] = {}
        self.sink: TimedResults | None = None

    def measure(self, warm_up: int, measured: int, say: Callable[[str], None]) -> HandoverRun:
        found = HandoverRun()
        with self._service() as c:
            self._fill(c)
            for number in range(warm_up + measured):
                began = time.time()
                self._hand_over(c, number)
                stay_s = self.ring.stay_s(number)
                time.sleep(max(0.0, began + stay_s - time.time()))
                say(f"{self.way.name}: handover {number + 1} of {warm_up + measured}")
                if number >= warm_up:
                    self._take(found, began, stay_s)
            found.outcomes = self._changes(c, found, measured)
            c.drain()
            found.results = c.summary()["results"].get(QUERY, 0)
            checks, unchecked = check_results(
                self.spark, c.catalog, c.first_sink_bindings, self.recordings, self.recorded
            )
            if unchecked is not None:
                raise RuntimeError(unchecked)
            found.lost = sum(check.lost for check in checks.values())
            found.double = sum(check.double for check in checks.values())
        return found

    @contextmanager
    def _service(self) -> Iterator[Coordinator]:
        file = self.directory / "ring.yaml"
        file.write_text(self.ring.topology())
        options = CoordinatorOptions(
            port=0,
            emulate=True,
            adapt=False,
            first={QUERY: self.ring.query()},
            source_of=self._source,
            sink_of=self._sink,
            state=self.way.state,
            prediction=self.way.prediction,
        )
        with running(self.directory / "coordinator", file, options, self.spark) as coordinator:
            yield coordinator

    def _source(self, stream: Stream, around: Surroundings) -> SourceConnector:
        self.recordings[stream.name] = Recording(source_for(stream, around), stream, MOST_CHECKED_ROWS)
        return self.recordings[stream.name]

    def _sink(self, binding: SinkBinding, around: Surroundings) -> SinkConnector:
        self.recorded[binding.name] = recorded = RecordedSink(sink_for(binding, around))
        self.sink = TimedResults(recorded)
        return self.sink

    def _fill(self, c: Coordinator) -> None:
        """Until the window is nearly full."""
        deadline = time.monotonic() + 2 * self.ring.window_s + 120
        while c.parts.host.store.stats().state_bytes < 0.8 * self.ring.state_bytes and time.monotonic() < deadline:
            time.sleep(0.2)

    def _hand_over(self, c: Coordinator, number: int) -> None:
        ring = self.ring
        link = {"source": ring.node, "target": ring.attachment(number + 1), "latency_ms": 2, "bandwidth_mbps": 100}
        gone = {"source": ring.node, "target": ring.attachment(number)}
        c.events([{"event": "link_removed", **gone}, {"event": "link_added", **link}])

    def _take(self, found: HandoverRun, began: float, stay_s: float) -> None:
        assert self.sink is not None
        middle, end = began + stay_s / 2, began + stay_s
        found.gaps_s.append(self.sink.gap_s(began, middle))
        found.quiet_gaps_s.append(self.sink.gap_s(middle, end))
        ages = self.sink.ages(began, middle)
        found.p50_s.append(float(np.percentile(ages, 50)))
        found.p95_s.append(float(np.percentile(ages, 95)))
        found.worst_s.append(float(np.max(ages)))
        quiet = self.sink.ages(middle, end)
        found.quiet_p50_s.append(float(np.percentile(quiet, 50)))
        found.quiet_p95_s.append(float(np.percentile(quiet, 95)))

    def _changes(self, c: Coordinator, found: HandoverRun, measured: int) -> dict[str, Any]:
        done = [r for r in c.service.history.reconfigurations(1_000) if r["state_bytes"]][-measured:]
        found.state_bytes = [float(r["state_bytes"]) for r in done]
        found.effect_s = [(r["ended_ms"] - r["began_ms"]) / 1000 for r in done]
        found.pause_s = [r["pause_ms"] / 1000 for r in done]
        prediction = c.parts.core.prediction
        return {} if prediction is None else prediction.totals()
