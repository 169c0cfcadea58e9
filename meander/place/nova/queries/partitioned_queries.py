"""All queries that Nova places in one catalog: what a batch of events touches of them is placed anew, as part of it.

The engine asks in this order: `foresee` before events are applied, `follow` when they are and the cost space is up to
date. Whatever changes is written into the plan and the change log, so it is amended, deployed and undone as anything
else. Other queries are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, JoinMatrixChanged, MechanismChanged, QueryAdded, QueryRemoved
from meander.model.ids import OperatorId, QueryId
from meander.model.plan import Query
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.mechanisms.base import Mechanism
from meander.place.nova.improvement.links import LinkLoad
from meander.place.nova.queries.cascade import CascadedQuery
from meander.place.nova.queries.join_parts import Running
from meander.place.nova.queries.question import pairs_of_query
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.shape import PAIRING, stages_of
from meander.place.nova.queries.takeover import Legacy
from meander.place.nova.queries.tree_query import TreeQuery
from meander.place.nova.queries.tree_shape import tree_of

NOVA = "nova"
PlacedQuery = CascadedQuery | TreeQuery


class PartitionedQueries:
    """Those of one catalog, by name."""

    def __init__(self, catalog: Catalog, log: ChangeLog) -> None:
        self.catalog, self.log = catalog, log
        self.by_name: dict[QueryId, PlacedQuery] = {}
        self.settings = NovaQuerySettings()
        self.changed: dict[QueryId, None] = {}
        """Queries whose cut changed since somebody last took note of it, and those that came or left."""
        self.taken: dict[QueryId, None] = {}
        """Those of them of which nothing runs any more that another mechanism had placed."""
        self.has_run: Callable[[OperatorId], bool] = lambda operator: True
        """Whether something runs, or is about to, that an operator was deployed for."""
        self.spent: Callable[[], Sequence[Running]] = lambda: ()
        """Retired parts that are of no use any more."""
        self._shared: dict[Signature, OperatorId] = {}
        """The sources of parted queries, which they share. Other queries have sources of their own."""

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def has(self, query: QueryId) -> bool:
        """Whether Nova places a query: not one that it has handed over."""
        found = self.by_name.get(query)
        return isinstance(found, TreeQuery) or (found is not None and not found.switchover.is_away)

    def joined(self, query: QueryId, *, away: bool = False) -> CascadedQuery:
        """A query with joins that Nova places, or with `away` has placed; raises for any other."""
        found = self.by_name.get(query)
        if isinstance(found, TreeQuery):
            raise InputError(f"query {query!r} has no join, and so no join matrix")
        if found is None or not (away or self.has(query)):
            raise InputError(
                f"query {query!r} is not placed by Nova and has no join matrix; "
                f"`meander switch {query} {NOVA}` lets Nova place it"
            )
        return found

    def _made(self, query: Query, **how: Any) -> PlacedQuery:
        kind = CascadedQuery if has_joins(query) else TreeQuery
        return kind(self.catalog, self.log, query, **how)

    def check(self, query: Query) -> None:
        """Raises when Nova cannot place a query now. Changes nothing."""
        self._made(query, settings=self.settings).check()

    def check_shape(self, query: Query) -> None:
        """Raises when a query is none that Nova can place, whatever room there is."""
        if not has_joins(query):
            tree_of(query, self.catalog)
            return
        for shape in stages_of(query, self.catalog.streams, self.catalog.sinks):
            pairs_of_query(shape, self.catalog.streams)

    def admit(self, events: Iterable[ChangeEvent]) -> None:
        """Raises for an event that Nova could never carry out: before anything is changed."""
        for event in events:
            if isinstance(event, QueryAdded) and event.mechanism == NOVA:
                self.check_shape(event.query)
            elif isinstance(event, JoinMatrixChanged) and event.query in self.catalog.plan.queries:
                found = self.joined(event.query)
                if found.switchover.is_on_its_way:
                    raise InputError(_on_its_way(event.query))
                found.matrix.numbers(event.pairs)
            elif isinstance(event, MechanismChanged):
                self._admit_change(event.query, event.mechanism)

    def _admit_change(self, query: QueryId, mechanism: str) -> None:
        if query not in self.catalog.plan.queries:
            raise unknown("query", query, self.catalog.plan.queries, "queries")
        known = self.by_name.get(query)
        if isinstance(known, CascadedQuery) and self.has(query) and known.switchover.is_on_its_way:
            raise InputError(_on_its_way(query))
        if self.has(query) == (mechanism == NOVA):
            raise InputError(
                f"query {query!r} is placed by Nova already"
                if mechanism == NOVA
                else f"query {query!r} is not placed by Nova; `meander switch` changes from other mechanisms"
            )
        running = self.catalog.plan.query(query).query
        if isinstance(known, TreeQuery) or not has_joins(running):
            self.check_shape(running)
            raise InputError(
                f"query {query!r} has no join, so it cannot go to Nova or leave it while it runs; stop it, and submit "
                "it with the other mechanism"
            )
        if known is not None:
            known.switchover.check()
        if mechanism == NOVA:
            found = CascadedQuery(self.catalog, self.log, self.catalog.plan.query(query).query, settings=self.settings)
            found.switchover.check()
            found.check()
            if query not in self.by_name:
                Legacy.check(self.catalog, query)

    def takes(self, event: ChangeEvent) -> bool:
        """Whether an event is about a query that is to be placed by Nova."""
        return isinstance(event, QueryAdded) and event.mechanism == NOVA

    def places(self, event: ChangeEvent) -> bool:
        """Whether Nova has something to place with an event."""
        return self.takes(event) or isinstance(event, MechanismChanged)

    def restore(self, query: Query, record: dict[str, Any]) -> None:
        """Takes up a query as it was recorded; one that was being taken over is in the plan."""
        found = self._made(query, settings=self.settings, shared=self._shared, record=record)
        found.restore(record)
        self.by_name[query.id] = found

    @property
    def retired(self) -> list[Running]:
        """The retired parts of all queries."""
        return [running for parted in self.by_name.values() for running in parted.retired]

    def exceeded(self, name: QueryId) -> list[LinkLoad]:
        """Links that a query would load with more than they carry, the worst first: none, unless a join stays that
        fits nowhere."""
        return self.by_name[name].exceeded()

    # ---------------------------------------------------------------- a batch

    def foresee(self, events: Sequence[ChangeEvent]) -> None:
        """Before events are applied that have been admitted."""
        for parted in self.by_name.values():
            parted.foresee(events)

    def follow(self, events: Sequence[ChangeEvent], mechanism: Mechanism) -> None:
        """After events were applied. What Nova hands over, `mechanism` places from now on."""
        for name in [name for name in self.by_name if name not in self.catalog.plan.queries]:
            self.by_name.pop(name).end()
            self.changed[name] = None
        cause = _cause(events)
        for name, parted in self.by_name.items():
            chosen = None
            for event in events if isinstance(parted, CascadedQuery) else ():
                assert isinstance(parted, CascadedQuery)
                if isinstance(event, JoinMatrixChanged) and event.query == name:
                    parted.matrix.change(parted.matrix.numbers(event.pairs))
                elif isinstance(event, MechanismChanged) and event.query == name:
                    parted.joins.take_back() if event.mechanism == NOVA else parted.joins.hand_over()
                    chosen = event.mechanism
            parted.follow(events)
            self._recut(name, parted, cause)
            self._assign(parted, chosen, mechanism)
        for query in self._arriving(events):
            found = self._placed(query)
            found.start()
            self.by_name[query.id] = found
            self.changed[query.id] = None
        self._take_over(events, cause)
        for parted in self.by_name.values():
            parted.unshare()

    def _take_over(self, events: Sequence[ChangeEvent], cause: str) -> None:
        for event in events:
            running = self.catalog.plan.queries.get(event.query) if isinstance(event, MechanismChanged) else None
            if running is not None and running.query.id not in self.by_name:
                query, shared = running.query, self._shared
                legacy = Legacy.of(self.catalog, query.id)
                found = CascadedQuery(self.catalog, self.log, query, settings=self.settings, shared=shared)
                found.joins.take_over(legacy, cause)
                self.by_name[query.id] = found
                self.changed[query.id] = None

    def _recut(self, name: QueryId, parted: PlacedQuery, cause: str) -> None:
        never = [r for r in parted.running if r.operator is not None and not self.has_run(r.operator)]
        on_its_way = isinstance(parted, CascadedQuery) and parted.switchover.is_on_its_way
        if parted.recut(cause, [*self.spent(), *never]):
            self.changed[name] = None
            if on_its_way and isinstance(parted, CascadedQuery) and not parted.switchover.is_on_its_way:
                self.taken[name] = None

    def _assign(self, parted: PlacedQuery, chosen: str | None, mechanism: Mechanism) -> None:
        """Lets the query's mechanism place what is new of a join that it places."""
        if isinstance(parted, TreeQuery):
            return
        plan = self.catalog.plan
        free = [o for o in plan.serving(parted.query.id) if plan[o].pin is None]
        whole = parted.switchover.whole
        if parted.switchover.is_away and whole is not None:
            mechanism.assign(free, chosen or mechanism.of(whole))

    def _placed(self, query: Query) -> PlacedQuery:
        """A query that was admitted; what other events of the batch left no room for is tried again later."""
        settings, shared = self.settings, self._shared
        try:
            return self._made(query, settings=settings, shared=shared)
        except InputError:
            found = self._made(query, settings=settings, shared=shared, fits=True)
            found.follow(())
            return found

    def _arriving(self, events: Iterable[ChangeEvent]) -> list[Query]:
        """Queries to be placed by Nova that come, and do not leave with the same batch."""
        found: dict[QueryId, Query] = {}
        for event in events:
            if isinstance(event, QueryAdded) and event.mechanism == NOVA:
                found[event.query.id] = event.query
            elif isinstance(event, QueryRemoved):
                found.pop(event.query, None)
        return list(found.values())


def has_joins(query: Query) -> bool:
    """Whether a query has a join, or another operator that looks at pairs."""
    return any(isinstance(spec, PAIRING) for spec in query.plan.operators.values())


def _cause(events: Iterable[ChangeEvent]) -> str:
    """The events of a batch in a few words."""
    kinds = dict.fromkeys(_words(type(event).__name__) for event in events)
    shown = list(kinds)[:3]
    more = f" and {len(kinds) - 3} more kinds of events" if len(kinds) > 3 else ""
    return f"re-optimised after: {', '.join(shown)}{more}" if shown else "retired parts hold nothing any more"


def _on_its_way(query: QueryId) -> str:
    return f"query {query!r} is on its way to Nova; wait until its former join has ended"


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def refusal(parted: PartitionedQueries, query: Query) -> str | None:
    """The reason why Nova cannot place a query; None if it can."""
    try:
        parted.check(query)
    except InputError as error:
        return str(error)
    return None
