"""The mechanisms that new queries begin with: one places a query when it comes, another may before it runs.

The engine asks here when a query was added and before it is placed. Once it is placed, forecasts are possible; a query
whose demands another mechanism comes closer to is placed again, which costs nothing, as nothing of it runs yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meander.adapt.decisions import Decision
from meander.adapt.first_mechanism import Beginning, beginning, by_metadata
from meander.adapt.loop import AdaptationLoop as Mapek
from meander.adapt.per_query import PerQuery, place_again
from meander.adapt.plan import usable
from meander.adapt.setting_layers import AdaptationPolicy
from meander.adapt.settings import BY_DEMANDS, AdaptationSettings
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.ids import OperatorId, QueryId
from meander.model.plan import Query
from meander.place.engine import BatchReport, Engine
from meander.place.nova.queries.partitioned_queries import NOVA
from meander.place.nova.queries.settings import MECHANISM

MOST_FORECAST = 20
"""Queries that come in one batch and whose first mechanism is forecast; with more, metadata decide."""


def first_settings(policy: AdaptationPolicy, query: Query) -> AdaptationSettings:
    """The settings of a query that comes: what was set for it by name wins over what its text says."""
    settings, named = policy.of(query.id), dict(query.options).get(MECHANISM)
    if named is None or "first" in policy.changed.get(query.id, {}):
        return settings
    return replace(settings, first=named)


class FirstMechanisms:
    """Of the queries of one engine, whose mechanism is `chosen`."""

    def __init__(self, engine: Engine, chosen: PerQuery, mapek: Mapek) -> None:
        self.engine, self.chosen, self.mapek = engine, chosen, mapek
        self.placed: dict[QueryId, str] = {}
        """The mechanisms by which new queries were placed, until they are settled."""
        self.refused: dict[QueryId, str] = {}
        """Why Nova cannot place a new query that was to begin with it, until that is settled."""
        engine.applicator.admitted = self._admitted

    def _admitted(self, query: Query, operators: Sequence[OperatorId]) -> None:
        """The mechanism that is named for a query, or whose metadata match its demands, places it."""
        settings, usual = first_settings(self.mapek.policy, query), self.chosen.fallback
        name = settings.first
        if name in (BY_DEMANDS, NOVA):
            known = usable(self.mapek.foresight, query.id, settings)
            name = by_metadata(known, query.demands, usual) if query.demands else usual
        self.placed[query.id] = name
        if name != usual:
            self.chosen.assign(operators, name)

    def settle(self, events: Sequence[ChangeEvent], now_ms: int) -> tuple[list[Decision], list[BatchReport]]:
        """Chooses for the queries that were just placed; those that another mechanism is to have, it places again."""
        named = Beginning(NOVA, "it was named for it")
        parted = [e.query.id for e in events if isinstance(e, QueryAdded) and e.query.id in self.engine.parted.by_name]
        decided = [self.mapek.begin(now_ms, query, named) for query in parted]
        reports: list[BatchReport] = []
        added = [e.query for e in events if isinstance(e, QueryAdded) and e.query.id in self.placed]
        for query in added:
            placed, settings = self.placed.pop(query.id), first_settings(self.mapek.policy, query)
            if len(added) > MOST_FORECAST and settings.first == BY_DEMANDS and query.demands:
                choice = Beginning(placed, "its metadata match the demands best; too many queries came to ask more")
            else:
                others = replace(settings, first=BY_DEMANDS) if settings.first == NOVA else settings
                choice = beginning(self.mapek.foresight, query.id, query.demands, others, placed)
            if query.id in self.refused:
                choice = replace(choice, reason=f"{self.refused.pop(query.id)}; of the others, {choice.reason}")
            if choice.mechanism != placed:
                reports.append(place_again(self.engine, query.id, choice.mechanism))
            decided.append(self.mapek.begin(now_ms, query.id, choice))
        return decided, reports
