"""A day with two environments: calm hours, and two rush hours with vehicles on the move. No fixed mechanism suits both.

In calm hours the queries ask for little network usage, in rush hours for low latency, and always for little overhead.
Each mechanism is run alone, as it is and also placed again every half hour; then the loop runs with all of them. What
counts is the share of queries and rounds in which all demands that apply are met, transitions included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meander.adapt.decisions import Action, Decision, Transition
from meander.adapt.execute import drive
from meander.adapt.history import Span
from meander.adapt.loop import Loop
from meander.adapt.measures import Measures
from meander.adapt.monitors import MONITORS
from meander.adapt.selection import selector
from meander.adapt.settings import Settings
from meander.lab import tcep_queries as road
from meander.lab.bench.report import Figure
from meander.lab.tcep_world import CALM, MINUTE_MS, RUSH, RoadWorld, Traffic
from meander.model.conditions import Fact
from meander.model.plan import Query
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.place.mechanisms.base import Mechanism

RUSH_HOURS = (7, 8, 9, 16, 17, 18)
DEMANDS = {
    "congestion": (
        "WHEN hour BETWEEN 7 AND 9 THEN latency < 40 ms WHEN hour BETWEEN 16 AND 18 THEN latency < 40 ms "
        "OTHERWISE network_usage < 12 B",
        "overhead < 12 kB",
    ),
    "join": (
        "WHEN hour BETWEEN 7 AND 9 THEN latency < 30 ms WHEN hour BETWEEN 16 AND 18 THEN latency < 30 ms "
        "OTHERWISE network_usage < 2.7 B",
        "overhead < 12 kB",
    ),
}
SETTINGS = Settings(stay_ms=3 * MINUTE_MS, period_ms=20 * MINUTE_MS, patience=1, retry_ms=2 * MINUTE_MS)
AGAIN_EVERY_MS = 30 * MINUTE_MS
WINDOW = {m.metric: m for m in MONITORS}


@dataclass(slots=True)
class Tally:
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


def queries() -> list[Query]:
    return [road.query(kind, kind, demands) for kind, demands in DEMANDS.items()]


def library(names: Sequence[str] | None = None) -> dict[str, Mechanism]:
    known = names or [m.name for m in MECHANISMS]
    return {name: mechanism(name) for name in known}


def traffic_at(hour: int) -> Traffic:
    return RUSH if hour in RUSH_HOURS else CALM


def rounds(minutes: int) -> list[tuple[int, int]]:
    """End and hour of each round of a day."""
    return [(at * MINUTE_MS, (at - 1) // 60) for at in range(minutes, 24 * 60 + 1, minutes)]


def fixed(name: str, minutes: int, seed: int, *, again: bool = False) -> Tally:
    """A day with one mechanism; with `again`, all queries are placed again every half hour."""
    asked = queries()
    world = RoadWorld(asked, library([name]), {q.id: name for q in asked}, seed)
    tally = Tally()
    for at_ms, hour in rounds(minutes):
        measures = world.advance(at_ms, minutes * MINUTE_MS, traffic_at(hour))
        tally.judge(asked, measures, hour)
        if again and at_ms % AGAIN_EVERY_MS == 0:
            for query in asked:
                world.start(Transition(query.id, name, name, {}, 0))
        world.poll()
    return tally


def adaptive(by: str, minutes: int, seed: int, mechanisms: Mapping[str, Mechanism] | None = None) -> Tally:
    """A day with the loop; all queries begin with bottom_up."""
    asked, known = queries(), dict(mechanisms or library())
    start = {q.id: "bottom_up" for q in asked}
    world = RoadWorld(asked, known, start, seed)
    loop = Loop(world.foresight, selector=selector(by), settings=SETTINGS, seed=seed)
    for query in asked:
        loop.watch(query.id, query.demands, start[query.id], 0)
    tally = Tally()
    for at_ms, hour in rounds(minutes):
        measures = world.advance(at_ms, minutes * MINUTE_MS, traffic_at(hour))
        tally.judge(asked, measures, hour)
        tally.decisions += drive(loop, world, at_ms, measures)
    tally.transitions = sum(d.action is Action.ARRIVED for d in tally.decisions)
    return tally


def measure(
    minutes: int, seeds: int, progress: Callable[[str], None], names: Sequence[str] | None = None
) -> list[Figure]:
    """The shares of all variants, side by side on the same days; `names` are the mechanisms, without it all."""
    figures: list[Figure] = []
    alone: dict[str, list[float]] = {}
    for name in names or [m.name for m in MECHANISMS]:
        progress(f"a day with {name}")
        alone[name] = [fixed(name, minutes, seed).share for seed in range(seeds)]
        alone[f"{name}, placed again"] = [fixed(name, minutes, seed, again=True).share for seed in range(seeds)]
    for by, goal in (("linear_ranking", 0.95), ("thompson", None), ("requirement", None)):
        progress(f"a day with transitions, {by}")
        days = [adaptive(by, minutes, seed, library(names)) for seed in range(seeds)]
        figures += [
            Figure.of(f"demands met with transitions, {by}", "share", [d.share for d in days], goal, at_least=True),
            Figure.of(f"transitions of {len(DEMANDS)} queries, {by}", "a day", [d.transitions for d in days]),
            Figure.of(f"control bytes, {by}", "kB", [d.control_bytes / 1000 for d in days]),
        ]
    best = max(alone, key=lambda name: sum(alone[name]))
    figures.append(Figure.of(f"demands met, best fixed in hindsight ({best})", "share", alone[best]))
    figures += [Figure.of(f"demands met, {name}", "share", shares) for name, shares in alone.items()]
    return figures
