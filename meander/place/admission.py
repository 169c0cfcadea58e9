"""Checks a whole batch of events before any of it is applied, so that a bad event changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from meander.model.errors import InputError, unknown
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    JoinMatrixChanged,
    LinkAdded,
    LinkRemoved,
    MechanismChanged,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import NodeId, QueryId
from meander.place.catalog import Catalog


def admit(catalog: Catalog, events: Sequence[ChangeEvent]) -> None:
    """Raises for the first event that cannot be applied after the ones before it, naming its number in the batch."""
    foresight = _Foresight(catalog)
    for number, event in enumerate(events, start=1):
        try:
            foresight.check(event)
        except InputError as error:
            raise error.inside(f"event {number} of {len(events)}") from None


class _Foresight:
    """The differences between the catalog and its state after the events checked so far."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.nodes: dict[str, bool] = {}
        self.links: dict[tuple[str, str], bool] = {}
        self.emptied: set[str] = set()
        """Nodes that were removed in this batch: their former links are gone even if they come back."""
        self.queries: dict[QueryId, bool] = {}
        self._ids: dict[str, NodeId | None] = {}

    def check(self, event: ChangeEvent) -> None:
        match event:
            case QueryAdded(query=query):
                if self._has_query(query.id):
                    raise InputError(f"query {query.id!r} is running already; remove it first or choose another name")
                self.queries[query.id] = True
            case QueryRemoved(query=name):
                self._need_query(name)
                self.queries[name] = False
            case DemandChanged(query=name) | JoinMatrixChanged(query=name) | MechanismChanged(query=name):
                self._need_query(name)
            case NodeAdded(node=node):
                if self._has_node(node.name):
                    raise InputError(f"node {node.name!r} exists already; remove it first or choose another name")
                self.nodes[node.name] = True
            case NodeRemoved(node=name):
                self._need_node(name)
                self.nodes[name] = False
                self.emptied.add(name)
                self.links = {pair: there for pair, there in self.links.items() if name not in pair}
            case LinkAdded(link=link):
                self._need_node(link.source)
                self._need_node(link.target)
                for pair in self._pairs(link.source, link.target, link.directed):
                    if self._has_link(*pair):
                        raise InputError(f"link {link.source!r} to {link.target!r} exists already; remove it first")
                    self.links[pair] = True
            case LinkRemoved(source=a, target=b, directed=directed):
                self._need_node(a)
                self._need_node(b)
                pairs = self._pairs(a, b, directed)
                if not any(self._has_link(*pair) for pair in pairs):
                    raise InputError(f"no link {a!r} to {b!r}; it was removed already or never added")
                self.links.update(dict.fromkeys(pairs, False))
            case CapacityChanged(node=name, slots=slots, capacity_tps=tps, memory_mb=memory):
                self._need_node(name)
                for what, value in (("slots", slots), ("capacity_tps", tps), ("memory_mb", memory)):
                    if value is not None and not value >= 0:
                        raise InputError(f"node {name!r}: {what} must not be negative, but is {value}")
            case RateChanged(stream=name, rate_tps=rate, node=producer):
                self._need_stream(name, producer)
                if not 0 < rate < float("inf"):
                    raise InputError(f"stream {name!r}: rate must be positive and finite, not {rate}")
            case PlacementChanged(operator=operator, node=name):
                if name is not None:
                    self._need_node(name)
                record = self.catalog.plan.operators.get(operator)
                if record is None or not record.users:
                    raise InputError(f"no operator {operator} in the global query plan")
                if not record.slots:
                    raise InputError(f"operator {operator} is a source or sink and cannot be moved")

    @staticmethod
    def _pairs(a: str, b: str, directed: bool) -> list[tuple[str, str]]:
        return [(a, b)] if directed else [(a, b), (b, a)]

    def _has_query(self, name: QueryId) -> bool:
        return self.queries.get(name, name in self.catalog.plan.queries)

    def _need_query(self, name: QueryId) -> None:
        if not self._has_query(name):
            gone = {q for q, there in self.queries.items() if not there}
            fresh = {q for q, there in self.queries.items() if there}
            raise unknown("query", name, ({*self.catalog.plan.queries, *fresh}) - gone, "queries")

    def _has_node(self, name: str) -> bool:
        there = self.nodes.get(name) if self.nodes else None
        return self._id(name) is not None if there is None else there

    def _id(self, name: str) -> NodeId | None:
        """The id of a node that is there before the batch."""
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = self.catalog.topology.find(name)
        return known

    def _need_node(self, name: str) -> None:
        if not self._has_node(name):
            topology = self.catalog.topology
            known = {topology.name(n) for n in topology.ids()}
            known |= {n for n, there in self.nodes.items() if there}
            raise unknown("node", name, known - {n for n, there in self.nodes.items() if not there})

    def _has_link(self, a: str, b: str) -> bool:
        there = self.links.get((a, b))
        if there is not None:
            return there
        tail, tip = self._id(a), self._id(b)
        if a in self.emptied or b in self.emptied or tail is None or tip is None:
            return False
        return self.catalog.topology.adjacency.between(tail, tip) is not None

    def _need_stream(self, name: str, producer: str | None) -> None:
        stream = self.catalog.streams.get(name)
        if stream is None:
            raise unknown("stream", name, self.catalog.streams)
        if producer is not None and producer not in stream.nodes:
            raise unknown(f"producer of stream {name!r}", producer, stream.nodes, f"producers of stream {name!r}")
