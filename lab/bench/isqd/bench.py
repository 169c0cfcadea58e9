"""Do running queries follow a changing topology at the price of the change? Incremental deployment, all experiments.

`live` changes topologies under running queries, `makespan` compares with restarts, `state` moves state from process to
process; here are the matrix of cases and the extent of a change.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.bench.report import Figure, Report
from lab.experiments.local_dry_run import LocalDryRun
from lab.workloads.isqd import DeviceShape, generated, scenarios

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lab.bench.isqd.live import ReplayCase

TOUCHED_GOAL = 1.2
SHORTEST_S = 0.25
SOURCES = (2, 4, 8, 16)
STATELESS = DeviceShape(sources=8, mobile=1)
STATEFUL = DeviceShape(sources=16, mobile=2, stateful=True)
SMALL = DeviceShape(sources=4, mobile=2, stateful=True)
PLOTS = "MEANDER_PLOTS"
"""The environment variable that names a folder for plots of a full run."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class IsqdExtent:
    """The extent of the measurement."""

    shapes: tuple[DeviceShape, ...]
    published: tuple[str, ...]
    """Scenarios of which each is replayed at the shortest period, if they are at hand."""
    changes_s: float
    """The time of changes in each replay."""
    quiet_s: float
    makespans: tuple[DeviceShape, ...]
    rounds: int
    restarts: int
    sizes: tuple[int, ...]
    hops: tuple[int, ...]
    hops_megabytes: int
    replay_megabytes: int
    repeats: int


def matrix() -> tuple[DeviceShape, ...]:
    """One parameter at a time, as published: sources, mobile sources, period, topology, intermediates."""
    found = [replace(base, sources=n) for base in (STATELESS, STATEFUL) for n in SOURCES]
    found += [replace(STATELESS, sources=16, mobile=n, period_s=2.0) for n in (1, 2, 4, 8, 16)]
    found += [replace(STATEFUL, mobile=n, period_s=2.0) for n in (2, 4, 8, 16)]
    periods = (4.0, 2.0, 1.0, 0.5, SHORTEST_S)
    found += [replace(base, period_s=period) for base in (STATELESS, STATEFUL) for period in periods]
    found += [replace(SMALL, links=links, period_s=2.0) for links in ("tree", "circular", "full")]
    found += [replace(SMALL, intermediates=n, period_s=2.0) for n in (1, 2, 4, 8, 16)]
    return tuple(dict.fromkeys(found))


FULL = IsqdExtent(
    shapes=matrix(),
    published=("",),
    changes_s=12.0,
    quiet_s=5.0,
    makespans=(STATELESS, STATEFUL),
    rounds=6,
    restarts=5,
    sizes=(16, 32, 64, 128, 256, 512, 1024),
    hops=(1, 2, 4, 8, 16),
    hops_megabytes=32,
    replay_megabytes=128,
    repeats=3,
)
QUICK = IsqdExtent(
    shapes=(replace(STATELESS, period_s=SHORTEST_S),),
    published=("stateful_4src_2change_tree",),
    changes_s=6.0,
    quiet_s=3.0,
    makespans=(SMALL,),
    rounds=3,
    restarts=1,
    sizes=(16,),
    hops=(16,),
    hops_megabytes=16,
    replay_megabytes=16,
    repeats=1,
)
NOTES = (
    "a change moves devices of all ten queries; in effect: from when it was due until all of it had taken effect",
    "growth of the queue: how much later changes are in effect in the last third than in the first; goal: one period",
    "latency is from the newest tuple that a result depends on; quiet is the mean of the phases before and after",
    "makespans: protocols take turns, change by change, under the same queries, and move state the same way",
    "restarts on the data plane stop and begin again all fragments of a query, but no streaming query of Spark",
    "restarts of plain Spark stop and start each query's streaming query until it has taken what waited in files",
    "one Spark session for everything; lost and double are against a batch run over the same input",
)
QUICK_NOTES = (
    "quick: two replays at the shortest period, one makespan, 16 MB of state; the matrix is in the full run",
)


def run(quick: bool, progress: Progress) -> Report:
    """All parts; `quick` takes few cases, short ones."""
    extent = QUICK if quick else FULL
    figures = touched(progress)
    progress("starting Spark")
    from meander.run.session import start_session  # Spark is imported only when it is needed

    spark = start_session("meander-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-bench-") as work:
            figures += measure(spark, Path(work), extent, progress)
    finally:
        spark.stop()
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    from lab.bench.isqd import state as isqd_state

    notes = NOTES + isqd_state.notes() + (QUICK_NOTES if quick else ())
    return Report(
        "isqd",
        f"{len(cases(extent))} replays of changes under ten queries, generated and published; "
        f"state of {', '.join(map(str, extent.sizes))} MB",
        extent.repeats,
        tuple(figures),
        (*notes, f"processes that wanted a core at the end: {busy:.1f} for each"),
    )


def touched(progress: Progress) -> list[Figure]:
    """Fragments that a change touches, by sources that stay where they are."""
    progress("fragments touched")
    figures: list[Figure] = []
    for kind, base in (("stateless", STATELESS), ("stateful", STATEFUL)):
        counts = {}
        for sources in SOURCES:
            dry_run = LocalDryRun(generated(replace(base, sources=sources, changes=20)))
            counts[sources] = [change.fragments for change in dry_run.changes()]
        few, many = (statistics.mean(counts[n]) for n in (min(SOURCES), max(SOURCES)))
        name = f"fragments touched, {kind}"
        figures.append(Figure.of(f"{name}, {max(SOURCES)} to {min(SOURCES)} sources", "x", [many / few], TOUCHED_GOAL))
        figures += [Figure.of(f"{name}, {n} sources", "", counts[n]) for n in SOURCES]
    return figures


def cases(extent: IsqdExtent) -> list[ReplayCase]:
    """All replays; of a published scenario as many changes as there is time for."""
    from lab.bench.isqd.live import ReplayCase, lasting

    found = [ReplayCase(lasting(shape, extent.changes_s)) for shape in extent.shapes]
    wanted = scenarios() if "" in extent.published else [n for n in scenarios() if n in extent.published]
    for name in wanted:
        shape = DeviceShape(stateful="stateful" in name, mobile=2, period_s=SHORTEST_S)
        found.append(ReplayCase(lasting(shape, extent.changes_s), name))
    if not wanted:
        found.append(ReplayCase(lasting(replace(SMALL, period_s=SHORTEST_S), extent.changes_s)))
    return found


def measure(spark: SparkSession, work: Path, extent: IsqdExtent, progress: Progress) -> list[Figure]:
    """Every figure that needs Spark, part after part."""
    from lab.bench.isqd import live as isqd_live
    from lab.bench.isqd import makespan as isqd_makespan
    from lab.bench.isqd import plots as isqd_plots
    from lab.bench.isqd import state as isqd_state

    lives = isqd_live.measure(spark, work / "live", cases(extent), extent.quiet_s, progress)
    figures = [figure for live in lives for figure in live.figures()]
    for number, shape in enumerate(extent.makespans):
        place = work / f"makespan {number}"
        figures += isqd_makespan.measure(spark, place, shape, extent.rounds, extent.restarts, progress).figures()
    state = isqd_state.measure(
        spark,
        work / "state",
        extent.sizes,
        extent.hops,
        extent.repeats,
        progress,
        hops_megabytes=extent.hops_megabytes,
        replay_megabytes=extent.replay_megabytes,
    )
    if os.environ.get(PLOTS):
        isqd_plots.draw(lives, state, Path(os.environ[PLOTS]))
    return figures + state
