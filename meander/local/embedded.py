"""Runs queries on this machine from start to end: place, install, run for a while, drain, check against the oracle.

It is the whole loop without changes of the infrastructure, in one process: the engine of `meander run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from meander.local.recorded_run import RecordedRun
from meander.local.run_plan import LocalPlan
from meander.run.connectors.base import Surroundings
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions, HostStatus
from meander.run.oracle.comparison import Comparison
from meander.run.rebinding.options import RebindingOptions
from meander.run.reporting.status_file import RunPhase, StatusFile


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
    recorded = RecordedRun(streams, around)
    for binding in plan.sink_bindings:
        recorded.add(binding)
    host = Host(HostOptions(directory, slots, rebinding=rebinding), spark, runner)
    try:
        host.install(plan.installation)
        host.start()
        host.warm_up()
        host.wait_for_slots()
        host.deliver((*plan.sink_bindings, *plan.late), around, recorded.sinks)
        host.feeding.begin(streams.values(), around, recorded.sources)
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
                recorded.check(spark, plan.catalog, plan.sink_bindings) if check else ({}, "not asked for")
            )
        assert status.delivery is not None
        rows = {o.name: status.delivery.sink_bindings[o.name].rows for o in plan.sink_bindings}
        return RunReport(time.monotonic() - started, drained, status, checks, unchecked, rows)
    finally:
        host.stop()
