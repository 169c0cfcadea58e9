"""Follow or detour: whether operators stay where they are when the route to them gets longer, or move after it.

The route of data from a pinned operator (a producer) through others to the next pinned one (a consumer) is compared
with the cheapest path between the two: a fresh placement could put everything in between on that path. As long as the
route takes at most `detour` times as long, or one millisecond longer, only routes change. So the bound does not depend
on how the operators came to where they are, and holds however often a device moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from meander.model.global_plan import OperatorState, PlanOperator
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, mbps
from meander.model.topology.elements import UNLIMITED
from meander.model.topology.path_cache import Path
from meander.place.catalog import Catalog
from meander.place.room import Room

SLACK_MS = 1.0
"""A route may always be this much longer: nothing moves for less."""
MOST_VISITED = 512
"""Operators above or below a broken edge that are looked at."""
ALIKE = 4
"""Sinks of one operator on the same node that are looked at: their routes are mostly the same."""
ROUNDING_MS = 1e-6

Latencies = Mapping[NodeId, float]


@dataclass(frozen=True, slots=True)
class Route:
    """Data on its route from one pinned operator to the next, and its route under a fresh placement."""

    start: NodeId
    goal: NodeId
    through_ms: float
    fresh_ms: float

    @property
    def ratio(self) -> float:
        if self.fresh_ms > 0:
            return self.through_ms / self.fresh_ms
        return UNLIMITED if self.through_ms > 0 else 1.0

    def excess_ms(self, detour: float) -> float:
        """The latency beyond the limit; at most zero when the route is short enough."""
        return self.through_ms - limit_ms(self.fresh_ms, detour)

    def described(self, detour: float, *, stays: bool) -> str:
        verb = "is" if stays else "would be"
        if self.fresh_ms <= 0:
            times = f"{verb} needed where a fresh placement takes none"
        else:
            times = f"{verb} {self.ratio:.1f} times a fresh placement"
        slack = f", or {SLACK_MS:g} ms longer" if stays and self.ratio > detour else ""
        return f"{'the' if stays else 'a'} detour of {self.through_ms:.1f} ms {times} (limit {detour:g}{slack})"


def limit_ms(fresh_ms: float, detour: float) -> float:
    """The longest latency of a route for which operators stay."""
    return max(fresh_ms * detour, fresh_ms + SLACK_MS) + ROUNDING_MS


@dataclass
class Routes:
    """Routes through the placement as it is now, with new routes for edges that have lost theirs."""

    catalog: Catalog
    _above: dict[OperatorId, Latencies] = field(default_factory=dict)
    _below: dict[OperatorId, Latencies] = field(default_factory=dict)
    _found: dict[Edge, Path | None] = field(default_factory=dict)
    _room: Room = field(init=False)

    def __post_init__(self) -> None:
        self._room = Room(self.catalog.ledger)

    def forget(self) -> None:
        """Starts over, because routes or places changed."""
        self._above.clear()
        self._below.clear()

    def route(self, edge: Edge) -> Path | None:
        """The edge's route or, when it has lost it, the one it would get."""
        route = self.catalog.placement.routes.get(edge)
        if route is not None:
            return route
        if edge not in self._found:
            nodes, need = self.catalog.placement.nodes, mbps(self.catalog.plan[edge[0]])
            path = self._found[edge] = self._room.path(nodes[edge[0]], nodes[edge[1]], need)
            if path is not None:
                self._room.take_traffic(path.arcs, need)
        return self._found[edge]

    def latency_ms(self, edge: Edge) -> float:
        nodes = self.catalog.placement.nodes
        if nodes[edge[0]] == nodes[edge[1]]:
            return 0.0
        path = self.route(edge)
        return UNLIMITED if path is None else path.latency_ms

    def over(self, edge: Edge) -> list[Route]:
        """All routes that lead over an edge whose ends are placed."""
        between = self.latency_ms(edge)
        topology = self.catalog.topology
        return [
            Route(start, goal, above + between + below, topology.latency_ms(start, goal))
            for start, above in self._latencies(edge[0], self._above, down=False).items()
            for goal, below in self._latencies(edge[1], self._below, down=True).items()
        ]

    def movable_on(self, edge: Edge) -> tuple[list[OperatorId], list[OperatorId]]:
        """Operators that may move above the edge and below it, nearest first."""
        return list(self._closure(edge[0], self._inputs)), list(self._closure(edge[1], self._readers))

    def _inputs(self, operator: OperatorId) -> Iterable[OperatorId]:
        return dict.fromkeys(self.catalog.plan[operator].inputs)

    def _readers(self, operator: OperatorId) -> Iterable[OperatorId]:
        return self.catalog.plan[operator].readers

    def _runs(self, operator: OperatorId) -> bool:
        return self.catalog.plan[operator].state is OperatorState.PLACED

    def _closure(
        self, operator: OperatorId, towards: Callable[[OperatorId], Iterable[OperatorId]]
    ) -> Iterator[OperatorId]:
        """Operators from this one on that run and may move; pinned ones end the search."""
        seen, queue = {operator}, [operator]
        for top in queue:
            if self.catalog.plan[top].pin is not None:
                continue
            yield top
            for other in towards(top):
                if other not in seen and self._runs(other) and len(seen) < MOST_VISITED:
                    seen.add(other)
                    queue.append(other)

    def _beside(self, record: PlanOperator, *, down: bool) -> Iterator[OperatorId]:
        """Operators that run and read from this one, or that it reads; of pinned ones a few on each node."""
        plan = self.catalog.plan
        anywhere, pinned = plan.readers_by_pin(record.id) if down else plan.by_pin(record.inputs)
        yield from filter(self._runs, anywhere)
        for alike in pinned.values():
            yield from islice(filter(self._runs, alike), ALIKE)

    def _latencies(self, operator: OperatorId, known: dict[OperatorId, Latencies], *, down: bool) -> Latencies:
        """The longest latency between the operator and each pinned one that it leads to, by that one's node."""
        operators, nodes = self.catalog.plan.operators, self.catalog.placement.nodes
        stack, visited = [operator], 0
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            record, here = operators[top], nodes[top]
            if record.pin is not None:
                known[top] = {here: 0.0}
                continue
            found: dict[NodeId, float] = {}
            missing: list[OperatorId] = []
            for other in self._beside(record, down=down):
                there = nodes[other]
                if operators[other].pin is not None:
                    ends: Latencies = {there: 0.0}
                elif other in known:
                    ends = known[other]
                else:
                    if visited + len(missing) < MOST_VISITED:
                        missing.append(other)
                    continue
                between = 0.0 if here == there else self.latency_ms((top, other) if down else (other, top))
                for end, latency in ends.items():
                    found[end] = max(found.get(end, 0.0), latency + between)
            if missing:
                visited += len(missing)
                stack.extend(missing)
            else:
                known[top] = found
        return known[operator]


def followers(routes: Routes, edge: Edge, too_long: Iterable[Route], detour: float) -> list[OperatorId]:
    """Operators that have to move so that these routes become short enough: those off the cheapest paths, or all."""
    catalog = routes.catalog
    topology, nodes = catalog.topology, catalog.placement.nodes
    above, below = routes.movable_on(edge)
    movable = dict.fromkeys([*reversed(above), *below])
    bad = list(too_long)
    stay = {
        o
        for o in movable
        if all(
            topology.latency_ms(w.start, nodes[o]) + topology.latency_ms(nodes[o], w.goal)
            <= w.fresh_ms * (1 + ROUNDING_MS) + ROUNDING_MS
            for w in bad
        )
    }
    if len(stay) == len(movable) or any(
        _contracted(routes, movable, stay, w) > limit_ms(w.fresh_ms, detour) for w in bad
    ):
        stay = set()
    return [o for o in movable if o not in stay]


def _contracted(routes: Routes, movable: Iterable[OperatorId], stay: set[OperatorId], route: Route) -> float:
    """The route's latency if only these operators stayed and all others lay on cheapest paths between them."""
    catalog = routes.catalog
    topology, nodes, plan = catalog.topology, catalog.placement.nodes, catalog.plan
    order = list(movable)
    inside = set(order)
    reached: dict[OperatorId, dict[NodeId, float]] = {}
    longest = 0.0
    for operator in order:
        bases: dict[NodeId, float] = {}
        for below in plan[operator].inputs:
            before = reached.get(below, {}) if below in inside else {route.start: 0.0}
            for node, latency in before.items():
                bases[node] = max(bases.get(node, 0.0), latency)
        if operator in stay:
            here = nodes[operator]
            bases = {here: max((ms + topology.latency_ms(n, here) for n, ms in bases.items()), default=0.0)}
        reached[operator] = bases
        longest = max(longest, *(ms + topology.latency_ms(n, route.goal) for n, ms in bases.items()), 0.0)
    return longest
