"""Changes under running queries: whether the system keeps up, the latency, and lost or double results.

Each case is a replay on Spark: quiet, changes at their period, quiet again; then all is compared with the oracle.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from lab.bench.report import Figure
from lab.workloads.isqd import DeviceShape, generated, published
from meander.local.placement_replay import Setting
from meander.local.replay import replay_live
from meander.local.replay_options import ReplayOptions
from meander.local.replay_report import ReplayReport

IN_EFFECT_GOAL_S = 1.0
LATENCY_GOALS = {"p50": 1.2, "p95": 2.0}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """One replay: a shape or a published scenario at a period."""

    shape: DeviceShape
    scenario: str | None = None

    @property
    def title(self) -> str:
        return f"{self.scenario}, every {self.shape.period_s:g} s" if self.scenario else self.shape.title

    def setting(self) -> Setting:
        return published(self.scenario, self.shape.period_s) if self.scenario else generated(self.shape)


@dataclass(frozen=True, slots=True)
class Live:
    """A case with its result."""

    case: ReplayCase
    report: ReplayReport

    def growth_s(self) -> float:
        """The growth of the time until changes are in effect, from the first third of the run to the last."""
        took = [c.in_effect_s for c in self.report.changes]
        third = max(1, len(took) // 3)
        return statistics.median(took[-third:]) - statistics.median(took[:third]) if took else float("nan")

    def latency_ratio(self, share: str) -> float:
        """Latency during changes to that of both quiet phases."""
        name = f"{share}_ms"
        quiet = [getattr(self.report.latency[phase], name) for phase in ("before", "after")]
        return float(getattr(self.report.latency["during"], name) / statistics.mean(quiet))

    def figures(self) -> Iterator[Figure]:
        title, report = self.case.title, self.report
        yield Figure.of(f"{title}: in effect, p95", "s", [report.quantile("in_effect_s", 0.95)], IN_EFFECT_GOAL_S)
        yield Figure.of(f"{title}: growth of the queue", "s", [self.growth_s()], self.case.shape.period_s)
        yield Figure.of(f"{title}: changes not in effect", "", [report.unfinished + len(report.failures)], 0)
        for share, goal in LATENCY_GOALS.items():
            name = f"{title}: latency {share}, changes to quiet"
            yield Figure.of(name, "x", [self.latency_ratio(share)], goal)
        checked = report.unchecked is None and report.drained
        yield Figure.of(f"{title}: lost", "", [report.lost if checked else float("nan")], 0)
        yield Figure.of(f"{title}: double", "", [report.double if checked else float("nan")], 0)
        for name in ("queued", "placement", "contexts", "markers", "state", "in_effect"):
            label = name.replace("_", " ")
            yield Figure.of(f"{title}: {label}, p50", "ms", [1000 * report.quantile(f"{name}_s", 0.5)])
        for phase, latency in report.latency.items():
            yield Figure.of(f"{title}: latency p50 {phase}", "ms", [latency.p50_ms])
        yield Figure.of(f"{title}: fragments touched, p50", "", [report.quantile("fragments", 0.5)])
        yield Figure.of(f"{title}: state moved", "bytes", [sum(c.state_bytes for c in report.changes)])


def measure(
    spark: SparkSession, directory: Path, cases: Sequence[ReplayCase], quiet_s: float, progress: Progress
) -> list[Live]:
    """Runs every case once, after a short one that does not count: code that never ran is slow the first time."""
    warm = DeviceShape(queries=2, sources=2, mobile=2, stateful=any(c.shape.stateful for c in cases), changes=4)
    found: list[Live] = []
    for number, case in enumerate([ReplayCase(warm), *cases]):
        progress(f"{case.title} ({number} of {len(cases)})" if number else "warming up")
        work = directory / f"live {number}"
        work.mkdir(parents=True)
        options = ReplayOptions(quiet_s=quiet_s if number else 1.0, most_changes=case.shape.changes, check=number > 0)
        report = replay_live(spark, case.setting(), work / "host", work, options)
        if number:
            found.append(Live(case, report))
    return found


def lasting(shape: DeviceShape, seconds: float) -> DeviceShape:
    """The shape with as many changes as come in so many seconds, but some at least."""
    return replace(shape, changes=max(8, round(seconds / shape.period_s)))
