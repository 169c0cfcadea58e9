"""Adaptation of running queries: the MAPE-K loop on real measures, its transitions on the running data plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from meander.adapt import decision_log
from meander.adapt.decisions import Decision, DecisionAction, TransitionOutcome
from meander.adapt.execute import begin
from meander.adapt.knowledge import Knowledge
from meander.adapt.loop import AdaptationLoop as Mapek
from meander.adapt.mechanism_forecasts import CatalogForesight
from meander.adapt.per_query import PerQuery
from meander.adapt.setting_layers import AdaptationPolicy
from meander.coordinator.adaptation.first_mechanisms import FirstMechanisms
from meander.coordinator.adaptation.metering import Meter
from meander.coordinator.adaptation.transitions import Transitions
from meander.coordinator.loop.loop import PlacementLoop
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, DemandChanged, MechanismChanged, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.place.mechanisms import MECHANISMS
from meander.place.mechanisms.base import Mechanism
from meander.place.nova.queries.partitioned_queries import NOVA

ROUND_MS = 1_000


def per_query(fallback: str) -> PerQuery:
    """All mechanisms, so that every query can have its own."""
    library: dict[str, Mechanism] = {m.name: m() for m in MECHANISMS}
    return PerQuery(library, fallback)


class Adaptation:
    """Looks after the demands of all running queries. The engine's mechanism is `per_query`'s."""

    def __init__(
        self,
        loop: PlacementLoop,
        *,
        policy: AdaptationPolicy | None = None,
        knowledge: Knowledge | None = None,
        log_file: Path | None = None,
        seed: int = 0,
    ) -> None:
        chosen = loop.engine.mechanism
        if not isinstance(chosen, PerQuery):
            raise InputError("queries can only switch mechanisms when the engine was made with `per_query`")
        self.loop, self.chosen, self.log_file = loop, chosen, log_file
        foresight = CatalogForesight(loop.catalog, chosen.library, seed=seed)
        self.policy = policy or AdaptationPolicy()
        self.mapek = Mapek(foresight, policy=self.policy, knowledge=knowledge, seed=seed)
        self.transitions = Transitions(loop, self.policy.of().protocol)
        self.first = FirstMechanisms(loop.engine, chosen, self.mapek)
        self.mapek.planner.foresee = self.transitions.predictor.foresee
        self.meter = Meter(loop)
        self.decisions: list[Decision] = []
        self._last_ms: int | None = None
        self._ended: dict[QueryId, TransitionOutcome] = {}
        """Transitions that ended since the last round."""

    def restore(self) -> None:
        """Takes up transitions that were in flight. Before the loop recovers; queries are watched by then."""
        for transition in self.transitions.restore():
            watched = self.mapek.knowledge.queries.get(transition.query)
            if watched is not None:
                watched.mechanism, watched.transition = transition.source, transition

    def resume(self) -> None:
        """Goes on with them, after the loop has recovered."""
        self.transitions.resume()

    def watch(self, now_ms: int) -> None:
        """Looks after the queries that run, from now on."""
        for query, running in self.loop.catalog.plan.queries.items():
            self.mapek.watch(query, running.query.demands, self.chosen.fallback, now_ms)

    def note(self, events: Iterable[ChangeEvent], now_ms: int) -> None:
        """Records events for the loop: changes of the environment and of demands, queries that came or went."""
        found = list(events)
        self.meter.note(found)
        for event in found:
            if isinstance(event, DemandChanged):
                self.mapek.change_demands(event.query, event.demands)
            elif isinstance(event, QueryAdded):
                usual = self.chosen.fallback
                first = NOVA if event.mechanism == NOVA else self.first.placed.get(event.query.id, usual)
                self.mapek.watch(event.query.id, event.query.demands, first, now_ms)
            elif isinstance(event, MechanismChanged):
                watched = self.mapek.knowledge.queries[event.query]
                watched.mechanism, watched.why = event.mechanism, "it was asked for"
            elif isinstance(event, QueryRemoved):
                self.mapek.forget(event.query)
                self.policy.forget(event.query)

    def tick(self, now_ms: int) -> list[Decision]:
        """Carries transitions on; a round, when it is time for one."""
        self._ended |= self.transitions.poll()
        if self._last_ms is None:
            self._last_ms = now_ms
            self.meter.read(now_ms, ROUND_MS)
            return []
        span = now_ms - self._last_ms
        if span < ROUND_MS:
            return []
        self._last_ms = now_ms
        for mechanism, reason in self.chosen.failures:
            self.mapek.broke(now_ms, mechanism, reason)
        self.chosen.failures.clear()
        measures, ended, self._ended = self.meter.read(now_ms, span), self._ended, {}
        started = self.loop.clock()
        decided = self.mapek.step(now_ms, measures, ended)
        chosen = [d for d in decided if d.transition is not None]
        self.transitions.selection_s = (self.loop.clock() - started) / max(1, len(chosen))
        with self.transitions.together():
            decided = begin(self.mapek, self.transitions, now_ms, decided)
        for decision in decided:
            cost = self.transitions.costs.get(decision.query)
            if decision.action is DecisionAction.ARRIVED and cost is not None:
                self.meter.exchanged.overlapped(decision.query, str(decision.target), cost.overlap_bytes)
        self.decisions += decided
        if self.log_file is not None and decided:
            decision_log.append(self.log_file, decided)
        return decided

    def mechanisms(self) -> Mapping[str, tuple[str, str]]:
        """The mechanism that each query has at present, and why."""
        return {str(query): (w.mechanism, w.why) for query, w in self.mapek.knowledge.queries.items()}
