"""The replay of `meander replay`: queries run on Spark while the topology changes in real time, and all is measured.

Three phases: quiet, changes, quiet again. In the end everything is drained and compared with the oracle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from meander.adapt.decisions import Decision
from meander.adapt.steering import DEFAULTS, AdaptationPolicy
from meander.coordinator.adaptation.adaptation import Adaptation, per_query
from meander.coordinator.loop import Applied, PlacementLoop
from meander.deploy.protocols import protocol
from meander.local.embedded import MOST_CHECKED_ROWS, check_results
from meander.local.setting import Setting, batches_of
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.model.operators import Sink
from meander.model.streams import Stream
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.reconfigure.state import state_strategy
from meander.run.connectors import check_connectors, sink_for, source_for
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.delivery.latency import LatencyHistogram, Percentiles
from meander.run.host import Host, HostOptions, HostStatus
from meander.run.oracle.comparison import Comparison
from meander.run.oracle.recording import RecordedSink, Recording

PHASES = ("before", "during", "after")
POLL_S = 0.01
WARM_UP_S = 60.0
"""The time that slots may take for their first step."""
GENERATED = {"connector": "random", "range.id": "0..100", "range.value": "0..100"}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    mechanism: str = "bottom_up"
    protocol: str = "isqd"
    strategy: str | None = None
    speed: float = 1.0
    most_changes: int | None = None
    quiet_s: float = 5.0
    rate_tps: float = 5.0
    """Of producers of streams that have no source of their own."""
    slots: int = 1
    emulate: bool = False
    check: bool = True
    in_turn: tuple[str, ...] = ()
    """Protocols that take turns, change by change, and move state the same way.

    Times of events do not count then: a change waits for the one before.
    """
    adapt: bool = False
    """Whether queries switch mechanisms when their demands are not met; `mechanism` is the first one then."""
    detour: float | None = None
    """The longest detour before operators follow; None for that of the topology."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One moment's events on their way."""

    due_s: float
    queued_s: float
    """From when it was due until it was taken up."""
    placement_s: float
    contexts_s: float
    markers_s: float
    state_s: float
    in_effect_s: float
    """From when it was due until all of it was in effect."""
    fragments: int
    """Fragments it touched."""
    state_bytes: int
    aborted: int
    protocol: str


@dataclass(frozen=True)
class ReplayReport:
    """The result of a replay."""

    changes: tuple[Changed, ...]
    unfinished: int
    fragments: int
    operators: int
    queries: int
    sources: int
    latency: dict[str, Percentiles]
    """By phase."""
    status: HostStatus
    drained: bool
    checks: dict[str, Comparison]
    unchecked: str | None
    failures: tuple[str, ...]
    """Reconfigurations that were aborted."""
    refused: tuple[str, ...]
    """Events that made no sense."""
    waiting: tuple[str, ...]
    """Operators without a place at the end."""
    same_queries: bool
    """Whether the slots' streaming queries are the ones that the run began with."""
    notes: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """The decisions of the adaptation loop, if there was one."""

    def quantile(self, name: str, share: float) -> float:
        values = [getattr(c, name) for c in self.changes]
        return float(np.quantile(values, share)) if values else float("nan")

    @property
    def faults(self) -> tuple[str, ...]:
        """Requests that were not fulfilled, in sentences; none if the replay did all of them."""
        taken_in = self.status.ingest.rows if self.status.ingest else 0
        given = self.status.delivery.rows if self.status.delivery else 0
        unknown = set(self.status.delivery.sink_bindings if self.status.delivery else ()) - set(self.checks)
        expected = None if unknown else sum(c.expected for c in self.checks.values())
        found = [
            (bool(self.unfinished), f"{self.unfinished} moments of change did not take effect"),
            (bool(self.refused), f"{len(self.refused)} moments of change were refused"),
            (not taken_in, "no tuple came in, so nothing was tried"),
            (bool(taken_in and not self.status.totals.steps), "no slot has made a step"),
            (bool(taken_in and not given and expected != 0), f"no results, although {taken_in:,} tuples came in"),
            (not self.drained, "not everything that was taken in came out in time"),
            (bool(self.lost or self.double), f"{self.lost} results are lost, {self.double} double"),
            (not self.status.healthy, "something is wrong with the host"),
        ]
        return tuple(sentence for is_so, sentence in found if is_so)

    @property
    def lost(self) -> int:
        return sum(c.lost for c in self.checks.values())

    @property
    def double(self) -> int:
        return sum(c.double for c in self.checks.values())


@dataclass(slots=True)
class _Timeline:
    """Events in groups, by due time, and their outcomes."""

    groups: list[tuple[float, list[ChangeEvent]]]
    applied: list[tuple[float, str, Applied]] = field(default_factory=list)
    """The changes: due time, protocol, and outcome of each."""
    refused: list[str] = field(default_factory=list)


Progress = Callable[[str, float, HostStatus], None]
"""Is told the phase, the seconds since the start, and how the host is doing."""


def replay_live(
    spark: SparkSession,
    setting: Setting,
    directory: Path,
    base: Path,
    options: ReplayOptions,
    progress: Progress = lambda phase, elapsed, status: None,
) -> ReplayReport:
    """Runs the queries, feeds the events by their time, drains and checks. Bad events raise before Spark is busy."""
    groups = _groups(setting, options)
    streams = {n: _fed(s, options) for n, s in setting.streams.items()}
    catalog = Catalog(setting.topology, streams, dict(setting.sinks), detour=setting.resilience.detour)
    chosen = per_query(options.mechanism) if options.adapt else mechanism(options.mechanism)
    engine = Engine(catalog, chosen, detour=options.detour)
    host = Host(HostOptions(directory, options.slots, idle_timeout_ms=setting.resilience.idle_timeout_ms), spark)
    loop = PlacementLoop(
        catalog,
        engine,
        host,
        emulated=options.emulate,
        protocol=protocol(options.protocol),
        strategy=options.strategy,
        replicas=setting.resilience.replicas,
    )
    run = _Run(spark, loop, setting, Surroundings(base, directory), options, progress)
    try:
        return run.through(_Timeline(groups))
    finally:
        host.stop()
        engine.close()


def check_replay(setting: Setting, base: Path, options: ReplayOptions) -> None:
    """Raises InputError for a setting that cannot be replayed, before Spark starts."""
    mechanism(options.mechanism)
    for name in (options.protocol, *options.in_turn):
        protocol(name)
    if options.strategy is not None:
        state_strategy(options.strategy)
    streams = [_fed(s, options) for s in setting.streams.values()]
    sinks = {o.name for q in setting.queries for o in q.plan.operators.values() if isinstance(o, Sink)}
    check_connectors(streams, (setting.sinks[name] for name in sinks), Surroundings(base, base))


def _groups(setting: Setting, options: ReplayOptions) -> list[tuple[float, list[ChangeEvent]]]:
    groups = list(batches_of(setting.events, None))[: options.most_changes]
    first = groups[0][0].at_ms if groups else 0
    return [((g[0].at_ms - first) / 1000 / options.speed, g) for g in groups]


def _fed(stream: Stream, options: ReplayOptions) -> Stream:
    """A stream that says nothing of its source gets a generator."""
    if "connector" in stream.options:
        return stream
    known = {k: v for k, v in GENERATED.items() if "." not in k or k.split(".")[1] in stream.schema.names}
    return replace(stream, options={**known, **stream.options}, rate_tps=options.rate_tps)


class _Run:
    """One replay, phase by phase."""

    def __init__(
        self,
        spark: SparkSession,
        loop: PlacementLoop,
        setting: Setting,
        around: Surroundings,
        options: ReplayOptions,
        progress: Progress,
    ) -> None:
        self.spark, self.loop, self.setting, self.around = spark, loop, setting, around
        self.options, self.progress = options, progress
        self.host = loop.host
        streams = loop.catalog.streams
        self.recordings = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in streams.items()}
        self.sinks: dict[str, RecordedSink] = {}
        self.sink_bindings: dict[str, SinkBinding] = {}
        self.moments: list[dict[str, LatencyHistogram]] = []
        self.started = 0.0
        self.last_shown = 0.0
        self.adaptation: Adaptation | None = None
        if options.adapt:
            policy = AdaptationPolicy(replace(DEFAULTS, first=options.mechanism))
            self.adaptation = Adaptation(loop, policy=policy, log_file=around.base / "decisions.jsonl")

    def through(self, timeline: _Timeline) -> ReplayReport:
        self._begin()
        ids = self.host.status().slots
        self._phase("before", self.options.quiet_s)
        self._changes(timeline)
        self._phase("after", self.options.quiet_s)
        drained = self._drain()
        status = self.host.status()
        checks, unchecked = self._check()
        changes = tuple(_changed(due, name, each) for due, name, each in timeline.applied if each.ended is not None)
        deployment = self.loop.deployer.deployment
        return ReplayReport(
            changes,
            len(timeline.groups) - len(changes) - len(timeline.refused),
            len(deployment.fragments),
            len(deployment.owner),
            len(self.loop.catalog.plan.queries),
            sum(len(s.nodes) for s in self.loop.catalog.streams.values()),
            self._latency(),
            status,
            drained,
            checks,
            unchecked,
            tuple(f"reconfiguration {f.number}: {f.reason}" for f in self.loop.deployer.failures),
            tuple(timeline.refused),
            tuple(f"operator {o} waits: {reason}" for o, reason in self.loop.waiting().items()),
            ids == status.slots,
            tuple(self.setting.notes),
            tuple(self.adaptation.decisions) if self.adaptation is not None else (),
        )

    def _begin(self) -> None:
        applied = self.loop.apply([QueryAdded(0, q) for q in self.setting.queries])
        if applied.report.unplaced:
            operator, reason = next(iter(applied.report.unplaced.items()))
            raise InputError(f"operator {operator} could not be placed at the start: {reason}")
        self.host.start()
        self.loop.settle()
        if self.adaptation is not None:
            self.adaptation.watch(wall_clock_ms())
        self.host.warm_up()
        self.host.wait_for_slots()
        for binding in self.loop.sink_bindings():
            self._add(binding)
        self.host.deliver(self.sink_bindings.values(), self.around, self.sinks)
        self.host.feed(self.loop.catalog.streams.values(), self.around, self.recordings)
        self.started = time.perf_counter()
        while time.perf_counter() - self.started < WARM_UP_S and not self.host.totals.steps:
            self._carry_on("warm-up", time.perf_counter() + POLL_S)

    def _add(self, binding: SinkBinding) -> None:
        self.sink_bindings[binding.name] = binding
        self.sinks[binding.name] = RecordedSink(sink_for(binding, self.around))

    def _phase(self, name: str, seconds: float) -> None:
        """Lets time pass; lateness from before is carried on."""
        self._note_latency()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self._carry_on(name, deadline)
        self._note_latency()

    def _changes(self, timeline: _Timeline) -> None:
        start = time.perf_counter()
        waiting = list(timeline.groups)
        last = waiting[-1][0] if waiting else 0.0
        deadline = start + last + max(30.0, last, 30.0 * len(waiting) if self.options.in_turn else 0.0)
        turns = self.options.in_turn
        while (waiting or self.loop.pending) and time.perf_counter() < deadline:
            now = time.perf_counter()
            while waiting and (not self.loop.pending if turns else start + waiting[0][0] <= now):
                due, events = waiting.pop(0)
                name = self.options.protocol
                if turns:
                    due, name = time.perf_counter() - start, turns[len(timeline.applied) % len(turns)]
                    self.loop.deployer.protocol = protocol(name)
                try:
                    timeline.applied.append((start + due, name, self._apply(events)))
                except InputError as error:
                    timeline.refused.append(f"events at {events[0].at_ms} ms, of which none was applied: {error}")
            until = start + waiting[0][0] if waiting and not turns else now + POLL_S
            self._carry_on("during", until)
        self._note_latency()

    def _apply(self, events: Sequence[ChangeEvent]) -> Applied:
        applied = self.loop.apply(events)
        if self.adaptation is not None:
            self.adaptation.note(events, wall_clock_ms())
        if self.host.delivery is not None and any(isinstance(e, QueryAdded) for e in events):
            for binding in self.loop.sink_bindings():
                if binding.name not in self.sink_bindings:
                    self._add(binding)
                    self.host.delivery.add(binding, self.sinks[binding.name])
        return applied

    def _carry_on(self, phase: str, until: float) -> None:
        seen = self.host.store.commits
        self.loop.poll()
        if self.adaptation is not None and phase != "warm-up":
            self.adaptation.tick(wall_clock_ms())
        now = time.perf_counter()
        if now - self.last_shown > 0.5:
            self.last_shown = now
            self.progress(phase, now - self.started, self.host.status())
        if self.loop.pending:
            self.host.store.wait(seen, POLL_S)
        else:
            time.sleep(max(0.0, min(until - time.perf_counter(), 0.05)))

    def _note_latency(self) -> None:
        assert self.host.delivery is not None
        self.moments.append(self.host.delivery.latencies())

    def _latency(self) -> dict[str, Percentiles]:
        """Of all queries together, by phase: moments are noted where phases begin and end."""
        found: dict[str, Percentiles] = {}
        for phase, (start, end) in zip(PHASES, ((0, 1), (1, 2), (3, 4)), strict=True):
            total = LatencyHistogram()
            for query, latency in self.moments[end].items():
                earlier = self.moments[start].get(query)
                total = total.plus(latency.since(earlier) if earlier else latency)
            found[phase] = total.percentiles()
        return found

    def _drain(self) -> bool:
        while self.adaptation is not None and self.adaptation.transitions.under_way:
            self.loop.settle(30.0)
            self.adaptation.transitions.poll()
        self.loop.settle(30.0)
        return self.host.drain(end_streams=True)

    def _check(self) -> tuple[dict[str, Comparison], str | None]:
        if not self.options.check:
            return {}, "not asked for"
        touched: set[QueryId] = set()
        for event in self.setting.events:
            if isinstance(event, QueryAdded):
                touched.add(event.query.id)
            elif isinstance(event, QueryRemoved):
                touched.add(event.query)
        whole = [o for o in self.sink_bindings.values() if o.query not in touched]
        return check_results(self.spark, self.loop.catalog, whole, self.recordings, self.sinks)


def _changed(due: float, protocol_name: str, applied: Applied) -> Changed:
    outcomes = applied.outcomes
    assert applied.ended is not None
    return Changed(
        due,
        applied.started - due,
        applied.placement_s,
        max((o.contexts_s for o in outcomes), default=0.0),
        max((o.markers_s for o in outcomes), default=0.0),
        max((o.state_s for o in outcomes), default=0.0),
        applied.ended - due,
        sum(o.deployed + o.updated + o.undeployed for o in outcomes),
        sum(o.state_bytes for o in outcomes),
        sum(o.reason is not None for o in outcomes),
        protocol_name,
    )
