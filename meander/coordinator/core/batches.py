"""Batches of changes: an accepted one is applied to the catalog, its result goes into the ledger and the read model.

Placements that change outside of a batch, such as those of the adaptation loop, are followed here too: one place knows
what the ledger was last told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meander.coordinator.core.commands import CommandBatch
from meander.coordinator.ledger.ledger import Placing
from meander.coordinator.ledger.query_tables import QueryChange
from meander.coordinator.ledger.removed_nodes import Departure
from meander.coordinator.read_model.publisher import Publisher
from meander.coordinator.read_model.read_model import pair_of
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
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.engine import BatchReport, Engine
from meander.place.nova.queries.partitioned_queries import NOVA


class ObservedEngine(Engine):
    """An engine whose reports can be read afterwards, whichever caller ran it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reports: list[BatchReport] = []

    def run(self, events: Sequence[ChangeEvent], *, escalates: bool = True) -> BatchReport:
        report = super().run(events, escalates=escalates)
        self.reports.append(report)
        return report

    def told(self) -> list[BatchReport]:
        """The reports since the last time."""
        found, self.reports = self.reports, []
        return found


class Batches:
    """Called by the core's thread only."""

    def __init__(self, publisher: Publisher, clock: Callable[[], int]) -> None:
        self.publisher, self.clock = publisher, clock
        self.loop, self.ledger, self.sink_bindings = publisher.loop, publisher.ledger, publisher.sink_bindings
        self.adaptation = publisher.adaptation
        self.changed = 0.0
        """The time at which the last batch was applied."""
        self._placed: dict[OperatorId, tuple[NodeId, bool]] = {}
        """The node of each operator as the ledger has it, and whether it was put there by hand."""
        self._unsaved: dict[OperatorId, None] = {}
        """Operators that were placed, moved or removed since the ledger was last told."""

    def restore(self) -> None:
        """The ledger has the placements that the catalog has."""
        found = {o: self._placing(o) for o in self.loop.catalog.placement.nodes}
        self._placed = {o: placing for o, placing in found.items() if placing is not None}

    def apply(self, number: int, events: Sequence[ChangeEvent], texts: Mapping[QueryId, str]) -> CommandBatch:
        """Applies a batch that was accepted, and writes down its result; `begin` has to follow."""
        topology, now = self.loop.catalog.topology, self.clock()
        names, links = self._touched(events)
        departure = Departure.of(topology, self.ledger.away_links, events)
        for event in events:
            if isinstance(event, QueryRemoved):
                self.adaptation.transitions.give_up(event.query)
        applied = self.loop.decide(events)
        self.adaptation.note(events, now)
        chosen, again = self.adaptation.first.settle(events, now)
        for report in again:
            applied.continued(report)
        self._told_reports()
        recut = self._recut()
        nodes = {topology.known_id(name) for name in names}
        pairs = {pair_of(topology.known_id(a), topology.known_id(b)) for a, b in links}
        with self.ledger.transaction():
            self._note(events, texts)
            self._save_cuts(recut)
            moves = self.publisher.moves(applied.report)
            self.publisher.by_hand([e.operator for e in events if isinstance(e, PlacementChanged)])
            owner = self.loop.deployer.deployment.owner
            fragments = {owner[m.operator] for m in applied.report.moves if m.operator in owner}
            batch = CommandBatch(number, applied, moves, len(fragments))
            self.ledger.topology.save_nodes(topology, nodes)
            self.ledger.topology.save_links(topology, pairs)
            nodes |= {topology.known_id(name) for name in departure.note()}
            self._save_placements([e.operator for e in events if isinstance(e, PlacementChanged)])
            self.ledger.batches.applied(number, batch.in_numbers())
        self.publisher.totals.batches += 1
        self.publisher.totals.events += len(events)
        nodes |= {n for m in applied.report.moves for n in (m.source, m.target) if n is not None}
        self.publisher.placed(moves, nodes, pairs)
        self.publisher.decisions(chosen)
        self.publisher.queries([*recut, *(q for e in events if (q := _query_of(e)) is not None)])
        return batch

    def begin(self, batch: CommandBatch) -> None:
        """Begins to deploy the decisions of a batch. Its commands have been answered by then, and do not wait for
        deployment."""
        self.changed = time.monotonic()
        self.loop.begin(batch.applied)
        self.publisher.reconfigurations((), self.clock())

    def _touched(self, events: Iterable[ChangeEvent]) -> tuple[set[str], set[tuple[str, str]]]:
        """Names of nodes and ends of links that events are about to change."""
        nodes: set[str] = set()
        links: set[tuple[str, str]] = set()
        for event in events:
            match event:
                case NodeAdded(node=node):
                    nodes.add(node.name)
                case CapacityChanged(node=name):
                    nodes.add(name)
                case NodeRemoved(node=name):
                    nodes.add(name)
                    links |= {(name, other) for other in self._neighbours(name)}
                case LinkAdded(link=link):
                    links.add((link.source, link.target))
                case LinkRemoved(source=a, target=b):
                    links.add((a, b))
        return nodes, links

    def _neighbours(self, name: str) -> list[str]:
        topology = self.loop.catalog.topology
        node = topology.find(name)
        if node is None:
            return []
        ends = [topology.arcs.tip[a] for a in topology.adjacency.leaving(node)]
        ends += [topology.arcs.tail[a] for a in topology.adjacency.entering(node)]
        return [topology.name(NodeId(int(n))) for n in ends]

    def _note(self, events: Iterable[ChangeEvent], texts: Mapping[QueryId, str]) -> None:
        """Writes down the effects of applied events, besides topology and placements."""
        for event in events:
            match event:
                case QueryAdded(query=query):
                    self.ledger.queries.save_demands(query.id, None)  # those of a former query of this name
                    self.publisher.texts[query.id] = texts[query.id]
                    self.sink_bindings.expect(query.id)
                    self.publisher.read_model.show_query(query.id)
                case QueryRemoved(query=name):
                    self.sink_bindings.stop(name)
                    self.ledger.queries.save_demands(name, None)
                    self.ledger.queries.save_adaptation(name, {})
                case DemandChanged(query=name, demands=demands):
                    self.ledger.queries.save_demands(name, [str(d) for d in demands])
                case RateChanged(stream=stream):
                    rates = self.loop.catalog.rates_tps
                    self.ledger.save_rates({key: rate for key, rate in rates.items() if key[0] == stream})

    def _save_placements(self, by_hand: Iterable[OperatorId] = ()) -> None:
        """Writes down the places of operators that moved, and of those that a user moved or released."""
        why = self.publisher.read_model.why
        changed: dict[OperatorId, Placing | None] = {}
        for operator in (*self._unsaved, *by_hand):
            placing = self._placing(operator)
            if self._placed.get(operator) != placing:
                changed[operator] = None if placing is None else Placing(*placing, why.get(operator, ""))
                if placing is None:
                    del self._placed[operator]
                else:
                    self._placed[operator] = placing
        self.ledger.save_placements(changed)
        self._unsaved.clear()

    def _placing(self, operator: OperatorId) -> tuple[NodeId, bool] | None:
        """Its node, and whether it was put there by hand; None when it has no place."""
        node = self.loop.catalog.placement.nodes.get(operator)
        return None if node is None else (node, self.loop.catalog.plan[operator].is_held)

    def follow(self) -> None:
        """Takes note of placements that changed outside of a batch, such as those of the adaptation loop."""
        reports = self._told_reports()
        if not reports:
            return
        recut = self._recut()
        with self.ledger.transaction():
            self._save_cuts(recut)
            moves = [m for report in reports for m in self.publisher.moves(report)]
            self._save_placements()
        ends = (n for report in reports for m in report.moves for n in (m.source, m.target))
        self.publisher.placed(moves, {n for n in ends if n is not None}, ())

    def let_go(self) -> None:
        """Ends what runs of joins that are cut anew and is of no use any more."""
        applied = self.loop.decide([])
        self.follow()
        self.loop.begin(applied)

    def _recut(self) -> list[QueryId]:
        """Queries that Nova cut anew since the last call."""
        parted = self.loop.engine.parted
        found = list(parted.changed)
        parted.changed.clear()
        return found

    def _save_cuts(self, recut: Iterable[QueryId]) -> None:
        """Writes down how queries are cut now, and shows their operators."""
        parted, taken = self.loop.engine.parted.by_name, self.loop.engine.parted.taken
        if taken:  # their operators are those of their cuts from now on
            known = [q for q in taken if q in self.loop.catalog.plan.queries]
            texts = [(q, text, p) for q in known for text, p in ((None, False), (self.publisher.texts[q], True))]
            number = self.ledger.batches.accept(self.clock(), (), (QueryChange(*each) for each in texts))
            self.ledger.batches.applied(number, {})
            taken.clear()
        for query in recut:
            self.ledger.queries.save_cut(query, parted[query].record() if query in parted else None)
            if query in self.loop.catalog.plan.queries:
                self.publisher.read_model.show_query(query)

    def _told_reports(self) -> list[BatchReport]:
        engine = self.loop.engine
        found = engine.told() if isinstance(engine, ObservedEngine) else []
        for report in found:
            self._unsaved.update(dict.fromkeys(report.difference.operators))
        return found


def _query_of(event: ChangeEvent) -> str | None:
    match event:
        case QueryAdded(query=query):
            return query.id
        case QueryRemoved(query=name) | DemandChanged(query=name):
            return name
        case JoinMatrixChanged(query=name) | MechanismChanged(query=name):
            return name
    return None


def query_steps(events: Iterable[ChangeEvent], texts: Mapping[QueryId, str]) -> list[QueryChange]:
    """The queries that come with these events, each with its text, and those that go."""
    steps: list[QueryChange] = []
    for event in events:
        if isinstance(event, QueryAdded):
            steps.append(QueryChange(event.query.id, texts[event.query.id], event.mechanism == NOVA))
        elif isinstance(event, QueryRemoved):
            steps.append(QueryChange(event.query))
    return steps
