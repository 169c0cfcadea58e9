"""The MAPE-K loop: measures and a clock in, decisions out. No I/O, no own clock, randomness by seed and round.

Monitor reads the measures; analyse finds changes; plan chooses; execute (outside, see `execute.drive`) carries it out;
knowledge is shared by all. A query has at most one transition at a time, and none while a query with which it shares
operators has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from meander.adapt.analyse import context_of, facts_at, levels_of, readings, trigger_of, unsettled, violated
from meander.adapt.decisions import Decision, DecisionAction, TransitionOutcome, Trigger
from meander.adapt.first_mechanism import Beginning
from meander.adapt.knowledge import Knowledge, Watched
from meander.adapt.measure_history import MeasureHistory
from meander.adapt.measures import Measures
from meander.adapt.mechanism_forecasts import Foresight
from meander.adapt.monitors import ENVIRONMENT, MONITORS
from meander.adapt.monitors.base import EnvironmentMonitor, Monitor
from meander.adapt.plan import Planner, PlanningCase
from meander.adapt.selection.base import Selector
from meander.adapt.setting_layers import AdaptationPolicy
from meander.adapt.settings import AdaptationSettings
from meander.adapt.transition_prediction import told
from meander.model.conditions import Facts
from meander.model.demands import Demand, Metric, check_consistent
from meander.model.errors import InputError, unknown
from meander.model.ids import QueryId

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?%?")


class AdaptationLoop:
    """Looks after queries. Call `step` once a round."""

    def __init__(
        self,
        foresight: Foresight,
        *,
        selector: Selector | None = None,
        settings: AdaptationSettings | None = None,
        policy: AdaptationPolicy | None = None,
        knowledge: Knowledge | None = None,
        monitors: Sequence[Monitor] = MONITORS,
        environment: Sequence[EnvironmentMonitor] = ENVIRONMENT,
        seed: int = 0,
    ) -> None:
        """`policy` has the settings of every query; `settings` are the same for all. `selector` wins over theirs."""
        self.foresight, self.seed = foresight, seed
        self.policy = policy or AdaptationPolicy(settings or AdaptationSettings())
        self.knowledge = knowledge or Knowledge()
        self.monitors, self.environment = {m.metric: m for m in monitors}, tuple(environment)
        self.planner = Planner(foresight, self.knowledge, selector)
        windows = [m.window_ms for m in monitors] + [m.window_ms for m in environment]
        self.history = MeasureHistory(max(windows, default=1))
        self._watching: dict[QueryId, None] = {}
        self._held: dict[QueryId, str] = {}
        """Queries that no placement would help, with the reason."""
        self._late: dict[QueryId, str] = {}
        """Queries whose results no placement would make come earlier, with the reason."""

    # ---------------------------------------------------------------- which queries

    def watch(self, query: QueryId, demands: Sequence[Demand], mechanism: str, now_ms: int) -> None:
        """Looks after a query from now on. Earlier knowledge about it is used."""
        check_consistent(demands)
        known = self.knowledge.queries.get(query)
        if known is None or known.mechanism != mechanism:
            known = Watched(mechanism, now_ms, fitness=known.fitness) if known else Watched(mechanism, now_ms)
        known.demands, known.asked_ms = tuple(demands), now_ms
        self.knowledge.queries[query] = known
        self._watching[query] = None

    def begin(self, now_ms: int, query: QueryId, choice: Beginning) -> Decision:
        """The mechanism that a query begins with, as it was chosen."""
        watched = self._watched(query)
        watched.mechanism, watched.why = choice.mechanism, choice.reason
        forecasts = {n: {m.value: v for m, v in values.items()} for n, values in choice.forecasts.items()}
        return Decision(
            now_ms,
            query,
            Trigger.SUBMITTED,
            DecisionAction.BEGIN,
            choice.mechanism,
            choice.reason,
            forecasts=forecasts,
        )

    def change_demands(self, query: QueryId, demands: Sequence[Demand]) -> None:
        """New demands; they are looked at in the next round."""
        check_consistent(demands)
        watched = self._watched(query)
        watched.demands = tuple(demands)
        watched.pending = Trigger.DEMAND

    def forget(self, query: QueryId) -> None:
        """The query ended."""
        self._watched(query)
        del self._watching[query], self.knowledge.queries[query]

    def _watched(self, query: QueryId) -> Watched:
        if query not in self._watching:
            raise unknown("watched query", query, self._watching, "watched queries")
        return self.knowledge.queries[query]

    # ---------------------------------------------------------------- one round

    def step(
        self, now_ms: int, measures: Measures, outcomes: Mapping[QueryId, TransitionOutcome] | None = None
    ) -> list[Decision]:
        """One round. `outcomes` are of transitions that ended since the last one."""
        knowledge = self.knowledge
        knowledge.round += 1
        self.history.add(measures)
        self._held = {query: found.held for query, found in measures.queries.items() if found.held}
        self._late = {query: found.waits_for for query, found in measures.queries.items() if found.waits_for}
        for query in self._watching:
            given = measures.queries.get(query)
            if given is not None and any(given.results.values()):
                knowledge.queries[query].has_results = True
        settings = self.policy.of()
        facts = facts_at(self.environment, self.history, now_ms, settings.zone)
        knowledge.levels = levels_of(self.environment, facts, knowledge.levels, settings.levels)
        context, rng = context_of(knowledge.levels), Random(self.seed * 1_000_003 + knowledge.round)
        decisions = [self.ended(now_ms, query, outcome) for query, outcome in (outcomes or {}).items()]
        busy = {other: query for query in self._watching for other in self._shared(query)}
        planned = 0
        for query in self._watching:
            case = self._case(query, facts, context, now_ms)
            if case is None:
                continue
            reason = self._must_wait(case, busy)
            if reason:
                case.watched.pending = case.trigger
                decisions += self._told(case.watched, [self._decision(case, DecisionAction.WAIT, reason)])
            elif planned == settings.plans_per_round:
                case.watched.pending = case.trigger
            else:
                planned += 1
                case.watched.pending = None
                found = self.planner.plan(case, rng)
                self._note(case, found[-1])
                busy.update(dict.fromkeys(self._shared(query), query))
                decisions += self._told(case.watched, found)
        return decisions

    def ended(self, now_ms: int, query: QueryId, outcome: TransitionOutcome) -> Decision:
        """A transition ended. When it failed, the old mechanism still runs, and the target is left alone for a time."""
        watched = self._watched(query)
        transition = watched.transition
        if transition is None:
            raise InputError(f"query {query!r} has no transition that could have ended")
        watched.transition, former = None, watched.mechanism
        if outcome.done:
            watched.mechanism, watched.since_ms, watched.violated = transition.target, now_ms, 0
            watched.why = watched.hopes
            self.knowledge.quarantines.pop((transition.target, query), None)
            cost = f"in {told(outcome.took or {'seconds': outcome.seconds, 'bytes': outcome.bytes})}"
            remark = f"; {outcome.reason}" if outcome.reason else ""
            by = f" by {transition.protocol}" if transition.protocol else ""
            action, reason = DecisionAction.ARRIVED, f"{transition.moves} operators moved{by} {cost}{remark}"
        else:
            retry_ms = self.policy.of(query).retry_ms
            self.knowledge.quarantine(transition.target, query, now_ms, retry_ms, outcome.reason)
            action, reason = DecisionAction.FAILED, f"{outcome.reason}; {former} keeps running"
        return Decision(now_ms, query, Trigger.TRANSITION, action, former, reason, transition.target, took=outcome.took)

    def broke(self, now_ms: int, mechanism: str, reason: str) -> None:
        """A mechanism broke outside of forecasts, as when the topology changed: it is not chosen for a time."""
        self.knowledge.quarantine(mechanism, None, now_ms, self.policy.of().quarantine_ms, reason)

    # ---------------------------------------------------------------- parts of a round

    def _case(self, query: QueryId, facts: Facts, context: str, now_ms: int) -> PlanningCase | None:
        """Monitors, learns and analyses; the case when there is a reason to plan."""
        watched, settings = self.knowledge.queries[query], self.policy.of(query)
        active = tuple(d for d in watched.demands if d.applies(facts))
        read = readings(self.monitors, self.history, query, watched.since_ms, [d.metric for d in active])
        waited = unsettled(self.monitors, self.history, query, watched.since_ms, read)
        bad, excused = violated(active, read), self._excused(query, read, waited)
        if watched.transition is None:
            for demand in active:
                if demand.metric in read and demand.metric not in excused:
                    watched.fitness.learn(watched.mechanism, demand.core, demand not in bad, context)
        watched.violated = watched.violated + 1 if bad else 0
        if not bad:
            watched.not_before_ms = watched.backoff_ms = 0
            for demand in active:
                if demand.metric in read:
                    watched.infeasible.pop(demand.core, None)
        trigger = trigger_of(watched, active, context, now_ms, settings) or watched.pending
        if watched.context != context:
            watched.added.clear()
            watched.seen.clear()
        if watched.transition is None:
            watched.seen.setdefault(watched.mechanism, {}).update(read)
        watched.active, watched.context = active, context
        if trigger is None:
            return None
        excuse = self._held.get(query) or self._late.get(query, "")
        if not excuse and Metric.FREQUENCY in excused:
            excuse = "it has not given its first result yet"
        if any(demand.metric not in excused for demand in bad):
            excuse = ""
        return PlanningCase(query, watched, trigger, active, read, context, now_ms, settings, waited, excuse)

    def _excused(self, query: QueryId, read: Iterable[Metric], waited: frozenset[Metric]) -> frozenset[Metric]:
        """Metrics whose values no mechanism is to blame for: nothing is learned from them."""
        if query in self._held:
            return frozenset(read)
        found = waited if query in self._late else frozenset()
        begins = not self.knowledge.queries[query].has_results and not self.policy.of(query).try_early
        return found | {Metric.FREQUENCY} if begins else found

    def _shared(self, query: QueryId) -> frozenset[QueryId]:
        """Queries that must not change because this one does."""
        running = self.knowledge.queries[query].transition
        return running.also if running else frozenset()

    def _must_wait(self, case: PlanningCase, busy: Mapping[QueryId, QueryId]) -> str:
        """The reason why a query must wait at this time; empty when it need not."""
        watched = case.watched
        if watched.transition is not None:
            return f"its transition to {watched.transition.target} is still running"
        if case.query in busy:
            return f"query {busy[case.query]}, with which it shares operators, is in a transition"
        if case.trigger is Trigger.VIOLATED and case.excuse:
            return f"another placement would not help: {case.excuse}"
        if case.now_ms - watched.since_ms < case.settings.stay_ms:
            return f"{watched.mechanism} has not run for {case.settings.stay_ms / 1000:g} s yet"
        return ""

    def _note(self, case: PlanningCase, decision: Decision) -> None:
        """Records the effect of a decision on the next rounds."""
        watched, settings = case.watched, case.settings
        watched.asked_ms = case.now_ms
        if decision.transition is not None:
            watched.transition = decision.transition
            watched.backoff_ms = watched.not_before_ms = 0
            watched.hopes = decision.reason
        elif case.trigger is Trigger.VIOLATED:
            longer = max(settings.retry_ms, 2 * watched.backoff_ms)
            watched.backoff_ms = min(longer, settings.longest_retry_ms)
            watched.not_before_ms = case.now_ms + watched.backoff_ms

    def _told(self, watched: Watched, decisions: list[Decision]) -> list[Decision]:
        """Leaves out a decision not to act that was reported before in the same words, whatever the numbers."""
        found: list[Decision] = []
        for decision in decisions:
            words = decision.trigger.value, f"{decision.action.value} {_NUMBER.sub('', decision.reason)}"
            if decision.action not in (DecisionAction.KEEP, DecisionAction.WAIT) or words != watched.told:
                found.append(decision)
                watched.told = words
        return found

    def _decision(self, case: PlanningCase, action: DecisionAction, reason: str) -> Decision:
        read = {metric.value: value for metric, value in case.read.items()}
        return Decision(case.now_ms, case.query, case.trigger, action, case.current, reason, readings=read)
