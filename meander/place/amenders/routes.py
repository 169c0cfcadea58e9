"""Routes of data through the placement: from pinned operators through others to the next pinned ones.

Latencies above and below operators are kept from batch to batch. What changes an operator or a route takes away those
that depend on it, and no others: a device that moves changes its own edge, not what is below the next operator.
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
from meander.place.free_capacity import Room

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
    """Routes that edges without one would get."""
    _room: Room = field(init=False)
    _shape: int = field(init=False)
    """The number of the plan's shape that the latencies are about."""

    def __post_init__(self) -> None:
        self._room = Room(self.catalog.ledger)
        self._shape = self.catalog.plan.shape

    def renew(self, unsettled: Iterable[OperatorId]) -> None:
        """Follows the catalog before a judgement: `unsettled` operators wait for a place, or have to leave theirs."""
        self.heed()
        self.forget(unsettled, self._found)
        self._found.clear()
        self._room = Room(self.catalog.ledger)

    def heed(self) -> None:
        """Follows what was touched in a batch. What is where it was also counts: it may not have run meanwhile."""
        self.forget(*self.catalog.recorder.touched)

    def forget(self, operators: Iterable[OperatorId], edges: Iterable[Edge] = ()) -> None:
        """Drops latencies that lead through these: their places, states or routes changed."""
        above, below = self._above, self._below
        if self._shape != self.catalog.plan.shape:
            self._shape = self.catalog.plan.shape
            above.clear()
            below.clear()
        if not (above or below):
            return
        for operator in operators:
            self._forget(operator, below, self._inputs)
            self._forget(operator, above, self._movable_readers)
        for upstream, reader in edges:  # of an operator for which nothing is known nothing depends on its edges
            if upstream in below:
                self._forget(upstream, below, self._inputs)
            if reader in above:
                self._forget(reader, above, self._movable_readers)

    def _forget(
        self,
        operator: OperatorId,
        known: dict[OperatorId, Latencies],
        dependent: Callable[[OperatorId], Iterable[OperatorId]],
    ) -> None:
        """The latencies of an operator come from known ones, so the walk ends where none are known."""
        operators = self.catalog.plan.operators
        known.pop(operator, None)
        stack = [operator] if operator in operators else []
        while stack:
            for other in dependent(stack.pop()):
                if other in known and operators[other].pin is None:
                    del known[other]
                    stack.append(other)

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
        between, topology = self.latency_ms(edge), self.catalog.topology
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

    def _movable_readers(self, operator: OperatorId) -> Iterable[OperatorId]:
        return self.catalog.plan.readers_by_pin(operator)[0]

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
        if operator in known:
            return known[operator]
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
