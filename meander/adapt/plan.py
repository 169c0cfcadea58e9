"""Planning: which mechanism a query should switch to, if any, and why.

Asked for a reason (a violation, a change), it has every mechanism forecast; asked periodically, only the one it would
switch to. The selector proposes; a switch must also be expected to win enough (hysteresis), and an exploration must not
be forecast to violate anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from meander.adapt.candidates import ADDED, Correction, Hopeless, Option, chance, hopeless, resigned
from meander.adapt.decisions import Decision, DecisionAction, Transition, Trigger
from meander.adapt.knowledge import Knowledge, Watched
from meander.adapt.mechanism_forecasts import Forecast, Foresight, Refusal
from meander.adapt.selection import selector_of
from meander.adapt.selection.base import Candidate, Choice, Question, Selector, expected
from meander.adapt.selection.requirement import by_requirement, prior
from meander.adapt.settings import AdaptationSettings
from meander.adapt.transition_prediction import TransitionPrediction
from meander.model.demands import Demand, Metric
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.mechanisms.base import Metadata


@dataclass(frozen=True, slots=True)
class PlanningCase:
    """One query that has to be looked at."""

    query: QueryId
    watched: Watched
    trigger: Trigger
    active: tuple[Demand, ...]
    read: dict[Metric, float]
    context: str
    now_ms: int
    settings: AdaptationSettings
    unsettled: frozenset[Metric] = frozenset()
    """Metrics that are read from waiting tuples, not from results: the truth may be worse."""
    excuse: str = ""
    """The reason why demands are missed under every mechanism, if all missed ones have one."""

    @property
    def current(self) -> str:
        return self.watched.mechanism


Foresee = Callable[[str, Mapping[OperatorId, NodeId]], TransitionPrediction | None]
"""The predicted effort of a transition by a protocol to these nodes, if it is known."""


class Planner:
    """Stateless apart from the knowledge it is given."""

    def __init__(self, foresight: Foresight, knowledge: Knowledge, selector: Selector | None = None) -> None:
        """With a selector, it chooses for all queries, whatever their settings."""
        self.foresight, self.selector, self.knowledge = foresight, selector, knowledge
        self.foresee: Foresee = lambda protocol, nodes: None

    def plan(self, case: PlanningCase, rng: Random) -> list[Decision]:
        """The decision comes last; mechanisms that were put into quarantine on the way come before it."""
        return _Plan(self, case).decide(rng)


def usable(foresight: Foresight, query: QueryId, settings: AdaptationSettings) -> Mapping[str, Metadata]:
    """The mechanisms that can take a query and may be chosen for it."""
    known = foresight.mechanisms(query)
    wanted = settings.mechanisms
    return {name: metadata for name, metadata in known.items() if not wanted or name in wanted}


class _Plan:
    """Planning one case."""

    def __init__(self, planner: Planner, case: PlanningCase) -> None:
        self.case, self.foresight, self.settings = case, planner.foresight, case.settings
        self.selector = planner.selector or selector_of(case.settings)
        self.knowledge, self.foresee = planner.knowledge, planner.foresee
        self.notes: list[Decision] = []
        self.known = usable(self.foresight, case.query, case.settings)
        self.cores = [demand.core for demand in case.active]
        self.correction = self._correction(self._predicted())
        self.options: dict[str, Option] = {}
        self.without: list[Hopeless] = []

    def decide(self, rng: Random) -> list[Decision]:
        case = self.case
        if not case.active:
            return [self._keep("nothing is demanded at this time")]
        eager = case.trigger is not Trigger.PERIODIC or not case.watched.has_results  # nothing else speaks for it
        for name in by_requirement(self.known, case.active):
            self._consider(name, forecast=eager)
        if not self.options:
            return [*self.notes, self._keep("no mechanism can be asked: all are in quarantine or refuse the query")]
        self.without = hopeless(case.active, list(self.options.values())) if eager else []
        return [*self.notes, *self._infeasible(), self._choose(rng)]

    # ---------------------------------------------------------------- options

    def _predicted(self) -> dict[Metric, float]:
        """Predictions for where the query runs; the cost of placing it is asked of its own mechanism."""
        found = dict(self.foresight.now(self.case.query).values)
        if any(d.metric is Metric.OVERHEAD for d in self.case.active) and self.case.current in self.known:
            own = self.foresight.forecast(self.case.query, self.case.current)
            if isinstance(own, Forecast) and Metric.OVERHEAD in own.values:
                found[Metric.OVERHEAD] = own.values[Metric.OVERHEAD]
        return found

    def _correction(self, predicted: dict[Metric, float]) -> Correction:
        """A mechanism that is slower than predicted for its own reasons must not make all others look slow."""
        case, added = self.case, self.case.watched.added
        for metric in (ADDED & case.read.keys() & predicted.keys()) - case.unsettled:
            added.setdefault(metric, {})[case.current] = max(0.0, case.read[metric] - predicted[metric])
        usual = dict.fromkeys(case.unsettled, 0.0)  # a query that stands still here need not stand still elsewhere
        return Correction(case.read, predicted, usual | {metric: min(seen.values()) for metric, seen in added.items()})

    def _consider(self, name: str, *, forecast: bool) -> None:
        """Makes a mechanism an option, unless it is barred or refuses."""
        case = self.case
        if self.knowledge.barred(name, case.query, case.now_ms):
            return
        found = self.foresight.forecast(case.query, name) if forecast else None
        if isinstance(found, Refusal):
            if found.fault:
                self._quarantine(name, found.reason)
            if found.fault or name != case.current:
                return
            found = None
        if found is not None:
            self.knowledge.release(name)
        self.options[name] = self._option(name, self.known[name], found)

    def _option(self, name: str, metadata: Metadata, forecast: Forecast | None) -> Option:
        values = [self._value(name, demand.metric, forecast) for demand in self.case.active]
        priors = [
            prior(metadata, demand) if value is None else chance(demand, value)
            for demand, value in zip(self.case.active, values, strict=True)
        ]
        beliefs = self.case.watched.fitness.beliefs(name, self.cores, self.case.context, priors)
        violates = any(v is not None and not d.met(v) for d, v in zip(self.case.active, values, strict=True))
        return Option(name, forecast, values, Candidate(name, *beliefs, may_try=not violates))

    def _value(self, name: str, metric: Metric, forecast: Forecast | None) -> float | None:
        """The reading now, the forecast, or the reading when the mechanism last ran."""
        if name == self.case.current and metric in self.case.read:
            return self.case.read[metric]
        ahead = self.correction.corrected(metric, forecast.values.get(metric)) if forecast else None
        return self.case.watched.seen.get(name, {}).get(metric) if ahead is None else ahead

    def _quarantine(self, name: str, reason: str) -> None:
        case = self.case
        entry = self.knowledge.quarantine(name, None, case.now_ms, self.settings.quarantine_ms, reason)
        length = (entry.until_ms - case.now_ms) // 1000
        self.notes.append(self._decision(DecisionAction.QUARANTINE, f"{reason}; not asked again for {length} s", name))

    # ---------------------------------------------------------------- choosing

    def _choose(self, rng: Random) -> Decision:
        for _ in range(2 * len(self.known) + 1):
            if not self.options:
                break
            question = self._question()
            choice = self.selector.choose(question, rng)
            option = self.options[choice.mechanism]
            if choice.mechanism == self.case.current:
                return self._stay(choice, option)
            if option.forecast is None:
                del self.options[choice.mechanism]
                self._consider(choice.mechanism, forecast=True)
                fresh = self.options.get(choice.mechanism)
                if not (choice.exploring and fresh and fresh.candidate.may_try):
                    continue
                option = fresh
            if choice.exploring and not option.candidate.may_try:
                continue
            return self._judge(choice, option, question)
        return self._keep("no other mechanism could be asked")

    def _question(self) -> Question:
        order = [name for name in by_requirement(self.known, self.case.active) if name in self.options]
        candidates = [
            resigned(self.options[n], self.without) if self.without else self.options[n].candidate for n in order
        ]
        watched, settings = self.case.watched, self.settings
        may_explore = self.case.trigger is Trigger.PERIODIC and not watched.infeasible
        may_explore = may_explore and settings.exploration > 0 and (watched.has_results or settings.try_early)
        weights = [demand.weight for demand in self.case.active]
        return Question(candidates, weights, self.case.current, may_explore)

    def _stay(self, choice: Choice, option: Option) -> Decision:
        """The mechanism stays; its placement may be old, and placing it again may help."""
        again, read = option.forecast, self.case.read
        if again is not None and again.moves and self.case.trigger is not Trigger.PERIODIC:
            now, then = self._shortfall(read), self._shortfall(self._corrected(again))
            if now > 0 and then <= now * (1 - self.settings.margin):
                why = "placing it again with the same mechanism comes closer"
                return self._weighed(option.mechanism, again, why, min(1.0, now - then))
        return self._keep(f"{option.mechanism} is still the choice: {choice.reason}")

    def _judge(self, choice: Choice, option: Option, question: Question) -> Decision:
        assert option.forecast is not None
        worth = self._worth(question)
        gain = worth[choice.mechanism] - worth.get(self.case.current, 0.0)
        if not choice.exploring and gain < self.settings.margin:
            margin = self.settings.margin
            return self._keep(f"{choice.mechanism} would win {gain:.0%} of the demands, less than {margin:.0%}")
        worthy = self.settings.margin if choice.exploring else gain
        why = f"{choice.reason}; {self._hopes(option)}"
        return self._weighed(choice.mechanism, option.forecast, why, worthy, choice.exploring)

    def _weighed(self, target: str, forecast: Forecast, why: str, gain: float, exploring: bool = False) -> Decision:
        """The switch, if it makes up for what its transition disturbs."""
        cost = self.foresee(self.settings.protocol, forecast.nodes)
        within_s = self.settings.payback_ms / 1000
        if cost is not None and cost.cost_s > gain * within_s:
            wins = "trying out {} counts as much as {:.0%}" if exploring else "{} would win {:.0%}"
            why = (
                f"{wins.format(target, gain)} of the demands, but its transition ({cost.told}) disturbs for "
                f"{cost.cost_s:.2g} s, which it does not make up for in {within_s:g} s"
            )
            return self._decision(DecisionAction.KEEP, why, cost=cost)
        return self._switch(target, forecast, why, exploring, cost)

    def _worth(self, question: Question) -> dict[str, float]:
        return dict(zip([c.mechanism for c in question.candidates], expected(question), strict=True))

    def _corrected(self, forecast: Forecast) -> dict[Metric, float]:
        found = {d.metric: self.correction.corrected(d.metric, forecast.values.get(d.metric)) for d in self.case.active}
        return {metric: value for metric, value in found.items() if value is not None}

    def _shortfall(self, values: dict[Metric, float]) -> float:
        return sum(d.weight * d.shortfall(values[d.metric]) for d in self.case.active if d.metric in values)

    # ---------------------------------------------------------------- telling

    def _infeasible(self) -> list[Decision]:
        """Reports demands that nothing meets, once, and again when the best value changed much."""
        told, now = self.case.watched.infeasible, {each.demand.core: each for each in self.without}
        if self.case.trigger is Trigger.PERIODIC:
            return []
        for core in [core for core in told if core not in now]:
            del told[core]
        found: list[Decision] = []
        for core, each in now.items():
            if core in told and abs(told[core] - each.best) <= 0.1 * abs(told[core]):
                continue
            told[core] = each.best
            reason = (
                f"no mechanism meets {core}; the best is {each.demand.show(float(f'{each.best:.4g}'))} by {each.by}"
            )
            found.append(self._decision(DecisionAction.INFEASIBLE, reason, each.by))
        return found

    def _hopes(self, option: Option) -> str:
        shown = [
            f"{d.metric.value} {d.show(float(f'{v:.3g}'))}"
            for d, v in zip(self.case.active, option.values, strict=True)
            if v is not None
        ]
        return f"forecast {', '.join(shown)}" if shown else "nothing can be forecast"

    def _switch(
        self, target: str, forecast: Forecast, reason: str, exploring: bool, cost: TransitionPrediction | None = None
    ) -> Decision:
        case = self.case
        transition = Transition(
            case.query,
            case.current,
            target,
            dict(forecast.nodes),
            forecast.moves,
            self.foresight.sharing(case.query),
            self.settings.protocol,
        )
        return self._decision(
            DecisionAction.SWITCH, reason, target, transition if self.settings.act else None, exploring, cost
        )

    def _keep(self, reason: str) -> Decision:
        return self._decision(DecisionAction.KEEP, reason)

    def _decision(
        self,
        action: DecisionAction,
        reason: str,
        target: str | None = None,
        transition: Transition | None = None,
        exploring: bool = False,
        cost: TransitionPrediction | None = None,
    ) -> Decision:
        case = self.case
        values = {n: _named(case.active, o.values) for n, o in self.options.items() if o.forecast is not None}
        return Decision(
            case.now_ms,
            case.query,
            case.trigger,
            action,
            case.current,
            reason,
            target,
            transition,
            exploring,
            not self.settings.act,
            {metric.value: value for metric, value in case.read.items()},
            self._worth(self._question()) if self.options else {},
            values,
            {} if cost is None else cost.as_json(),
        )


def _named(demands: Sequence[Demand], values: Sequence[float | None]) -> dict[str, float]:
    return {d.metric.value: v for d, v in zip(demands, values, strict=True) if v is not None}
