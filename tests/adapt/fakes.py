"""A world without placement: each mechanism gives fixed values, transitions take some rounds or fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meander.adapt.decisions import Decision, DecisionAction, Transition, TransitionOutcome
from meander.adapt.execute import begin
from meander.adapt.knowledge import Knowledge
from meander.adapt.loop import AdaptationLoop
from meander.adapt.measures import EnvironmentMeasures, MeasuredChannel, Measures, QueryMeasures
from meander.adapt.mechanism_forecasts import Forecast, Refusal
from meander.adapt.selection import Selector
from meander.adapt.selection.ranking import LinearRanking
from meander.adapt.settings import AdaptationSettings
from meander.lang.demands import parse_demands
from meander.model.demands import Metric
from meander.model.ids import OperatorId, QueryId
from meander.place.mechanisms.base import Metadata

Q = QueryId("q")
ROUND_MS = 10_000
OPTIMISES = {"fast": (Metric.LATENCY,), "frugal": (Metric.OVERHEAD,), "plain": ()}
SETTINGS = AdaptationSettings(
    stay_ms=30_000,
    period_ms=120_000,
    violated_rounds=2,
    quarantine_ms=100_000,
    retry_ms=50_000,
    longest_retry_ms=1_800_000,
)


@dataclass
class FakeWorld:
    """Latency and control bytes by mechanism; what forecasts say may differ from what is true."""

    latency_ms: dict[str, float]
    control_bytes: dict[str, float] = field(default_factory=dict)
    forecast_ms: dict[str, float] | None = None
    broken: dict[str, str] = field(default_factory=dict)
    shared: frozenset[QueryId] = frozenset()
    around: EnvironmentMeasures = field(default_factory=EnvironmentMeasures)
    rounds_per_transition: int = 1
    silent: dict[str, str] = field(default_factory=dict)
    """Mechanisms under which nothing comes out, and why: `waits`, `quiet` or `paused`."""
    fails: Callable[[Transition], str] = lambda _: ""
    running: dict[QueryId, str] = field(default_factory=dict)
    started: list[Transition] = field(default_factory=list)
    flying: dict[QueryId, int] = field(default_factory=dict)
    asked: int = 0

    # foresight

    def mechanisms(self, query: QueryId) -> Mapping[str, Metadata]:
        return {name: Metadata(OPTIMISES.get(name, ()), "") for name in self.latency_ms}

    def now(self, query: QueryId) -> Forecast:
        return self._forecast(self.running[query])

    def forecast(self, query: QueryId, mechanism: str) -> Forecast | Refusal:
        self.asked += 1
        if mechanism in self.broken:
            return Refusal(f"mechanism {mechanism} failed: {self.broken[mechanism]}", fault=True)
        return self._forecast(mechanism)

    def _forecast(self, mechanism: str) -> Forecast:
        values = {Metric.OVERHEAD: self.control_bytes.get(mechanism, 1.0)}
        if self.forecast_ms is not None:
            values[Metric.LATENCY] = self.forecast_ms[mechanism]
        return Forecast(values, {}, 3)

    def sharing(self, query: QueryId) -> frozenset[QueryId]:
        return self.shared - {query}

    # executor

    def start(self, transition: Transition) -> None:
        assert transition.query not in self.flying, "two transitions of one query at once"
        assert not any(f in transition.also for f in self.flying), "a query that shares operators is in a transition"
        if self.fails(transition) == "start":
            raise RuntimeError("no site answers")
        self.started.append(transition)
        self.flying[transition.query] = self.rounds_per_transition

    def poll(self) -> Mapping[QueryId, TransitionOutcome]:
        found: dict[QueryId, TransitionOutcome] = {}
        for query in list(self.flying):
            self.flying[query] -= 1
            if self.flying[query] <= 0:
                del self.flying[query]
                transition = next(t for t in reversed(self.started) if t.query == query)
                reason = self.fails(transition)
                if not reason:
                    self.running[query] = transition.target
                found[query] = TransitionOutcome(not reason, reason, 0.5, 100)
        return found

    # measures

    def _silent(self, why: str, at_ms: int) -> QueryMeasures:
        waits_ms = 0.0 if why == "quiet" else float(at_ms)
        held = "its sink is down" if why == "paused" else ""
        waits_for = "its windows have waited for source s1" if why == "windows" else ""
        return QueryMeasures(results={"out": 0}, waits_ms=waits_ms, held=held, waits_for=waits_for)

    def measures(self, at_ms: int) -> Measures:
        channels = (MeasuredChannel(OperatorId(1), OperatorId(2), 2, 10, 1000),)
        queries = {
            q: self._silent(self.silent[m], at_ms)
            if m in self.silent
            else QueryMeasures([self.latency_ms[m]] * 5, {"out": 5}, channels, self.control_bytes.get(m, 0.0))
            for q, m in self.running.items()
        }
        return Measures(at_ms, ROUND_MS, queries, {}, self.around)


@dataclass
class Play:
    """A loop on a fake world."""

    world: FakeWorld
    loop: AdaptationLoop
    now_ms: int = 0
    decisions: list[Decision] = field(default_factory=list)

    @staticmethod
    def of(
        world: FakeWorld,
        demands: str,
        mechanism: str = "plain",
        *,
        queries: Sequence[QueryId] = (Q,),
        settings: AdaptationSettings = SETTINGS,
        selector: Selector | None = None,
        knowledge: Knowledge | None = None,
        start_ms: int = 0,
    ) -> Play:
        by = selector or LinearRanking(explore=0, warm_up=False)
        loop = AdaptationLoop(world, selector=by, settings=settings, knowledge=knowledge, seed=1)
        for query in queries:
            world.running[query] = mechanism
            loop.watch(query, parse_demands(demands), mechanism, start_ms)
        return Play(world, loop, start_ms)

    def run(self, rounds: int) -> list[Decision]:
        fresh: list[Decision] = []
        for _ in range(rounds):
            self.now_ms += ROUND_MS
            measures = self.world.measures(self.now_ms)
            decided = self.loop.step(self.now_ms, measures, self.world.poll())
            fresh += begin(self.loop, self.world, self.now_ms, decided)
        self.decisions += fresh
        return fresh

    def made(self, action: DecisionAction) -> list[Decision]:
        return [d for d in self.decisions if d.action is action]
