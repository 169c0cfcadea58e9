"""Applies a batch of change events to the catalog and writes down what became invalid. Decides nothing.

Events are checked first, all of them, against the state that the earlier ones would leave: a batch applies as a whole
or not at all. Paths are looked at only after the whole batch, so a device that leaves and comes back, or moves from one
base station to another, within a batch is seen where it ends up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.global_plan import OperatorState, RunningQuery
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, mbps
from meander.model.plan import Query
from meander.model.topology.elements import UNLIMITED
from meander.place.admission import admit
from meander.place.amenders.detour import followers
from meander.place.amenders.eviction import leaving
from meander.place.amenders.routes import Routes
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.nova.queries.partitioned_queries import PartitionedQueries
from meander.place.physical import Preparation
from meander.place.sharing import add_query, estimate, remove_query

MOST_JUDGED = 32
"""Operators on a node that got a link whose routes are compared with the new best ones."""


@dataclass
class Applicator:
    """Events in, change-log entries out."""

    catalog: Catalog
    log: ChangeLog
    parted: PartitionedQueries = field(init=False)
    broken: dict[Edge, str] = field(default_factory=dict)
    """Edges that lost their route in this batch, and why."""
    joined: dict[NodeId, str] = field(default_factory=dict)
    """Nodes that got a link in this batch, and which."""
    preparation: Preparation = field(init=False)
    admitted: Callable[[Query, Sequence[OperatorId]], None] = lambda query, operators: None
    """Told of each query that came, with the operators that came with it, before they are placed."""
    routes: Routes = field(init=False)

    def __post_init__(self) -> None:
        self.routes = Routes(self.catalog)
        self.parted = PartitionedQueries(self.catalog, self.log)
        self.preparation = Preparation(self.catalog.streams, self.catalog.sinks)

    def apply(self, events: Sequence[ChangeEvent]) -> None:
        """Applies the batch; raises before anything changed when one of the events cannot be applied."""
        parted = {e.query.id for e in events if self.parted.takes(e) and isinstance(e, QueryAdded)}
        added = [e.query for e in events if isinstance(e, QueryAdded) and not self.parted.takes(e)]
        self.parted.admit(events)
        prepared = {query.id: self.preparation.prepare(query, self.catalog.rules) for query in added}
        admit(self.catalog, events)
        self.parted.foresee(events)
        for event in events:
            if self.parted.takes(event):
                continue  # it begins when the effects of all events are known
            gone = isinstance(event, QueryRemoved) and event.query not in self.catalog.plan.queries
            if gone and isinstance(event, QueryRemoved) and event.query in parted:
                continue
            if isinstance(event, QueryAdded):
                changed = add_query(self.catalog, prepared[event.query.id])
                self.admitted(event.query, changed)
                self.log.write(changed, (), f"query {event.query.id} added")
            else:
                self._apply(event)
        self.catalog.ledger.grow()
        self._judge_broken_edges()

    def _apply(self, event: ChangeEvent) -> None:
        topology = self.catalog.topology
        match event:
            case QueryRemoved(query=name):
                unused = remove_query(self.catalog, self.catalog.plan.query(name))
                self.log.write(unused, (), f"query {name} removed")
            case NodeAdded(node=node):
                added = topology.add_node(node)
                self.catalog.ledger.grow()
                self._node_is_back(added)
            case NodeRemoved(node=name):
                self._remove_node(topology.id(name), f"node {name} removed")
            case LinkAdded(link=link):
                ends = topology.id(link.source), topology.id(link.target)
                topology.connect([ends] if link.directed else [ends, ends[::-1]], link)
                self.catalog.ledger.grow()
                self.joined.update(dict.fromkeys(ends, f"link {link.source} to {link.target} added"))
            case LinkRemoved(source=a, target=b, directed=directed):
                ends = topology.id(a), topology.id(b)
                pairs = [ends] if directed else [ends, ends[::-1]]
                arcs = [arc for pair in pairs if (arc := topology.adjacency.between(*pair)) is not None]
                self._break_arcs(arcs, f"link {a} to {b} removed")
                topology.disconnect(arcs)
            case CapacityChanged(node=name, slots=slots, capacity_tps=tps, memory_mb=memory):
                resized = topology.id(name)
                topology.set_capacity(resized, slots=slots, capacity_tps=tps, memory_mb=memory)
                self._evict_overload(resized, f"capacity of node {name} changed")
            case RateChanged():
                self._change_rate(event)
            case PlacementChanged(operator=operator, node=None):
                self.catalog.plan[operator].pin = None
                self.catalog.plan.readers_changed()
                self._invalidate([operator], f"operator {operator} released")
            case PlacementChanged(operator=operator, node=str() as name):
                self.catalog.plan[operator].pin = topology.id(name)
                self.catalog.plan.readers_changed()
                self._invalidate([operator], f"operator {operator} pinned to {name}")
            case DemandChanged(query=name, demands=demands):
                running = self.catalog.plan.query(name)
                query = replace(running.query, demands=demands)
                self.catalog.plan.queries[name] = RunningQuery(query, running.sinks)

    # ---------------------------------------------------------------- topology

    def _remove_node(self, node: NodeId, cause: str) -> None:
        topology = self.catalog.topology
        self._break_arcs((*topology.adjacency.leaving(node), *topology.adjacency.entering(node)), cause)
        self._invalidate(self.catalog.on_node.get(node, ()), cause)
        topology.remove_node(node)

    def _node_is_back(self, node: NodeId) -> None:
        """Operators that ran on a node which left and came back within one batch are still there."""
        for operator in self.catalog.on_node.get(node, ()):
            record = self.catalog.plan[operator]
            if record.state is OperatorState.TO_BE_REPLACED and record.pin in (None, node):
                record.become(OperatorState.PLACED)
        self._evict_overload(node, f"node {self.catalog.topology.name(node)} came back smaller")

    def _break_arcs(self, arcs: Iterable[int], cause: str) -> None:
        """Takes down every route over these arcs, before the arcs go."""
        for arc in arcs:
            for edge in tuple(self.catalog.on_arc.get(arc, ())):
                if self.catalog.release_route(edge) is not None:
                    self.broken.setdefault(edge, cause)

    def _judge_broken_edges(self) -> None:
        """Re-route an edge whose ends stay and whose route stays short enough; otherwise operators on the route
        move."""
        if not self.broken and not self.joined:
            return
        routes = self.routes
        routes.renew(o for entry in (*self.log.entries, *self.log.waiting) for o in entry.operators)
        self._shorten(routes)
        broken, self.broken = self.broken, {}
        reroute: dict[str, list[Edge]] = {}
        for edge, cause in broken.items():
            if not self._stays(edge):
                continue  # one end is being placed or removed anyway, and takes its edges along
            if routes.latency_ms(edge) == UNLIMITED:
                movable = [o for o in reversed(edge) if self.catalog.plan[o].pin is None][:1] or edge[1:]
                self._invalidate(movable, cause)
                routes.forget(movable)
                continue
            reroute.setdefault(self._follows(routes, edge, cause), []).append(edge)
        for cause, edges in reroute.items():
            self.log.write((), [e for e in edges if self._stays(e)], cause)

    def _stays(self, edge: Edge) -> bool:
        upstream, reader = map(self.catalog.plan.operators.get, edge)
        placed = OperatorState.PLACED
        return upstream is not None and reader is not None and upstream.state is placed is reader.state

    def _follows(self, routes: Routes, edge: Edge, cause: str) -> str:
        """Makes operators move if a route over the edge is too long; says why the edge takes another route."""
        detour, over = self.catalog.detour, routes.over(edge)
        worst = max(over, key=lambda w: w.excess_ms(detour), default=None)
        if worst is None:
            return cause
        if worst.excess_ms(detour) > 0:
            moving = followers(routes, edge, [w for w in over if w.excess_ms(detour) > 0], detour)
            if moving:
                why = f"{cause}; {worst.described(detour, stays=False)}"
                self._invalidate(moving, why, optional=True)
                routes.forget(moving)
                return why
        longest = max(over, key=lambda w: w.through_ms - w.fresh_ms)
        return f"{cause}; {longest.described(detour, stays=True)}" if longest.ratio > 1.005 else cause

    def _shorten(self, routes: Routes) -> None:
        """A device that got another link may reach its readers much faster: such edges are routed anew."""
        joined, self.joined = self.joined, {}
        catalog, detour = self.catalog, self.catalog.detour
        released: list[Edge] = []
        for node, cause in joined.items():
            there = catalog.on_node.get(node, ())
            if len(there) > MOST_JUDGED:
                continue
            pinned = [o for o in there if catalog.plan[o].pin is not None]
            routed = {e for o in pinned for e in catalog.plan.edges_of(o) if e in catalog.placement.routes}
            for edge in sorted(routed):
                if not self._stays(edge):
                    continue
                if any(w.excess_ms(detour) > 0 for w in routes.over(edge)):
                    catalog.release_route(edge)
                    released.append(edge)
                    self.broken.setdefault(edge, cause)
        routes.forget((), released)

    # ---------------------------------------------------------------- load

    def _invalidate(self, operators: Iterable[OperatorId], cause: str, *, optional: bool = False) -> None:
        """Marks operators to be placed anew; `optional` ones may also stay where they are."""
        found = list(operators)
        for operator in found:
            if self.catalog.plan[operator].state is OperatorState.PLACED:
                self.catalog.plan[operator].become(OperatorState.TO_BE_REPLACED)
        self.log.write(found, (), cause, optional=optional)

    def _evict_overload(self, node: NodeId, cause: str) -> None:
        """Marks operators for re-placement until the rest fits."""
        self._invalidate(leaving(self.catalog, node), cause)

    def _change_rate(self, event: RateChanged) -> None:
        """New source rates flow downstream, also from sources that wait: their readers may run, and they come back with
        the new rate. Nodes and links that no longer suffice shed operators."""
        catalog, plan = self.catalog, self.catalog.plan
        stream = catalog.streams[event.stream]
        producers = [(event.stream, node) for node in ([event.node] if event.node else stream.nodes)]
        catalog.rates_tps.update(dict.fromkeys(producers, event.rate_tps))
        sources = [o for producer in producers for o in sorted(plan.sources.get(producer, ()))]
        cause = f"rate of stream {event.stream} changed"
        touched = self._propagate(sources)
        for node_id in dict.fromkeys(catalog.placement.nodes[o] for o in touched if o in catalog.placement.nodes):
            self._evict_overload(node_id, cause)
        for arc in {a for o in touched for r in plan[o].readers for a in self._arcs((o, r))}:
            if catalog.ledger.mbps[arc] > catalog.topology.arcs.bandwidth_mbps[arc]:
                self._break_arcs([arc], cause)

    def _arcs(self, edge: Edge) -> tuple[int, ...]:
        route = self.catalog.placement.routes.get(edge)
        return route.arcs if route else ()

    def _propagate(self, sources: list[OperatorId]) -> list[OperatorId]:
        """Recomputes estimates from these sources down, moving the ledger along; returns what changed."""
        catalog, plan = self.catalog, self.catalog.plan
        touched: dict[OperatorId, None] = {}
        for operator in _downstream_order(catalog, sources):
            record = plan[operator]
            load, memory, traffic = record.load_tps, record.memory_mb, mbps(record)
            estimate(catalog, record)
            if (load, memory, traffic) == (record.load_tps, record.memory_mb, mbps(record)):
                continue
            touched[operator] = None
            node = catalog.placement.nodes.get(operator)
            if node is not None and record.slots:
                catalog.ledger.add(node, 0, record.load_tps - load, record.memory_mb - memory)
            for reader in record.readers:
                catalog.ledger.add_traffic(self._arcs((operator, reader)), mbps(record) - traffic)
        return list(touched)


def _downstream_order(catalog: Catalog, starts: list[OperatorId]) -> list[OperatorId]:
    """Everything downstream of the starts, inputs before readers."""
    order: list[OperatorId] = []
    seen: set[OperatorId] = set()
    stack = [(s, False) for s in starts]
    while stack:
        operator, leaving = stack.pop()
        if leaving:
            order.append(operator)
        elif operator not in seen:
            seen.add(operator)
            stack.append((operator, True))
            stack.extend((r, False) for r in catalog.plan[operator].readers if r not in seen)
    return order[::-1]
