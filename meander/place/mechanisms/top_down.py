"""Top-down: every operator as close to its readers as there is room, moving towards the sources when a node is full."""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.demands import Metric
from meander.model.ids import NodeId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.one_by_one import Spot, upstream
from meander.place.mechanisms.search.routes import common_route, connects
from meander.place.problem import Problem, Proposal


class TopDown(Mechanism):
    """Walks from the readers' nodes back along the common route of the sources and takes the first node with room."""

    name = "top_down"
    metadata = Metadata(
        (Metric.LOAD, Metric.OVERHEAD), "computes late: close to the sinks, where nodes are large and steady"
    )

    def place(self, problem: Problem) -> Proposal:
        return upstream(problem, route_to_sources)


def route_to_sources(spot: Spot) -> Iterable[NodeId]:
    """The common route of all sources to the first reader, backwards, as far as it is connected to the other
    readers."""
    if not spot.ends:
        return [n for n in spot.starts if spot.connects(n)]
    if not spot.starts:
        return [n for n in spot.ends if spot.connects(n)]
    topology, others = spot.problem.topology, spot.ends[1:]
    route = reversed(common_route(topology, spot.starts, spot.ends[0]) or [])
    return (n for n in route if connects(topology, (), n, others)) if others else route
