"""MOPA: operators at their weighted Weber points in the cost space, then on the best of the nearest nodes with room.

Least traffic x latency, where `relaxation` takes the square of latency: a heavy flow then keeps its operator close
instead of giving way a little to every other flow (Rizou et al., ICCCN 2010). A point has no height, but nodes do, and
running beside a neighbour spares both heights. So the nearest nodes and those of neighbours are compared by the
operator's cost there.
"""

from __future__ import annotations

from itertools import islice

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.costspace.space import CostSpace, Floats
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import route_to_sink
from meander.place.mechanisms.search.message_counts import Message, count
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.mechanisms.search.snap import nearest_with_room, space_of
from meander.place.mechanisms.search.springs import springs, weber
from meander.place.mechanisms.solvers.objective import weight
from meander.place.problem import Problem, Proposal

NEAREST = 4


class Mopa(Mechanism):
    """Weber points, then real nodes."""

    name = "mopa"
    metadata = Metadata(
        (Metric.NETWORK_USAGE, Metric.LATENCY), "least traffic x latency in the cost space", needs_cost_space=True
    )

    def place(self, problem: Problem) -> Proposal:
        space = space_of(problem, self.name)
        if not problem.free:
            return Proposal()
        system = springs(problem, space)
        point = dict(zip(system.operators, weber(system), strict=True)) if system.operators else {}
        considered = 0

        def nearest(spot: Spot) -> list[NodeId]:
            nonlocal considered
            if spot.operator not in point:
                return list(route_to_sink(spot))
            near = dict.fromkeys(islice(nearest_with_room(spot, space, point[spot.operator]), NEAREST))
            near.update(dict.fromkeys(n for n in _neighbours(spot) if spot.fits(n) and spot.connects(n)))
            considered += len(near)
            return sorted(near, key=lambda n: _cost(spot, space, point, n))

        proposal = downstream(problem, nearest, per_try=())
        count(proposal, Message.COORDINATE, len(set(problem.pinned.values())) + considered)
        count(proposal, Message.STATE, considered)
        return proposal


def _neighbours(spot: Spot) -> dict[NodeId, None]:
    """Nodes of the operators it reads from or is read by, as far as they are placed."""
    problem, placed = spot.problem, spot.placed
    others = [f.upstream for f in problem.inputs[spot.operator]] + [f.reader for f in problem.outputs[spot.operator]]
    return dict.fromkeys(placed[o] for o in others if o in placed)


def _cost(spot: Spot, space: CostSpace, points: dict[OperatorId, Floats], node: NodeId) -> float:
    """Estimated traffic x latency between this node and the neighbours' nodes, or their points."""
    problem, total = spot.problem, 0.0
    if not space.knows(node):
        return float("inf")
    for flow in (*problem.inputs[spot.operator], *problem.outputs[spot.operator]):
        other = flow.reader if flow.upstream == spot.operator else flow.upstream
        there = spot.placed.get(other)
        if there is not None and space.knows(there):
            total += weight(flow) * space.latency_ms(node, there)
        elif there is None and other in points:
            away = space.coordinates[node] - points[other]
            total += weight(flow) * float((away @ away) ** 0.5 + space.heights[node])
    return total
