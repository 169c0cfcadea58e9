"""Runs queries on this machine from start to end: place, install, run for a while, drain, check against the oracle.

It is the whole loop without changes of the infrastructure, in one process: the engine of `meander run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from meander.deploy.fragments import Deployment, Placed, deploy
from meander.lang.topology.reader import TopologyFile
from meander.model.errors import InputError, unknown
from meander.model.events import QueryAdded
from meander.model.ids import ChannelId, OperatorId
from meander.model.operators import Sink
from meander.model.plan import Query
from meander.model.streams import SinkTarget
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.place.nova.queries.joined import NAMES, add_joined
from meander.run.connectors import check_connectors, sink_for, source_for
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.options import ConnectorOptions
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions, HostStatus
from meander.run.installation import Installation, installation
from meander.run.oracle.batch import oracle
from meander.run.oracle.comparison import Comparison, compare
from meander.run.oracle.recording import RecordedSink, Recording
from meander.run.rebinding.options import RebindingOptions
from meander.run.reporting.status_file import RunPhase, StatusFile

MOST_CHECKED_ROWS = 2_000_000


@dataclass(frozen=True)
class LocalPlan:
    """A placed and cut set of queries, ready to be installed."""

    catalog: Catalog
    deployment: Deployment
    installation: Installation
    sink_bindings: tuple[SinkBinding, ...]
    late: tuple[SinkBinding, ...] = ()
    """Sink bindings for late tuples, where a query asks for them."""


@dataclass(frozen=True)
class RunReport:
    """The result of a run; `checks` compare each sink binding with the oracle, or say why they could not."""

    seconds: float
    drained: bool
    status: HostStatus
    checks: Mapping[str, Comparison]
    unchecked: str | None
    results: Mapping[str, int]

    @property
    def faults(self) -> tuple[str, ...]:
        """Requests that were not fulfilled, in sentences; none if the run did all of them."""
        taken_in = self.status.ingest.rows if self.status.ingest else 0
        lost, double = (sum(getattr(c, name) for c in self.checks.values()) for name in ("lost", "double"))
        found = [
            (bool(taken_in and not self.status.totals.steps), "no slot has made a step"),
            (not self.drained, "not everything that was taken in came out in time"),
            (bool(lost or double), f"{lost} results are lost, {double} double"),
            (not self.status.healthy, "something is wrong with the host"),
        ]
        return tuple(sentence for is_so, sentence in found if is_so)


def plan_queries(
    world: TopologyFile,
    queries: Sequence[Query],
    mechanism_name: str,
    *,
    slots: int = 1,
    emulate: bool = False,
    late: Path | None = None,
) -> LocalPlan:
    """Places the queries; raises when one of them cannot be placed, with the reasons.

    Late tuples go where the options of a query's sinks say, else into the folder `late` if there is one.
    """
    catalog = Catalog(world.topology, dict(world.streams), dict(world.sinks))
    joined = mechanism_name in NAMES
    if not joined and mechanism_name not in {m.name for m in MECHANISMS}:
        raise unknown("mechanism", mechanism_name, [*(m.name for m in MECHANISMS), *NAMES])
    engine = Engine(catalog, mechanism("bottom_up" if joined else mechanism_name))
    for query in queries if joined else ():
        add_joined(catalog, engine.log, query, mechanism_name)
    report = engine.run([] if joined else [QueryAdded(0, q) for q in queries])
    engine.close()
    if report.unplaced:
        operator, reason = next(iter(report.unplaced.items()))
        raise InputError(f"{len(report.unplaced)} operators could not be placed; operator {operator}: {reason}")
    deployment = deploy(Placed(catalog.plan, catalog.placement, catalog.topology))
    delays: dict[ChannelId, int] = {}
    if emulate:
        delays = {c.id: round(c.path.latency_ms) for c in deployment.channels.values() if c.path is not None}
    bindings = {fragment: i % slots for i, fragment in enumerate(deployment.fragments)}
    late_sinks = late_targets(catalog, late)
    installed = installation(catalog.plan, deployment, bindings, delays, late_sinks)
    sink_bindings = [
        SinkBinding(name, _target(catalog, sink), installed.results[sink])
        for name, running in catalog.plan.queries.items()
        for sink in running.sinks
    ]
    query_of = {sink: name for name, running in catalog.plan.queries.items() for sink in running.sinks}
    late_bindings = [
        SinkBinding(
            query_of[o.sink], replace(late_sinks[o.sink], name=f"{late_sinks[o.sink].name}-{o.label}"), o.channel
        )
        for o in installed.late
    ]
    return LocalPlan(catalog, deployment, installed, tuple(sink_bindings), tuple(late_bindings))


def _target(catalog: Catalog, sink: OperatorId) -> SinkTarget:
    spec = catalog.plan[sink].spec
    assert isinstance(spec, Sink)
    return catalog.sinks[spec.name]


def late_targets(catalog: Catalog, folder: Path | None = None) -> dict[OperatorId, SinkTarget]:
    """The sinks of late tuples, by sink of their query. A query with several sinks sends them once to each place."""
    found: dict[OperatorId, SinkTarget] = {}
    for running in catalog.plan.queries.values():
        places: set[str] = set()
        for sink in running.sinks:
            target = _target(catalog, sink)
            name = target.options.get("late")
            if name is not None and name not in catalog.sinks:
                raise InputError(f"sink {target.name!r}: option 'late': {unknown('sink', name, catalog.sinks).message}")
            if name is not None and name not in places:
                places.add(name)
                found[sink] = catalog.sinks[name]
        if not places and folder is not None:
            options = {"path": str(folder.absolute() / "{query}-{sink}.jsonl")}
            found[running.sinks[0]] = SinkTarget("late", _target(catalog, running.sinks[0]).node, options)
    return found


def check_plan(plan: LocalPlan, base: Path) -> None:
    """Raises InputError for sources and sinks that could not be opened, before Spark starts."""
    streams = {s for s, _ in plan.installation.ingest}
    sinks = [o.target for o in (*plan.sink_bindings, *plan.late)]
    check_connectors((plan.catalog.streams[s] for s in streams), sinks, Surroundings(base, base))


def run_embedded(
    spark: SparkSession,
    plan: LocalPlan,
    directory: Path,
    base: Path,
    *,
    seconds: float,
    slots: int = 1,
    rebinding: RebindingOptions | None = None,
    check: bool = True,
    runner: Runner | None = None,
    progress: Callable[[float, HostStatus], None] = lambda elapsed, status: None,
) -> RunReport:
    """Runs for a while, drains, and checks every result against the oracle; its status is in `base` meanwhile."""
    around = Surroundings(base, directory)
    streams = {s: plan.catalog.streams[s] for s, _ in plan.installation.ingest}
    recordings = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in streams.items()}
    sinks = {o.name: RecordedSink(sink_for(o, around)) for o in plan.sink_bindings}
    host = Host(HostOptions(directory, slots, rebinding=rebinding), spark, runner)
    try:
        host.install(plan.installation)
        host.start()
        host.warm_up()
        host.wait_for_slots()
        host.deliver((*plan.sink_bindings, *plan.late), around, sinks)
        host.feeding.begin(streams.values(), around, recordings)
        with StatusFile(base, host.status) as shown:
            started = time.monotonic()
            while (elapsed := time.monotonic() - started) < seconds and (status := host.status()).alive:
                progress(elapsed, status)
                time.sleep(min(0.5, max(0.0, seconds - elapsed)))
            shown.phase = RunPhase.DRAINING
            drained = host.drain(end_streams=True)
            status = host.status()
            shown.phase = RunPhase.CHECKING
            checks, unchecked = (
                check_results(spark, plan.catalog, plan.sink_bindings, recordings, sinks)
                if check
                else ({}, "not asked for")
            )
        assert status.delivery is not None
        rows = {o.name: status.delivery.sink_bindings[o.name].rows for o in plan.sink_bindings}
        return RunReport(time.monotonic() - started, drained, status, checks, unchecked, rows)
    finally:
        host.stop()


def check_results(
    spark: SparkSession,
    catalog: Catalog,
    sink_bindings: Sequence[SinkBinding],
    recordings: Mapping[str, Recording],
    sinks: Mapping[str, RecordedSink],
) -> tuple[dict[str, Comparison], str | None]:
    """Compares the sinks' results with the oracle's, from the sources' tuples; or gives the reason why that is not
    possible."""
    if not all(r.complete for r in recordings.values()):
        return {}, f"more than {MOST_CHECKED_ROWS:,} tuples of a stream: too many to check"
    inputs = {name: r.table() for name, r in recordings.items()}
    disorder = {
        name: ConnectorOptions(s.options, f"stream {name!r}").duration("disorder", 0) or 0
        for name, s in catalog.streams.items()
    }
    found: dict[str, Comparison] = {}
    for name, running in catalog.plan.queries.items():
        mine = [o for o in sink_bindings if o.query == name]
        expected = oracle(spark, running.query.plan, inputs, disorder) if mine else {}
        for binding in mine:
            found[binding.name] = compare(expected[binding.target.name], sinks[binding.name].table())
    return found, None
