"""The demo of `meander demo`: trains on a ring line, queries that follow them on Spark, a page to watch it.

Two phases. At first all trains keep their base stations, so that there is something to compare with; then they change
from one to the next as they move, and now and then something fails. In the end everything is drained and every result
is compared with a batch run over the same input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.adapt.mobility.settings import PredictionSettings
from meander.adapt.settings import BY_DEMANDS
from meander.api.coordinator import Coordinator, running
from meander.coordinator.options import CoordinatorOptions
from meander.demo.fleet import Surveyed, TrainFleet, trains_in
from meander.demo.incidents import Incident, Incidents
from meander.demo.line import topology
from meander.demo.link_delays import sink_delays_ms
from meander.demo.queries import BY_NOVA, QUERIES, SAMPLES
from meander.local.recorded_run import MOST_CHECKED_ROWS, check_results
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import Polled, SinkBinding, SinkConnector, SourceConnector, Surroundings
from meander.run.delivery.latency import Percentiles, between
from meander.run.oracle.comparison import Comparison
from meander.run.oracle.recording import RecordedSink, Recording

TICK_S = 0.2
LONGEST_QUIET_S = 10.0
QUIET_SHARE = 0.2
SAY_EVERY_S = 5.0
DRAIN_S = 60.0
COUNTED = ("changes", "events", "moves", "reconfigurations", "aborted", "fragments_moved", "state_bytes")
"""Numbers of the coordinator's summary that only grow."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo."""

    seconds: float | None = None
    """The run time; None: until it is interrupted."""
    trains: int = 24
    port: int = 8420
    host: str = "127.0.0.1"
    incidents: bool = True
    adapt: bool = True
    """Whether queries switch mechanisms when their demands are not met."""
    mechanism: str = BY_DEMANDS
    """The mechanism that queries begin with."""
    queries: Mapping[str, str] = field(default_factory=lambda: {**QUERIES, **BY_NOVA})
    """Name to SQL."""


@dataclass
class DemoReport:
    """The result of the demo."""

    first_result_s: float | None = None
    handovers: int = 0
    incidents: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    latency: dict[str, Percentiles] = field(default_factory=dict)
    """Before and during changes."""
    links_ms: dict[str, list[int]] = field(default_factory=lambda: {"before": [], "during": []})
    """The share of emulated links in it: now and then, for each sink, the delays on the longest way to it."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The coordinator's own."""
    drained: bool = False
    checks: Mapping[str, Comparison] = field(default_factory=dict)
    unchecked: str | None = None

    @property
    def lost(self) -> int:
        return sum(c.lost for c in self.checks.values())

    @property
    def double(self) -> int:
        return sum(c.double for c in self.checks.values())

    @property
    def sound(self) -> bool:
        """Whether there were results, and everything came through, once."""
        return self.first_result_s is not None and self.drained and not self.lost and not self.double


class _Departed(Recording):
    """Keeps what the trains sent, and when their line opened."""

    epoch_ms: int | None = None

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        polled = super().poll(now_ms, most_rows)
        if polled is not None and self.epoch_ms is None:
            self.epoch_ms = int(polled.offset["epoch"])
        return polled


class Demo:
    """One run of the demo in a directory."""

    def __init__(
        self,
        directory: Path,
        options: DemoOptions,
        say: Say,
        started: float | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """`started` is when the wait for the first result began, by `time.monotonic`."""
        if options.trains < 1:
            raise InputError("the demo needs at least one train")
        self.directory, self.options, self.say, self.spark = directory, options, say, spark
        self.enough = threading.Event()
        """Ends the demo before its time."""
        self.started = time.monotonic() if started is None else started
        self.recordings: dict[str, Recording] = {}
        self.sinks: dict[str, RecordedSink] = {}
        self.report = DemoReport()
        self._script = Incidents()
        self._at_first: dict[str, Any] = {}

    def run(self, shown: Callable[[Coordinator], None] = lambda coordinator: None) -> DemoReport:
        """Runs to the end; `shown` is called once everything runs."""
        file = self.directory / "demo.yaml"
        file.write_text(topology(self.options.trains))
        options = CoordinatorOptions(
            host=self.options.host,
            port=self.options.port,
            adapt=self.options.adapt,
            mechanism=self.options.mechanism,
            first=self.options.queries,
            source_of=self._source,
            sink_of=self._sink,
            samples=SAMPLES,
            prediction=PredictionSettings("markov", least_probability=0.5),
        )
        with running(self.directory / "coordinator", file, options, self.spark) as coordinator:
            shown(coordinator)
            try:
                self._drive(coordinator)
            except KeyboardInterrupt:
                self.say("interrupted; what is under way is brought to an end")
            self._end(coordinator)
        return self.report

    # ---------------------------------------------------------------- what goes in and out is kept for the check

    def _source(self, stream: Stream, around: Surroundings) -> SourceConnector:
        kind = _Departed if stream.name == "train" else Recording
        self.recordings[stream.name] = kind(source_for(stream, around), stream, MOST_CHECKED_ROWS)
        return self.recordings[stream.name]

    def _sink(self, binding: SinkBinding, around: Surroundings) -> SinkConnector:
        sink = sink_for(binding, around)
        if binding.query not in self.options.queries:
            return sink
        self.sinks[binding.name] = RecordedSink(sink)
        return self.sinks[binding.name]

    # ---------------------------------------------------------------- driving

    def _drive(self, coordinator: Coordinator) -> None:
        fleet = TrainFleet(coordinator.catalog.streams["train"])
        seconds = self.options.seconds
        quiet_s = LONGEST_QUIET_S if seconds is None else min(LONGEST_QUIET_S, QUIET_SHARE * seconds)
        self._await_first_result(coordinator, fleet)
        self._at_first = coordinator.summary()
        began, before, calm = time.monotonic(), coordinator.latencies(), True
        next_line = 0.0
        try:
            while not self.enough.is_set() and (seconds is None or time.monotonic() - began < seconds):
                elapsed = time.monotonic() - began
                self._show(coordinator, fleet)
                if elapsed >= quiet_s:
                    if calm:
                        self.report.latency["before"] = between(before, coordinator.latencies())
                        before, calm = coordinator.latencies(), False
                    self._change(coordinator, fleet, elapsed - quiet_s, None if seconds is None else seconds - quiet_s)
                if elapsed >= next_line:
                    next_line += SAY_EVERY_S
                    self.say(self._line(coordinator, elapsed))
                    channels = [binding.channel for binding in coordinator.first_sink_bindings]
                    self.report.links_ms["before" if calm else "during"] += sink_delays_ms(
                        coordinator.parts.host, channels
                    )
                self.enough.wait(TICK_S)
        finally:
            self.report.latency["before" if calm else "during"] = between(before, coordinator.latencies())

    def _await_first_result(self, coordinator: Coordinator, fleet: TrainFleet) -> None:
        while not sum(coordinator.summary()["results"].values()):
            self._show(coordinator, fleet)
            if self.enough.wait(TICK_S):
                return
        self.report.first_result_s = time.monotonic() - self.started
        self.say(f"first result after {self.report.first_result_s:.1f} s")

    def _elapsed_s(self) -> float | None:
        trains = self.recordings["train"]
        assert isinstance(trains, _Departed)
        return None if trains.epoch_ms is None else (wall_clock_ms() - trains.epoch_ms) / 1000

    def _show(self, coordinator: Coordinator, fleet: TrainFleet) -> None:
        elapsed_s = self._elapsed_s()
        if elapsed_s is not None:
            coordinator.positions(fleet.places(elapsed_s))

    def _change(self, coordinator: Coordinator, fleet: TrainFleet, elapsed_s: float, until_s: float | None) -> None:
        """Trains change base stations; then comes what the script says."""
        driven_s = self._elapsed_s()
        if driven_s is not None:
            events = fleet.handovers(driven_s, Surveyed.of(coordinator.service.views.topology()))
            if events and self._apply(coordinator, events):
                self.report.handovers += trains_in(events)
        incident = self._script.due(elapsed_s, until_s) if self.options.incidents else None
        if incident is not None:
            self._happen(coordinator, incident)

    def _happen(self, coordinator: Coordinator, incident: Incident) -> None:
        if incident.query is not None:
            try:
                self._ask(coordinator, incident.query, incident)
            except InputError as error:
                self.report.refused.append(str(error))
                return
        else:
            topology = coordinator.service.views.topology()
            events, back = self._script.events(incident, topology), self._script.restores(incident, topology)
            if not (events and self._apply(coordinator, events)) and not (back and self._restore(coordinator, back)):
                return
        self.report.incidents.append(incident.text)
        self.say(incident.text)

    def _ask(self, coordinator: Coordinator, query: str, incident: Incident) -> None:
        """Changes what a query demands, or what places it; one that a user has stopped is left alone."""
        shown = coordinator.service.views.queries.get(query)
        if incident.demands:
            coordinator.demands(query, incident.demands)
        elif shown is not None:
            other = next(m for m in incident.mechanisms if m != shown["mechanism"])
            coordinator.switch(query, other, "auto")

    def _apply(self, coordinator: Coordinator, events: list[dict[str, Any]]) -> bool:
        """Applies events. A user at the page may have been faster: then the world is read again at the next tick."""
        try:
            coordinator.events(events)
        except InputError as error:
            self.report.refused.append(str(error))
            return False
        return True

    def _restore(self, coordinator: Coordinator, nodes: list[str]) -> bool:
        try:
            coordinator.restore(nodes)
        except InputError as error:
            self.report.refused.append(str(error))
            return False
        return True

    def _line(self, coordinator: Coordinator, elapsed: float) -> str:
        now = coordinator.summary()
        latency = now["latency_ms"]["p95"]
        return (
            f"{elapsed:6.1f} s  in {now['tuples_in']:,}  out {now['tuples_out']:,}  handovers {self.report.handovers}  "
            f"operators moved {self._since(now)['moves']}"
            + (f"  latency p95 {latency:,.0f} ms" if latency is not None else "")
        )

    def _since(self, summary: dict[str, Any]) -> dict[str, Any]:
        """The totals since everything ran for the first time: adding the queries is no change."""
        return {**summary, **{k: summary[k] - self._at_first.get(k, 0) for k in COUNTED}}

    # ---------------------------------------------------------------- the end

    def _end(self, coordinator: Coordinator) -> None:
        report = self.report
        self.say("draining and checking every result against a batch run")
        report.drained = coordinator.drain(DRAIN_S)
        report.summary = self._since(coordinator.summary())
        checks, unchecked = check_results(
            coordinator.spark, coordinator.catalog, coordinator.first_sink_bindings, self.recordings, self.sinks
        )
        report.checks, report.unchecked = checks, unchecked
