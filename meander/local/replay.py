"""The replay of `meander replay`: queries run on Spark while the topology changes in real time, and all is measured.

Three phases: quiet, changes, quiet again. In the end everything is drained and compared with the oracle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from meander.coordinator.adaptation.adaptation import Adaptation, per_query
from meander.coordinator.loop.applied import Applied
from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.protocols import protocol
from meander.local.placement_replay import Setting, batches_of
from meander.local.recorded_run import RecordedRun
from meander.local.replay_options import ReplayOptions, fed
from meander.local.replay_report import ReplayReport, changed
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded, QueryRemoved
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.connectors.base import Surroundings
from meander.run.delivery.latency import LatencyHistogram, Percentiles, between
from meander.run.host import Host, HostOptions, HostStatus
from meander.run.oracle.comparison import Comparison

PHASES = ("before", "during", "after")
POLL_S = 0.01
WARM_UP_S = 60.0
"""The time that slots may take for their first step."""


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
    streams = {n: fed(s, options) for n, s in setting.streams.items()}
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


def _groups(setting: Setting, options: ReplayOptions) -> list[tuple[float, list[ChangeEvent]]]:
    groups = list(batches_of(setting.events, None))[: options.most_changes]
    first = groups[0][0].at_ms if groups else 0
    return [((g[0].at_ms - first) / 1000 / options.speed, g) for g in groups]


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
        self.recorded = RecordedRun(streams, around)
        self.moments: list[dict[str, LatencyHistogram]] = []
        self.started = 0.0
        self.last_shown = 0.0
        self.adaptation: Adaptation | None = None
        if options.adapt:
            policy = options.policy
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
        changes = tuple(changed(due, name, each) for due, name, each in timeline.applied if each.ended is not None)
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
            self.recorded.add(binding)
        self.host.deliver(self.recorded.sink_bindings.values(), self.around, self.recorded.sinks)
        self.host.feeding.begin(self.loop.catalog.streams.values(), self.around, self.recorded.sources)
        self.started = time.perf_counter()
        while time.perf_counter() - self.started < WARM_UP_S and not self.host.totals.steps:
            self._carry_on("warm-up", time.perf_counter() + POLL_S)

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
                if binding.name not in self.recorded.sink_bindings:
                    self.host.delivery.add(binding, self.recorded.add(binding))
        return applied

    def _carry_on(self, phase: str, until: float) -> None:
        seen = self.host.store.changes
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
            found[phase] = between(self.moments[start], self.moments[end])
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
        events = self.setting.events
        touched = {e.query.id for e in events if isinstance(e, QueryAdded)}
        touched |= {e.query for e in events if isinstance(e, QueryRemoved)}
        whole = [o for o in self.recorded.sink_bindings.values() if o.query not in touched]
        return self.recorded.check(self.spark, self.loop.catalog, whole)
