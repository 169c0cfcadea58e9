"""Runs queries on this machine from start to end: place, install, run for a while, drain, check against the oracle.

It is the whole loop without changes of the infrastructure, in one process, and what `meander run` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from meander.deploy.fragments import Deployment, deploy
from meander.lang.topology_file import TopologyFile
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import ChannelId
from meander.model.operators import Sink
from meander.model.plan import Query
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.comparison import Comparison, compare
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import Outlet, Surroundings
from meander.run.connectors.options import Options
from meander.run.host import Host, HostOptions, HostStatus
from meander.run.installation import Installation, installation
from meander.run.oracle import oracle
from meander.run.recording import RecordedSink, Recording
from meander.run.step import Runner

MOST_CHECKED_ROWS = 2_000_000


@dataclass(frozen=True)
class Plan:
    """A placed and cut set of queries, ready to be installed."""

    catalog: Catalog
    deployment: Deployment
    installation: Installation
    outlets: tuple[Outlet, ...]


@dataclass(frozen=True)
class RunReport:
    """What a run did; `checks` compare each outlet with the oracle, or say why they could not."""

    seconds: float
    drained: bool
    status: HostStatus
    checks: Mapping[str, Comparison]
    unchecked: str | None
    results: Mapping[str, int]


def plan_queries(
    world: TopologyFile, queries: Sequence[Query], mechanism_name: str, *, slots: int = 1, emulate: bool = False
) -> Plan:
    """Places the queries; raises when one of them cannot be placed, with the reasons."""
    catalog = Catalog(world.topology, dict(world.streams), dict(world.sinks))
    engine = Engine(catalog, mechanism(mechanism_name))
    report = engine.run([QueryAdded(0, q) for q in queries])
    engine.close()
    if report.unplaced:
        operator, reason = next(iter(report.unplaced.items()))
        raise InputError(f"{len(report.unplaced)} operators could not be placed; operator {operator}: {reason}")
    deployment = deploy(catalog.plan, catalog.placement)
    delays: dict[ChannelId, int] = {}
    if emulate:
        delays = {c.id: round(c.path.latency_ms) for c in deployment.channels.values() if c.path is not None}
    bindings = {fragment: i % slots for i, fragment in enumerate(deployment.fragments)}
    installed = installation(catalog.plan, deployment, bindings, delays)
    outlets = []
    for name, running in catalog.plan.queries.items():
        for sink in running.sinks:
            spec = catalog.plan[sink].spec
            assert isinstance(spec, Sink)
            outlets.append(Outlet(name, catalog.sinks[spec.name], installed.results[sink]))
    return Plan(catalog, deployment, installed, tuple(outlets))


def run_embedded(
    spark: SparkSession,
    plan: Plan,
    directory: Path,
    base: Path,
    *,
    seconds: float,
    slots: int = 1,
    check: bool = True,
    runner: Runner | None = None,
    progress: Callable[[float, HostStatus], None] = lambda elapsed, status: None,
) -> RunReport:
    """Runs for a while, drains, and checks every result against the oracle."""
    around = Surroundings(base, directory)
    streams = {s: plan.catalog.streams[s] for s, _ in plan.installation.ingest}
    recordings = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in streams.items()}
    sinks = {o.name: RecordedSink(sink_for(o, around)) for o in plan.outlets}
    host = Host(HostOptions(directory, slots), spark, runner)
    try:
        host.install(plan.installation)
        host.start()
        host.warm_up()
        host.deliver(plan.outlets, around, sinks)
        host.feed(streams.values(), around, recordings)
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds and host.status().healthy:
            progress(elapsed, host.status())
            time.sleep(min(0.5, max(0.0, seconds - elapsed)))
        drained = host.drain(end_streams=True)
        status = host.status()
        checks, unchecked = _check(spark, plan, recordings, sinks) if check else ({}, "not asked for")
        rows = {name: o.rows for name, o in status.delivery.outlets.items()} if status.delivery else {}
        return RunReport(time.monotonic() - started, drained, status, checks, unchecked, rows)
    finally:
        host.stop()


def _check(
    spark: SparkSession, plan: Plan, recordings: Mapping[str, Recording], sinks: Mapping[str, RecordedSink]
) -> tuple[dict[str, Comparison], str | None]:
    if not all(r.complete for r in recordings.values()):
        return {}, f"more than {MOST_CHECKED_ROWS:,} tuples of a stream: too many to check"
    inputs = {name: r.table() for name, r in recordings.items()}
    disorder = {
        name: Options(s.options, f"stream {name!r}").duration("disorder", 0) or 0
        for name, s in plan.catalog.streams.items()
    }
    found: dict[str, Comparison] = {}
    for name, running in plan.catalog.plan.queries.items():
        expected = oracle(spark, running.query.plan, inputs, disorder)
        for outlet in (o for o in plan.outlets if o.query == name):
            found[outlet.name] = compare(expected[outlet.target.name], sinks[outlet.name].table())
    return found, None
