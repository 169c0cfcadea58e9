"""The 150 traffic queries on a real host with two slots, bound in different ways.

Steps, Spark plans, commits and moves are real. What an operator does beyond its Spark plan is emulated by waiting, so
much per tuple: two slots share two cores with everything else here, so real computing would show the cores' limits and
not the binding's. It is what an operator looks like that asks a service or a device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.experiments.rebinding_model import BindingSetting, LatencySamples
from lab.workloads.traffic import KINDS, REPLICAS, TICK_MS, Traffic, stream_of, traffic_world
from meander.local.run_plan import LocalPlan, plan_queries
from meander.model.ids import FragmentId
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, SourcePosition, Surroundings
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Ran, Runner, Task
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT, NEWEST, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.rebinding.options import RebindingOptions
from meander.run.step.measures import StepMeasures
from meander.run.step.work import GroupBatch
from meander.run.store.commit import Commit

SLOTS = 2
TICKS_PER_COMMIT = 3
START_S = 90.0
WARM_S = 5.0


@dataclass(frozen=True)
class Queries:
    """The placed queries: in which channel a query's tuples enter, and which of its fragments comes second."""

    plan: LocalPlan
    channels: NDArray[np.int64]
    """By district, then by kind."""
    seconds: Mapping[int, str]
    """The kind of a query's second fragment."""
    fragments: tuple[FragmentId, ...]
    """First, second, first, second, ... in the order of queries."""


def placed(replicas: int = REPLICAS) -> Queries:
    """Plans all of them; fragments of a query are numbered one after the other."""
    file, queries = traffic_world(replicas)
    plan = plan_queries(file, queries, "bottom_up", slots=SLOTS)
    names = [(kind, stream_of(kind, i)) for i in range(replicas) for kind in KINDS]
    ingest = plan.installation.ingest
    channels = [ingest[name, f"at {name}"][0] for _, name in names]
    reader = {c: f for f in plan.installation.fragments for c in f.ports}
    second: dict[int, str] = {}
    ordered: list[FragmentId] = []
    for (kind, _), channel in zip(names, channels, strict=True):
        below = [reader[w.channel].fragment for wires in reader[channel].outputs for w in wires]
        second.update((fragment, kind) for fragment in below)
        ordered += [reader[channel].fragment, *below]
    return Queries(plan, np.array(channels, np.int64), second, tuple(ordered))


class Paced:
    """A runner whose operators take so long per tuple, on top of their Spark plans."""

    def __init__(self, runner: Runner, tuple_s: Mapping[int, float], fragments: Iterable[int]) -> None:
        self.runner = runner
        self.waited_s = 0.0
        self._tuple_s = np.zeros(1 + max(fragments))
        self._tuple_s[list(tuple_s)] = list(tuple_s.values())

    def warm_up(self, stages: Iterable[Stage]) -> None:
        self.runner.warm_up(stages)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return self.runner.is_warm(stages)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.runner.late(stage, tables)

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.run_all([Task(stage, tables)])[0].result

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        return [
            Ran(ran.result, ran.seconds + self._work(task))
            for task, ran in zip(tasks, self.runner.run_all(tasks), strict=True)
        ]

    def _work(self, task: Task) -> float:
        """Waits for as long as the operators' own work would take."""
        tables = task.tables[: len(task.stage.reads)]
        work = sum(float(self._tuple_s[t.column(FRAGMENT).to_numpy()].sum()) for t in tables)
        if work > 0:
            self.waited_s += work
            time.sleep(work)
        return work


class Timed(StepMeasures):
    """Measures with their own cost."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.cost_s = 0.0

    def note_batch(self, batch: GroupBatch, seconds: float) -> None:
        started = time.perf_counter()
        super().note_batch(batch, seconds)
        self.cost_s += time.perf_counter() - started


@dataclass
class Arrivals:
    """A sink that notes when the results of each window of a query came, and how old their newest input was."""

    fixed_ranges: bool = False
    found: dict[int, float] = field(default_factory=dict)
    """Latency by second of event time."""

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Nothing is kept."""

    def write(self, table: pa.Table, first: int) -> Any:
        now = time.time() * 1000
        newest = table.column(NEWEST).to_numpy()
        windows = newest // 1000
        for window in np.unique(windows).tolist():
            last = float(newest[windows == window].max())
            self.found[window] = (now - last) / 1000
        return None

    def close(self) -> None:
        """Nothing is open."""


class Streets(threading.Thread):
    """Feeds the host with traffic in real time: few vehicles at first, then those of `full`, from when it is given."""

    def __init__(self, host: Host, queries: Queries, quiet: Traffic, replicas: int = REPLICAS) -> None:
        super().__init__(name="streets", daemon=True)
        self.host, self.queries, self.replicas = host, queries, replicas
        self.traffic = quiet
        self.full: Traffic | None = None
        self.ended = threading.Event()
        self.behind_s = 0.0
        self.vehicles: dict[int, NDArray[np.int64]] = {}
        """Tuples of each district, by second."""

    def run(self) -> None:
        at = time.time()
        while not self.ended.is_set():
            self.traffic, self.full = self.full or self.traffic, None
            tables, districts = [], []
            for _ in range(TICKS_PER_COMMIT):
                tables.append(self.traffic.tuples(round(at * 1000)))
                districts.append(self.traffic.districts(self.replicas))
                none = np.zeros(self.replicas, np.int64)
                self.vehicles.setdefault(int(round(at * 1000) // 1000), none)[:] += np.bincount(
                    districts[-1], minlength=self.replicas
                )
                self.traffic.tick()
                at += TICK_MS / 1000
            self.behind_s = max(self.behind_s, time.time() - at)
            self.ended.wait(max(0.0, at - time.time()))
            self._enter(pa.concat_tables(tables), np.concatenate(districts), round(at * 1000) - TICK_MS)

    def _enter(self, table: pa.Table, district: NDArray[np.int64], reached: int) -> None:
        """Whether a tuple is late is seen in the order of time; only then districts are put apart."""
        order = np.argsort(district, kind="stable")
        timely = with_hidden(table, "ts", 0, reached - TICKS_PER_COMMIT * TICK_MS)
        hidden = timely.take(pa.array(order)).combine_chunks()
        counts = np.bincount(district, minlength=self.replicas)
        offsets = np.cumsum(counts) - counts
        kinds = len(KINDS)
        marks = np.full(kinds * self.replicas, reached, np.int64)
        append = ChannelAppend(
            hidden, self.queries.channels, np.repeat(offsets, kinds), np.repeat(counts, kinds), marks
        )
        self.host.store.commit(Commit(appends=(append,)))


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run."""

    unloaded: LatencySamples
    """Before the load came."""
    latencies: LatencySamples
    """Since it came."""
    load_tps: NDArray[np.float64]
    """Tuples in each second of that."""
    step_s: float
    job_s: float
    """A job with its part of the step, without the emulated work."""
    busy: float
    """Share of the time that slots were in steps."""
    measuring: float
    """Time for measuring and deciding, to the time of steps."""
    behind_s: float
    """The greatest delay of the input: this process did not get the cores in time."""
    problems: tuple[str, ...]

    @property
    def bound_s(self) -> float:
        """Twice the unloaded latency, of the results that came."""
        came = self.unloaded.latency_s[np.isfinite(self.unloaded.latency_s)]
        return 2 * float(np.quantile(came, 0.99)) if came.size else 0.0


@dataclass(frozen=True, slots=True)
class RateProfile:
    """The course of a run's load. All of the load counts, from its first moment."""

    quiet_s: float
    """With few vehicles, once everything is warm."""
    loaded_s: float
    tail_s: float = 5.0
    """The waiting time after the last input, so that it has as much time as the first."""


def drive(
    prepared: PreparedRunner,
    directory: Path,
    queries: Queries,
    setting: BindingSetting,
    quiet: Traffic,
    full: Traffic,
    kind_s: Mapping[str, float],
    profile: RateProfile,
) -> RunOutcome:
    """Runs the queries for a while under one way of binding; fragments are dealt out in the order of queries."""
    paced = Paced(prepared, {f: kind_s[kind] for f, kind in queries.seconds.items()}, queries.fragments)
    options = RebindingOptions(setting.policy, setting.period_s, setting.installing, setting.seed)
    host = Host(HostOptions(directory, SLOTS, rebinding=options), prepared.spark, paced)
    around = Surroundings(directory, directory)
    sinks = {o.name: Arrivals() for o in queries.plan.sink_bindings}
    streets = Streets(host, queries, quiet)
    rebinder = host.rebinder
    assert rebinder is not None
    measures = rebinder.measures = host.stepper.measures = Timed(options.window)
    try:
        host.install(queries.plan.installation)
        host.routing.rebind({f: i % SLOTS for i, f in enumerate(queries.fragments)})
        host.warm_up()
        host.start()
        host.deliver(queries.plan.sink_bindings, around, sinks)
        streets.start()
        deadline = time.monotonic() + START_S
        while not any(s.found for s in sinks.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(WARM_S)
        rested = time.time()
        time.sleep(profile.quiet_s)
        before, waited_s = replace(host.totals), paced.waited_s
        began = time.time()
        streets.full = full
        time.sleep(profile.loaded_s)
        ended = time.time()
        totals, waited = replace(host.totals), paced.waited_s
        moves = rebinder.moves
        time.sleep(profile.tail_s)
        streets.ended.set()
        streets.join()
        found = {o.query: sinks[o.name].found for o in queries.plan.sink_bindings}
        problems = host.status().problems
    finally:
        streets.ended.set()
        host.stop()
    took = totals.seconds - before.seconds
    rounds = max(1, totals.rounds - before.rounds)
    return RunOutcome(
        _latencies(found, streets, rested, began, 0, profile.tail_s),
        _latencies(found, streets, began, ended, moves, profile.tail_s),
        np.array([streets.vehicles[s].sum() * len(KINDS) for s in _seconds(began, ended)], np.float64),
        took / max(1, totals.steps - before.steps),
        max(0.0, took - (waited - waited_s)) / rounds,
        took / SLOTS / (ended - began),
        (measures.cost_s + rebinder.seconds) / max(host.totals.seconds, 1e-9),
        streets.behind_s,
        problems,
    )


def _seconds(began: float, ended: float) -> range:
    """Whole seconds in between."""
    return range(int(np.ceil(began)), int(ended))


def _latencies(
    found: Mapping[str, Mapping[int, float]], streets: Streets, began: float, ended: float, moves: int, tail_s: float
) -> LatencySamples:
    """One entry for each query and second in which its district had vehicles; missing results took for ever."""
    at: list[float] = []
    latency: list[float] = []
    for second in _seconds(began, ended):
        for district in np.flatnonzero(streets.vehicles[second]).tolist():
            for kind in KINDS:
                at.append(second - int(np.ceil(began)))
                latency.append(found[stream_of(kind, district)].get(second, np.inf))
    return LatencySamples(np.array(at), np.array(latency), moves, ended - began + tail_s)
