"""A day with two environments: calm hours, and two rush hours with vehicles on the move.

In calm hours the queries ask for little network usage, in rush hours for low latency, and always for little overhead.
How much they ask for is set by a rule, on a day of its own that is not judged (`calibrated`): in each environment a
third of the mechanisms could meet the bound in 19 of 20 rounds, that on overhead in all of them. Each mechanism is run
alone, as it is and also placed again every half hour; then the loop runs with all of them. What counts is the share of
queries and rounds in which all demands that apply are met, transitions included, on days with other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.bench.report import Figure
from lab.experiments.tcep_world import CALM, MINUTE_MS, RUSH, DayTraffic, RoadWorld
from lab.workloads import tcep as road
from meander.adapt.decisions import Decision, DecisionAction, Transition
from meander.adapt.execute import begin
from meander.adapt.loop import AdaptationLoop
from meander.adapt.measure_history import Span
from meander.adapt.measures import Measures
from meander.adapt.monitors import MONITORS
from meander.adapt.selection import selector
from meander.adapt.settings import AdaptationSettings
from meander.model.conditions import Fact
from meander.model.demands import Metric
from meander.model.plan import Query
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.place.mechanisms.base import Mechanism

RUSH_HOURS = (7, 8, 9, 16, 17, 18)
KINDS = ("congestion", "join")
CALIBRATION_SEED = 1_000
ABLE = 1 / 3
"""The share of mechanisms that can meet a bound."""
ROUNDS_MET = {Metric.LATENCY: 0.95, Metric.NETWORK_USAGE: 0.95, Metric.OVERHEAD: 1.0}
"""In how many rounds of its environment. Placing is rare and must fit into the bound on overhead too."""
SETTINGS = AdaptationSettings(
    stay_ms=3 * MINUTE_MS,
    period_ms=20 * MINUTE_MS,
    violated_rounds=1,
    retry_ms=2 * MINUTE_MS,
    longest_retry_ms=30 * MINUTE_MS,
    quarantine_ms=10 * MINUTE_MS,
    try_early=True,
)
AGAIN_EVERY_MS = 30 * MINUTE_MS
WINDOW = {m.metric: m for m in MONITORS}
GOAL = 0.95


@dataclass(slots=True)
class DemandTally:
    """In how many rounds a query had all that it demands."""

    met: int = 0
    asked: int = 0
    transitions: int = 0
    control_bytes: float = 0.0
    decisions: list[Decision] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.met / self.asked if self.asked else 0.0

    def judge(self, queries: Sequence[Query], measures: Measures, hour: int) -> None:
        """Counts one round. A value that cannot be read, because the query does not run, is not met."""
        facts = {Fact.HOUR: float(hour)}
        for query in queries:
            seen = measures.queries[query.id]
            self.control_bytes += seen.control_bytes
            span = Span(measures.at_ms, measures.span_ms, seen, measures.loads)
            applying = [demand for demand in query.demands if demand.applies(facts)]
            values = [WINDOW[demand.metric].read([span]) for demand in applying]
            self.asked += 1
            self.met += all(v is not None and d.met(v) for d, v in zip(applying, values, strict=True))


Demands = Mapping[str, tuple[str, ...]]
"""By kind of query."""


def queries(demands: Demands | None = None) -> list[Query]:
    return [road.query(kind, kind, (demands or {}).get(kind, ())) for kind in KINDS]


def demands_of(latency_ms: float, usage_bytes: float, overhead_bytes: float) -> tuple[str, ...]:
    """The demands of a query: latency in rush hours, network usage otherwise, overhead always."""
    rush = f"latency < {latency_ms:g} ms"
    hours = f"WHEN hour BETWEEN 7 AND 9 THEN {rush} WHEN hour BETWEEN 16 AND 18 THEN {rush}"
    return f"{hours} OTHERWISE network_usage < {usage_bytes:g} B", f"overhead < {overhead_bytes:g} B"


def calibrated(
    minutes: int, names: Sequence[str] | None = None, seed: int = CALIBRATION_SEED
) -> dict[str, tuple[str, ...]]:
    """Demands by the rule: from the values of each mechanism on one day, placed again every half hour."""
    found: dict[str, dict[Metric, list[float]]] = {kind: {} for kind in KINDS}
    for name in names or [m.name for m in MECHANISMS]:
        reached = _reached(name, minutes, seed)
        for kind, by_metric in reached.items():
            for metric, values in by_metric.items():
                found[kind].setdefault(metric, []).append(float(np.quantile(values, ROUNDS_MET[metric])))
    bounds = {
        kind: {metric: _rounded_up(float(np.quantile(values, ABLE))) for metric, values in by_metric.items()}
        for kind, by_metric in found.items()
    }
    wanted = (Metric.LATENCY, Metric.NETWORK_USAGE, Metric.OVERHEAD)
    return {kind: demands_of(*(bounds[kind][metric] for metric in wanted)) for kind in KINDS}


def _reached(name: str, minutes: int, seed: int) -> dict[str, dict[Metric, list[float]]]:
    """The values of one mechanism in the rounds in which each metric counts; a query that does not run reaches
    nothing."""
    asked = queries()
    found: dict[str, dict[Metric, list[float]]] = {kind: {} for kind in KINDS}
    for measures, hour in _fixed_day(asked, name, minutes, seed, again=True):
        counting = (Metric.LATENCY if hour in RUSH_HOURS else Metric.NETWORK_USAGE, Metric.OVERHEAD)
        for query in asked:
            span = Span(measures.at_ms, measures.span_ms, measures.queries[query.id], measures.loads)
            for metric in counting:
                value = WINDOW[metric].read([span])
                found[str(query.id)].setdefault(metric, []).append(float("inf") if value is None else value)
    return found


def _rounded_up(value: float) -> float:
    """To two digits, so that bounds read like bounds."""
    digits = 1 - int(np.floor(np.log10(value)))
    return float(np.ceil(value * 10.0**digits) / 10.0**digits)


def library(names: Sequence[str] | None = None) -> dict[str, Mechanism]:
    known = names or [m.name for m in MECHANISMS]
    return {name: mechanism(name) for name in known}


def traffic_at(hour: int) -> DayTraffic:
    return RUSH if hour in RUSH_HOURS else CALM


def rounds(minutes: int) -> list[tuple[int, int]]:
    """End and hour of each round of a day."""
    return [(at * MINUTE_MS, (at - 1) // 60) for at in range(minutes, 24 * 60 + 1, minutes)]


def fixed(demands: Demands, name: str, minutes: int, seed: int, *, again: bool = False) -> DemandTally:
    """A day with one mechanism; with `again`, all queries are placed again every half hour."""
    asked, tally = queries(demands), DemandTally()
    for measures, hour in _fixed_day(asked, name, minutes, seed, again=again):
        tally.judge(asked, measures, hour)
    return tally


def _fixed_day(
    asked: Sequence[Query], name: str, minutes: int, seed: int, *, again: bool
) -> Iterator[tuple[Measures, int]]:
    """The rounds of a day, each with its hour."""
    world = RoadWorld(asked, library([name]), {q.id: name for q in asked}, seed)
    for at_ms, hour in rounds(minutes):
        yield world.advance(at_ms, minutes * MINUTE_MS, traffic_at(hour)), hour
        if again and at_ms % AGAIN_EVERY_MS == 0:
            for query in asked:
                world.start(Transition(query.id, name, name, {}, 0))
        world.poll()


def adaptive(
    demands: Demands, by: str, minutes: int, seed: int, mechanisms: Mapping[str, Mechanism] | None = None
) -> DemandTally:
    """A day with the loop; all queries begin with bottom_up."""
    asked, known = queries(demands), dict(mechanisms or library())
    start = {q.id: "bottom_up" for q in asked}
    world = RoadWorld(asked, known, start, seed)
    loop = AdaptationLoop(world.foresight, selector=selector(by), settings=SETTINGS, seed=seed)
    for query in asked:
        loop.watch(query.id, query.demands, start[query.id], 0)
    tally = DemandTally()
    for at_ms, hour in rounds(minutes):
        measures = world.advance(at_ms, minutes * MINUTE_MS, traffic_at(hour))
        tally.judge(asked, measures, hour)
        tally.decisions += begin(loop, world, at_ms, loop.step(at_ms, measures, world.poll()))
    tally.transitions = sum(d.action is DecisionAction.ARRIVED for d in tally.decisions)
    return tally


def measure(
    minutes: int, seeds: int, progress: Callable[[str], None], names: Sequence[str] | None = None
) -> list[Figure]:
    """The shares of all variants, side by side on the same days; `names` are the mechanisms, without it all."""
    progress("what mechanisms reach on a day of its own, for the demands")
    demands = calibrated(minutes, names)
    figures: list[Figure] = []
    alone: dict[str, list[float]] = {}
    for name in names or [m.name for m in MECHANISMS]:
        progress(f"a day with {name}")
        alone[name] = [fixed(demands, name, minutes, seed).share for seed in range(seeds)]
        alone[f"{name}, placed again"] = [
            fixed(demands, name, minutes, seed, again=True).share for seed in range(seeds)
        ]
    for by in ("linear_ranking", "thompson", "requirement"):
        progress(f"a day with transitions, {by}")
        days = [adaptive(demands, by, minutes, seed, library(names)) for seed in range(seeds)]
        worst = min(d.share for d in days)
        if by == "linear_ranking":
            name = f"demands met with transitions, {by}, worst of {seeds} days"
            figures.append(Figure.of(name, "share", [worst], GOAL, at_least=True))
        figures += [
            Figure.of(f"demands met with transitions, {by}", "share", [d.share for d in days]),
            Figure.of(f"transitions of {len(KINDS)} queries, {by}", "a day", [d.transitions for d in days]),
            Figure.of(f"control bytes, {by}", "kB", [d.control_bytes / 1000 for d in days]),
        ]
    best = max(alone, key=lambda name: sum(alone[name]))
    figures.append(Figure.of(f"demands met, best fixed in hindsight ({best})", "share", alone[best]))
    figures += [Figure.of(f"demands met, {name}", "share", shares) for name, shares in alone.items()]
    return figures
