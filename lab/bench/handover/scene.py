"""Trains on rings of base stations, each with an operator beside it that remembers much.

The service runs as a user starts it, links are emulated with their latency and bandwidth, and everything that goes in
and comes out is kept, so that the run can be compared with the oracle. A handover takes a train's link from one base
station to the next; the join of its two streams follows it, with its window. There are two trains, each with a ring of
its own, that move at the same moments: what they do differently is the way of handover, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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

NODES = ("train-1", "tram-1")
"""Two of different lines, so that nothing is learned about one from the other."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The scene's size. Both rings are alike."""

    stations: int = 3
    dwell_s: float = 6.0
    window_s: int = 25
    readings_tps: int = 500
    probes_tps: int = 50
    link_mbps: float = 20.0
    """Of the links between base stations."""
    latency_ms: float = 4.0
    cloud_latency_ms: float = 10.0
    """From a station to the cloud; twice that is more than between stations, so that state takes the link there."""
    turns: bool = False
    """Whether it goes back at the last station, as on a road, instead of round."""
    jitter: float = 0.0
    """By which share of `dwell_s` stays differ."""
    stays: tuple[float, ...] = ()
    """How long each stay lasts, where that was recorded."""
    columns: int = 20
    """Numbers that each reading carries: what makes the state large, and what no compression makes smaller."""

    def attachment(self, node: str, number: int) -> str:
        """The station of a stay."""
        if not self.turns:
            return _station(node, number % self.stations)
        place = number % (2 * self.stations - 2)
        return _station(node, min(place, 2 * self.stations - 2 - place))

    def stay_s(self, number: int) -> float:
        """How long a stay lasts."""
        if self.stays:
            return self.stays[number % len(self.stays)]
        return self.dwell_s * (1 + self.jitter * float(np.random.default_rng(number).uniform(-1, 1)))

    @property
    def state_bytes(self) -> int:
        """About what one join remembers when its window is full."""
        return round(self.readings_tps * self.window_s * (self.columns + 2) * 8)

    def topology(self) -> str:
        lines = ["nodes:", "  - {name: cloud, kind: cloud, slots: 64}"]
        for node in NODES:
            stations = (_station(node, i) for i in range(self.stations))
            lines += [f"  - {{name: {s}, kind: edge, slots: 8}}" for s in stations]
            lines.append(f"  - {{name: {node}, kind: sensor, slots: 0, mobile: true}}")
        lines.append("links:")
        for node in NODES:
            lines += self._links(node)
        lines += ["detour: 1", "streams:"]
        for node in NODES:
            lines += self._streams(node)
        return "\n".join([*lines, "sinks:", "  - {name: out, node: cloud}"]) + "\n"

    def _links(self, node: str) -> Iterator[str]:
        for i in range(self.stations):
            here, after = _station(node, i), _station(node, (i + 1) % self.stations)
            yield f"  - {{source: {here}, target: cloud, latency_ms: {self.cloud_latency_ms:g}, bandwidth_mbps: 1000}}"
            yield (
                f"  - {{source: {here}, target: {after}, latency_ms: {self.latency_ms:g}, "
                f"bandwidth_mbps: {self.link_mbps:g}}}"
            )
        yield f"  - {{source: {node}, target: {_station(node, 0)}, latency_ms: 2, bandwidth_mbps: 100}}"

    def _streams(self, node: str) -> Iterator[str]:
        line = _line(node)
        columns = ", ".join(f"x{i}: double" for i in range(self.columns))
        wide = f"{{ts: timestamp, id: bigint, {columns}}}"
        keys = f'range.id: "0..{self.readings_tps * self.window_s // 2}"'
        ranges = ", ".join(f'range.x{i}: "0..1000000"' for i in range(self.columns))
        yield (
            f"  - {{name: reading_{line}, schema: {wide}, event_time: ts, nodes: {node}, "
            f"rate_tps: {self.readings_tps}, options: {{connector: random, {keys}, {ranges}}}}}"
        )
        yield (
            f"  - {{name: probe_{line}, schema: {{ts: timestamp, id: bigint}}, event_time: ts, nodes: {node}, "
            f'rate_tps: {self.probes_tps}, options: {{connector: random, {keys}, seed: "7"}}}}'
        )

    def queries(self) -> dict[str, str]:
        """The query that follows each train, by its name."""
        return {_line(node): self._query(_line(node)) for node in NODES}

    def _query(self, line: str) -> str:
        columns = ", ".join(f"r.x{i} AS x{i}" for i in range(self.columns))
        return (
            f"SELECT p.ts AS ts, r.ts AS read_ts, p.id AS id, {columns} FROM probe_{line} AS p "
            f"JOIN reading_{line} AS r ON p.id = r.id WITHIN {self.window_s} s INTO out"
        )


def _line(node: str) -> str:
    return node.partition("-")[0]


def _station(node: str, number: int) -> str:
    return f"{_line(node)}-stop-{number}"


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
class HandoverWays:
    """The ways in which trains hand over in one run: by train, and the settings that make them so."""

    of: Mapping[str, str]
    state: str = "migration_query"
    prediction: PredictionSettings = field(default_factory=PredictionSettings)


class RingRun:
    """One run of the scene."""

    def __init__(self, ring: Ring, ways: HandoverWays, directory: Path, spark: SparkSession) -> None:
        self.ring, self.ways, self.directory, self.spark = ring, ways, directory, spark
        self.recordings: dict[str, Recording] = {}
        self.recorded: dict[str, RecordedSink] = {}
        self.sinks: dict[str, TimedResults] = {}

    def measure(self, warm_up: int, measured: int, say: Callable[[str], None]) -> dict[str, HandoverRun]:
        """The measures by way."""
        found: dict[str, HandoverRun] = {}
        with self._service() as c:
            self._fill(c)
            for number in range(warm_up + measured):
                began = time.time()
                for node in NODES if number % 2 else reversed(NODES):
                    self._hand_over(c, node, number)
                stay_s = self.ring.stay_s(number)
                time.sleep(max(0.0, began + stay_s - time.time()))
                say(f"{', '.join(dict.fromkeys(self.ways.of.values()))}: handover {number + 1} of {warm_up + measured}")
                if number >= warm_up:
                    for node, way in self.ways.of.items():
                        self._take(found.setdefault(way, HandoverRun()), _line(node), began, stay_s)
            for node, way in self.ways.of.items():
                self._changes(c, found[way], node, measured)
            prediction = c.parts.core.prediction
            outcomes = {} if prediction is None else prediction.totals()
            c.drain()
            results = c.summary()["results"]
            checks, unchecked = check_results(
                self.spark, c.catalog, c.first_sink_bindings, self.recordings, self.recorded
            )
            if unchecked is not None:
                raise RuntimeError(unchecked)
            for node, way in self.ways.of.items():
                one, query = found[way], _line(node)
                mine = [check for name, check in checks.items() if query in name]
                one.outcomes = outcomes
                one.results += results.get(query, 0)
                one.lost += sum(check.lost for check in mine)
                one.double += sum(check.double for check in mine)
        return found

    @contextmanager
    def _service(self) -> Iterator[Coordinator]:
        file = self.directory / "ring.yaml"
        file.write_text(self.ring.topology())
        options = CoordinatorOptions(
            port=0,
            emulate=True,
            adapt=False,
            first=self.ring.queries(),
            source_of=self._source,
            sink_of=self._sink,
            state=self.ways.state,
            prediction=self.ways.prediction,
        )
        with running(self.directory / "coordinator", file, options, self.spark) as coordinator:
            yield coordinator

    def _source(self, stream: Stream, around: Surroundings) -> SourceConnector:
        self.recordings[stream.name] = Recording(source_for(stream, around), stream, MOST_CHECKED_ROWS)
        return self.recordings[stream.name]

    def _sink(self, binding: SinkBinding, around: Surroundings) -> SinkConnector:
        self.recorded[binding.name] = recorded = RecordedSink(sink_for(binding, around))
        self.sinks[binding.query] = found = TimedResults(recorded)
        return found

    def _fill(self, c: Coordinator) -> None:
        """Until the windows are nearly full."""
        wanted, deadline = 0.8 * self.ring.state_bytes * len(NODES), time.monotonic() + 2 * self.ring.window_s + 120
        while c.parts.host.store.stats().state_bytes < wanted and time.monotonic() < deadline:
            time.sleep(0.2)

    def _hand_over(self, c: Coordinator, node: str, number: int) -> None:
        there, here = self.ring.attachment(node, number + 1), self.ring.attachment(node, number)
        link = {"source": node, "target": there, "latency_ms": 2, "bandwidth_mbps": 100}
        c.events([{"event": "link_removed", "source": node, "target": here}, {"event": "link_added", **link}])

    def _take(self, found: HandoverRun, query: str, began: float, stay_s: float) -> None:
        sink = self.sinks[query]
        middle, end = began + stay_s / 2, began + stay_s
        found.gaps_s.append(sink.gap_s(began, middle))
        found.quiet_gaps_s.append(sink.gap_s(middle, end))
        ages = sink.ages(began, middle)
        found.p50_s.append(float(np.percentile(ages, 50)))
        found.p95_s.append(float(np.percentile(ages, 95)))
        found.worst_s.append(float(np.max(ages)))
        quiet = sink.ages(middle, end)
        found.quiet_p50_s.append(float(np.percentile(quiet, 50)))
        found.quiet_p95_s.append(float(np.percentile(quiet, 95)))

    def _changes(self, c: Coordinator, found: HandoverRun, node: str, measured: int) -> None:
        """The reconfigurations that followed a train."""
        mine = [r for r in c.service.history.reconfigurations(1_000) if r["state_bytes"] and _follows(r, node)]
        done = [r for r in mine if r["status"] == "committed"][-measured:]
        found.state_bytes += [float(r["state_bytes"]) for r in done]
        found.effect_s += [(r["ended_ms"] - r["began_ms"]) / 1000 for r in done]
        found.pause_s += [r["pause_ms"] / 1000 for r in done]


def _follows(record: Mapping[str, Any], node: str) -> bool:
    return any((m["to"] or "").startswith(f"{_line(node)}-stop-") for m in record["moves"])
