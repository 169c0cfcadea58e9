"""Bottom-up: every operator as close to its sources as there is room, moving towards the sink when a node is full."""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.demands import Metric
from meander.model.ids import NodeId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.mechanisms.search.routes import common_route, connects
from meander.place.problem import Problem, Proposal


class BottomUp(Mechanism):
    """Walks from the inputs' nodes along their common route towards the sink and takes the first node with room."""

    name = "bottom_up"
    metadata = Metadata((Metric.NETWORK_USAGE, Metric.OVERHEAD), "filters early: close to the sources, little traffic")

    def place(self, problem: Problem) -> Proposal:
        return downstream(problem, route_to_sink)


def route_to_sink(spot: Spot) -> Iterable[NodeId]:
    """The common route of all inputs to the first end, as far as it is connected to the other ends."""
    if not spot.ends:
        return [n for n in spot.starts if spot.connects(n)]
    if not spot.starts:
        return [n for n in spot.ends if spot.connects(n)]
    topology, others = spot.problem.topology, spot.ends[1:]
    route = common_route(topology, spot.starts, spot.ends[0]) or []
    return (n for n in route if connects(topology, (), n, others)) if others else route
