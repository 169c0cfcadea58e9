"""Transitions of congestion queries that run: the cost of each protocol, and its effect on the output.

All queries switch at the same time, by one protocol after the other, always between the same two mechanisms; between
them they go back, unmeasured. In the end all results are compared with the oracle.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lab.bench.report import Figure
from meander.coordinator.adaptation.transition_costs import Cost

if TYPE_CHECKING:
    from lab.experiments.tcep_live import LiveStage, SwitchedQueries

BEYOND_GOAL_S = 1.5
MFGS_GOAL, RESTART_GOAL, RESTART_QUERIES = 3.0, 15.0, 10
"""Stopping and starting plain Spark takes as long as there are queries; the goal is that of so many."""
AUTO_GOAL = 1.5
BEST = "sms_concurrent"
ROUND_TRIP = "at_once"
SLICE_S = 0.5
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TransitionExtent:
    """The extent of the measurement."""

    queries: int
    window_ms: int
    within_ms: int
    protocols: tuple[str, ...]
    rounds: int
    quiet_s: float
    restarts: int
    """Of plain Spark queries; none without."""
    slower: float | None = None
    """Links are emulated, with so many times less bandwidth than those of the road; None: state travels for nothing."""


FULL = TransitionExtent(
    10,
    1_000,
    5_000,
    ("sms_concurrent", "mfgs_sequential", "restart", "mfgs_concurrent", "at_once", "sms_sequential", "auto"),
    rounds=3,
    quiet_s=15.0,
    restarts=3,
)
EMULATED = tuple(
    TransitionExtent(
        3,
        500,
        500,
        ("mfgs_concurrent", "at_once", "sms_concurrent", "auto"),
        rounds=2,
        quiet_s=3.0,
        restarts=0,
        slower=slower,
    )
    for slower in (1.0, 200.0)
)
"""With the links of the road, and with links so slow that windows end sooner than state travels."""
QUICK = TransitionExtent(
    3,
    500,
    500,
    ("sms_concurrent", "mfgs_sequential", "mfgs_concurrent", "restart", "auto"),
    rounds=1,
    quiet_s=5.0,
    restarts=1,
)


@dataclass
class Found:
    """All measures."""

    extent: TransitionExtent
    operators: int
    switched: dict[str, list[SwitchedQueries]] = field(default_factory=dict)
    quiet_gap_s: float = 0.0
    lost: int = 0
    double: int = 0
    plain_s: list[float] = field(default_factory=list)
    rates: dict[str, tuple[float, float, list[int]]] = field(default_factory=dict)
    """Of the first round: seconds before and after the begin of the transition, and results in each slice."""
    ends: dict[str, float] = field(default_factory=dict)
    """Seconds from the begin to the end of that transition."""


def measure(extent: TransitionExtent, progress: Progress) -> Found:
    """Runs everything on a Spark session of its own."""
    from lab.baselines.plain_roads import PlainRoads
    from lab.experiments.tcep_live import Scene, on_stage
    from meander.run.session import start_session

    progress("starting Spark")
    spark = start_session("meander-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-tcep-", ignore_cleanup_errors=True) as name:
            directory = Path(name)
            emulated = extent.slower is not None
            scene = Scene(extent.queries, extent.window_ms, extent.within_ms, slower=extent.slower or 1.0)
            with on_stage(spark, scene, directory / "ours", emulated=emulated) as stage:
                found = _switch(stage, extent, progress)
                progress("comparing all results with the oracle")
                found.lost, found.double = stage.check(spark)
            if extent.restarts:
                progress(f"stopping and starting {extent.queries} plain Spark queries")
                plain = PlainRoads(spark, directory, extent.queries, extent.window_ms, extent.within_ms)
                with plain as queries:
                    found.plain_s = [queries.restarted() for _ in range(extent.restarts)]
        return found
    finally:
        spark.stop()


def _switch(stage: LiveStage, extent: TransitionExtent, progress: Progress) -> Found:
    found = Found(extent, len(stage.loop.catalog.plan.operators))
    progress(f"{extent.queries} congestion queries, {found.operators} operators: there and back once, to warm up")
    stage.switch(ROUND_TRIP)
    stage.switch(ROUND_TRIP, back=True)
    stage.rest(extent.quiet_s)
    for turn in range(extent.rounds):
        for protocol in extent.protocols:
            progress(f"{protocol}, round {turn + 1} of {extent.rounds}")
            done = stage.switch(protocol)
            if done.failures:
                raise RuntimeError(f"{protocol}: {done.failures[0]}")
            found.switched.setdefault(protocol, []).append(done)
            stage.rest(extent.quiet_s / 3)
            if not turn:
                start, end = done.started - extent.quiet_s / 3, done.ended + extent.quiet_s / 3
                found.rates[protocol] = (start - done.started, end - done.started, stage.rate(start, end, SLICE_S))
                found.ends[protocol] = done.seconds
            stage.switch(ROUND_TRIP, back=True)
            stage.rest(extent.quiet_s)
    found.quiet_gap_s = stage.quiet_gap_s()
    return found


def figures(found: Found) -> Iterator[Figure]:
    """The reported figures, targets first."""
    best = found.switched[BEST]
    beyond = [s.seconds - s.waiting_s for s in best]
    name = f"{found.extent.queries} congestion queries, {found.operators} operators"
    yield Figure.of(f"{name}: {BEST}, beyond the window wait", "s", beyond, BEYOND_GOAL_S)
    yield from _ratios(found, beyond)
    yield from _auto(found)
    for protocol, runs in found.switched.items():
        goal = 1.0 if protocol.startswith("sms") else None
        gaps = [s.longest_gap_s / found.quiet_gap_s for s in runs]
        yield Figure.of(f"{protocol}: longest gap in the output, to that of quiet times", "x", gaps, goal)
    yield Figure.of("results lost over all transitions", "", [found.lost], 0)
    yield Figure.of("results double over all transitions", "", [found.double], 0)
    yield Figure.of("longest gap in the output, quiet times", "s", [found.quiet_gap_s])
    for protocol, runs in found.switched.items():
        yield from _of_protocol(protocol, runs)
    if found.plain_s:
        yield Figure.of(f"{found.extent.queries} plain Spark queries stopped and started", "s", found.plain_s)


def emulated_figures(found: Found) -> Iterator[Figure]:
    """Auto where links limit what travels; it has to be about as soon as the best of those that it mixes."""
    where = f"links with 1/{found.extent.slower:g} of the road's bandwidth"
    times = {protocol: statistics.median(s.seconds for s in runs) for protocol, runs in found.switched.items()}
    best = min(seconds for protocol, seconds in times.items() if protocol != "auto")
    name = f"{where}: auto, to the best of the others"
    yield Figure.of(name, "x", [s.seconds / best for s in found.switched["auto"]], AUTO_GOAL)
    yield Figure.of(f"{where}: results lost", "", [found.lost], 0)
    yield Figure.of(f"{where}: results double", "", [found.double], 0)
    for protocol, runs in found.switched.items():
        yield Figure.of(f"{where}: {protocol}, all queries", "s", [s.seconds for s in runs])
        yield Figure.of(f"{where}: {protocol}, sent", "bytes", [_bytes(s) for s in runs])
        gaps = [s.longest_gap_s / found.quiet_gap_s for s in runs]
        yield Figure.of(f"{where}: {protocol}, longest gap, to that of quiet times", "x", gaps)
        ratios = [s.predicted_s / s.seconds for s in runs]
        yield Figure.of(f"{where}: {protocol}, predicted to measured time", "x", ratios)


def _ratios(found: Found, beyond: Sequence[float]) -> Iterator[Figure]:
    """Others to the best, beyond its window wait. Stop and restart is a goal where it is what a Spark user has."""
    base = statistics.median(beyond)
    runs = [s.seconds / base for s in found.switched.get("mfgs_sequential", ())]
    if runs:
        yield Figure.of("mfgs_sequential takes so many times as long", "x", runs, MFGS_GOAL, at_least=True)
    if found.plain_s:
        ratio = [seconds / base for seconds in found.plain_s]
        name = "stopping and starting plain Spark takes so many times as long"
        goal = RESTART_GOAL * min(1.0, found.extent.queries / RESTART_QUERIES)
        yield Figure.of(name, "x", ratio, goal, at_least=True)
    runs = [s.seconds / base for s in found.switched.get("restart", ())]
    if runs:
        yield Figure.of("restart on the data plane takes so many times as long", "x", runs)


def _auto(found: Found) -> Iterator[Figure]:
    """Auto against the fixed protocols, from the decision to the last effect, waiting included."""
    runs = found.switched.get("auto", [])
    if not runs:
        return
    seconds, size = statistics.median(s.seconds for s in runs), statistics.median(_bytes(s) for s in runs)
    for protocol, others in found.switched.items():
        if protocol != "auto":
            yield Figure.of(
                f"{protocol} takes so many times as long as auto", "x", [s.seconds / seconds for s in others]
            )
            yield Figure.of(f"{protocol} sends so many times as much as auto", "x", [_bytes(s) / size for s in others])
    for protocol, all_runs in found.switched.items():
        ratios = [s.predicted_s / s.seconds for s in all_runs]
        yield Figure.of(f"{protocol}: predicted to measured time of the slowest query", "x", ratios)


def _bytes(switched: SwitchedQueries) -> float:
    return float(max(1, sum(c.bytes for c in switched.costs)))


def _of_protocol(protocol: str, runs: Sequence[SwitchedQueries]) -> Iterator[Figure]:
    """Time and bytes, by part and by kind of operator; parts are those of one query."""
    costs = [c for s in runs for c in s.costs]
    yield Figure.of(f"{protocol}: all queries", "s", [s.seconds for s in runs])
    if any(s.windows_s for s in runs):
        yield Figure.of(f"{protocol}: of that, windows by themselves", "s", [s.windows_s for s in runs])
    for part in ("placement_s", "migration_s", "waiting_s", "tidying_s"):
        yield Figure.of(f"{protocol}: {part.removesuffix('_s')}, one query", "s", [getattr(c, part) for c in costs])
    parts = ("control_messages", ""), ("control_bytes", "bytes"), ("state_bytes", "bytes"), ("overlap_bytes", "bytes")
    for part, unit in parts:
        label = part.replace("_", " ").removesuffix(" bytes")
        values = [sum(getattr(c, part) for c in s.costs) for s in runs]
        yield Figure.of(f"{protocol}: {label}, all queries", unit, values)
    yield from _by_kind(protocol, costs)


def _by_kind(protocol: str, costs: Sequence[Cost]) -> Iterator[Figure]:
    moved = [m for c in costs for m in c.operators]
    for kind in sorted({m.kind for m in moved}):
        mine = [m for m in moved if m.kind == kind]
        yield Figure.of(f"{protocol}, {kind}: migration of an operator", "ms", [1000 * m.migration_s for m in mine])
        yield Figure.of(f"{protocol}, {kind}: state of an operator", "bytes", [m.state_bytes for m in mine])


def plot(found: Found, path: Path) -> None:
    """Results per second around the first transition of each protocol."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = list(found.rates)
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(9, 1.7 * len(shown)), squeeze=False)
    for (axis,), protocol in zip(axes, shown, strict=True):
        start, _, counts = found.rates[protocol]
        times = [start + SLICE_S * i for i in range(len(counts))]
        axis.step(times, [c / SLICE_S for c in counts], where="post")
        axis.axvspan(0, found.ends[protocol], alpha=0.15)
        axis.set_title(protocol, fontsize="small", loc="left")
        axis.set_ylabel("results/s", fontsize="small")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[-1][0].set_xlabel("seconds since the transition began; shaded: under way")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
