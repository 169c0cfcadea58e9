"""Bytes that mechanisms exchange on the running system, by mechanism and by query, each counted once.

Placement messages are what a mechanism would send to place operators, as each counts them; the cost space is kept up to
date for those that need it, who share that; control and state are what really travelled in reconfigurations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meander.adapt.per_query import PerQuery
from meander.coordinator.loop.loop import PlacementLoop
from meander.model.ids import OperatorId, QueryId
from meander.place.nova.queries.partitioned_queries import NOVA
from meander.reconfigure.outcome import ReconfigurationOutcome

PLACEMENT, COST_SPACE, CONTROL, STATE = "placement", "cost_space", "control", "state"


@dataclass(slots=True)
class ExchangedBytes:
    """Counts since the process began, and by query since the last reading."""

    loop: PlacementLoop
    queries_of: Callable[[OperatorId], Sequence[str]] | None = None
    """The queries that an operator serves; without it they are looked up in the plan."""
    by_mechanism: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By mechanism and part."""
    _by_query: dict[QueryId, float] = field(default_factory=dict)
    _space_bytes: int = 0

    def reconfigured(self, outcomes: Iterable[ReconfigurationOutcome]) -> None:
        """Control messages and state of reconfigurations that ended, also of those that were aborted."""
        for outcome in outcomes:
            operators = outcome.operators or tuple(outcome.moved)
            self._count(CONTROL, operators, outcome.control_bytes)
            self._count(STATE, operators, outcome.state_bytes)

    def overlapped(self, query: QueryId, mechanism: str, size: float) -> None:
        """Input that a query's operators got at both places in a transition."""
        self.by_mechanism[mechanism][STATE] += round(size)
        self._by_query[query] = self._by_query.get(query, 0.0) + size

    def read(self) -> Mapping[QueryId, float]:
        """The bytes of each query since the last reading."""
        chosen = self.loop.engine.mechanism
        if isinstance(chosen, PerQuery):
            proposed, chosen.proposed = chosen.proposed, []
            for mechanism, operators, size in proposed:
                self._count(PLACEMENT, operators, size, mechanism)
        self._share_space()
        found, self._by_query = self._by_query, {}
        return found

    def _count(self, part: str, operators: Collection[OperatorId], size: float, mechanism: str | None = None) -> None:
        known = [o for o in operators if o in self.loop.catalog.plan.operators]
        if not size or not known:
            return
        chosen = self.loop.engine.mechanism
        for operator in known:
            name = mechanism or (chosen.of(operator) if isinstance(chosen, PerQuery) else chosen.name)
            self.by_mechanism[name][part] += round(size / len(known))
            queries = self._queries(operator)
            for query in queries:
                self._by_query[query] = self._by_query.get(query, 0.0) + size / len(known) / len(queries)

    def _queries(self, operator: OperatorId) -> list[QueryId]:
        if self.queries_of is not None:
            return [QueryId(name) for name in self.queries_of(operator)]
        plan = self.loop.catalog.plan
        return [query for query in plan.queries if operator in plan.serving(query)]

    def _share_space(self) -> None:
        """Queries whose mechanism needs the cost space share what keeping it up to date took."""
        engine = self.loop.engine
        size, self._space_bytes = engine.space_bytes - self._space_bytes, engine.space_bytes
        chosen, plan = engine.mechanism, engine.catalog.plan
        if not size or not isinstance(chosen, PerQuery):
            return
        names = {q: self._mechanism(chosen, q) for q in plan.queries}
        library = chosen.library
        users = [q for q, name in names.items() if name not in library or library[name].metadata.needs_cost_space]
        for query in users:
            self.by_mechanism[names[query]][COST_SPACE] += round(size / len(users))
            self._by_query[query] = self._by_query.get(query, 0.0) + size / len(users)

    def _mechanism(self, chosen: PerQuery, query: QueryId) -> str:
        engine = self.loop.engine
        if engine.parted.has(query):
            return NOVA
        free = [o for o in engine.catalog.plan.serving(query) if engine.catalog.plan[o].pin is None]
        return chosen.elected(free)
