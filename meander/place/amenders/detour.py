"""Follow or detour: whether operators stay where they are when the route to them gets longer, or move after it.

The route of data from a pinned operator (a producer) through others to the next pinned one (a consumer) is compared
with the cheapest path between the two: a fresh placement could put everything in between on that path. As long as the
route takes at most `detour` times as long, or one millisecond longer, only routes change. So the bound does not depend
on how the operators came to where they are, and holds however often a device moves.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge
from meander.place.amenders.routes import ROUNDING_MS, Route, Routes, limit_ms


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
