"""A join that Nova places and keeps placed while it runs: change events in, a better cut out, parts reconfigured.

The engine and its mechanism place everything else; this looks after one query, whose operators are pinned where Nova
wants them. Nodes that leave and come back are nodes whose capacity goes to nothing and back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.coordinator.loop import Applied, PlacementLoop
from meander.coordinator.nova.repartitioning import Repartitioning
from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    RateChanged,
)
from meander.model.ids import NodeId
from meander.model.plan import Query
from meander.place.costspace.maintenance import follow
from meander.place.nova.improvement.bandwidth import respect_links
from meander.place.nova.improvement.links import LinkLoad, link_loads
from meander.place.nova.place import place
from meander.place.nova.queries.question import Pairs, pairs_of_query, parts_of, problem_of_query
from meander.place.nova.queries.shape import shape_of
from meander.place.nova.queries.wiring import JoinPart, Wiring
from meander.place.nova.running.reoptimise import Reoptimiser
from meander.place.nova.settings import NovaSettings
from meander.place.rates import row_bytes


class NovaQuery:
    """One query on one loop."""

    def __init__(
        self, loop: PlacementLoop, query: Query, settings: NovaSettings | None = None, pairs: Pairs | None = None
    ) -> None:
        """Places the join; raises when it is no join of two streams, or does not fit. Nothing runs yet."""
        catalog = loop.catalog
        self.loop = loop
        self.shape = shape_of(query, catalog.streams, catalog.sinks)
        chosen = pairs_of_query(self.shape, catalog.streams) if pairs is None else list(pairs)
        problem = problem_of_query(catalog, self.shape, chosen)
        joins = place(problem, settings or NovaSettings())
        self.reoptimiser = Reoptimiser(joins)
        self._row_bytes = max(row_bytes(side.schema) for side in (self.shape.left, self.shape.right))
        self._respect_links()
        if len(joins.unplaced):
            raise InputError(f"query {query.id!r}: {len(joins.unplaced)} of its {problem.joins} joins fit nowhere")
        self.repartitioning = Repartitioning(loop, Wiring(catalog, loop.engine.log, self.shape))
        self.taken = np.zeros(problem.nodes)
        """The tuples per second that are booked at each node for this query."""

    @property
    def parts(self) -> list[JoinPart]:
        """The cut as Nova wants it."""
        return parts_of(self.reoptimiser.joins)

    def start(self) -> Applied:
        """Adds the query to the plan."""
        self._book()
        return self.repartitioning.start(self.parts)

    def apply(self, events: Sequence[ChangeEvent]) -> Applied:
        """Applies events to the loop, and their effects to the join. Joins that fit nowhere now stay as they are."""
        for event in events:
            self._foresee(event)
        applied = self._recut(events, ", ".join(type(e).__name__ for e in events))
        self._follow(events)
        if self._respect_links():
            self._recut([], "links would carry too much")
        return applied

    def poll(self) -> None:
        """Releases retired parts that are of no use any more. The loop is polled by its owner."""
        self.repartitioning.poll()

    @property
    def without_room(self) -> list[tuple[int, int]]:
        """Pairs of sources whose join fits nowhere at the moment; they stay where they were."""
        joins = self.reoptimiser.joins
        return [(int(a), int(b)) for a, b in joins.board.joins["ends"][joins.unplaced]]

    @property
    def exceeded(self) -> list[LinkLoad]:
        """Links that would carry more than they can, the worst first: none, unless a join stays that fits nowhere."""
        joins, topology = self.reoptimiser.joins, self.loop.catalog.topology
        return [load for load in link_loads(joins, topology, self._row_bytes) if load.exceeded]

    def _respect_links(self) -> bool:
        """Takes parts off links that would carry too much; says whether something changed. That cannot be undone."""
        arcs = self.loop.catalog.topology.arcs
        if not np.isfinite(arcs.bandwidth_mbps[: arcs.count]).any():
            return False
        relief = respect_links(self.reoptimiser.joins, self.loop.catalog.topology, self._row_bytes)
        return bool(relief.moved or relief.cut or relief.refused)

    def _foresee(self, event: ChangeEvent) -> None:
        """Works out the effect of an event on the join, before it happens."""
        topology, joins = self.loop.catalog.topology, self.reoptimiser.joins
        match event:
            case NodeRemoved(node=name):
                self._resize(topology.find(name), 0.0)
            case CapacityChanged(node=name, capacity_tps=tps) if tps is not None:
                node_id = topology.find(name)
                self._resize(node_id, 0.0 if node_id is None else self._left_of(node_id, tps))
            case RateChanged(stream=stream, rate_tps=rate, node=node):
                for number, source in enumerate(self.repartitioning.wiring.sources):
                    if source[0] == stream and node in (None, source[1]):
                        self.reoptimiser.set_rate(number, rate)
        if len(joins.unplaced):
            self.reoptimiser.retry()

    def _left_of(self, node: NodeId, capacity_tps: float) -> float:
        """The part of a node's capacity that other queries leave; nothing while there is no path from it to the
        sink."""
        topology, ledger = self.loop.catalog.topology, self.loop.catalog.ledger
        if not topology.reachable(node, self.repartitioning.wiring.sink_node):
            return 0.0
        return max(capacity_tps - float(ledger.load_tps[node]) + self._booked(node), 0.0)

    def _resize(self, node: NodeId | None, capacity_tps: float) -> None:
        joins = self.reoptimiser.joins
        if node is not None and node < joins.node_count and joins.alive[node]:
            self.reoptimiser.set_capacity(int(node), capacity_tps)

    def _follow(self, events: Sequence[ChangeEvent]) -> None:
        """Coordinates that links changed, and nodes that are new: known only when the topology has them."""
        catalog, joins = self.loop.catalog, self.reoptimiser.joins
        if not self.loop.engine.mechanism.metadata.needs_cost_space:
            follow(catalog, events)
        assert catalog.space is not None
        touched: dict[str, None] = {}
        for event in events:
            match event:
                case NodeAdded(node=node):
                    touched[node.name] = None
                case LinkAdded(link=link):
                    touched.update({link.source: None, link.target: None})
                case LinkRemoved(source=a, target=b):
                    touched.update({a: None, b: None})
        for name in touched:
            node_id = catalog.topology.find(name)
            if node_id is None or np.isnan(catalog.space.coordinates[node_id]).any():
                continue
            point, height = catalog.space.coordinates[node_id], float(catalog.space.heights[node_id])
            capacity = self._left_of(node_id, float(catalog.topology.nodes.capacity_tps[node_id]))
            if node_id < joins.node_count and joins.alive[node_id]:
                self.reoptimiser.move_node(int(node_id), point, height)
                self._resize(node_id, capacity)
            else:
                while joins.node_count < node_id:
                    self.reoptimiser.add_node(point, 0.0)
                self.reoptimiser.add_node(point, capacity, height)
        if touched:
            if len(joins.unplaced):
                self.reoptimiser.retry()
            self._recut([], "coordinates moved")

    def _recut(self, events: Sequence[ChangeEvent], cause: str) -> Applied:
        """Books and runs the cut as Nova wants it now; joins that fit nowhere stay as they are."""
        self._book()
        wanted = self.parts
        placed = {(p.left, p.right) for p in wanted}
        wanted += [p for p in self.repartitioning.wiring.active if (p.left, p.right) not in placed]
        return self.repartitioning.apply(events, wanted, cause)

    def _booked(self, node: NodeId) -> float:
        return float(self.taken[node]) if node < len(self.taken) else 0.0

    def _book(self) -> None:
        """Notes in the ledger what the join takes, so that others know."""
        joins, ledger = self.reoptimiser.joins, self.loop.catalog.ledger
        loads = np.round(joins.board.nodes["load"][: joins.node_count] * 1024) / 1024
        before = np.zeros(len(loads))
        before[: len(self.taken)] = self.taken
        ledger.grow()
        for node in np.flatnonzero(loads != before):
            ledger.add(NodeId(int(node)), 0, float(loads[node] - before[node]))
        self.taken = loads
