"""Relaxation: operators settle between springs in the cost space, then move to real nodes (Pietzuch et al., ICDE 2006).

Springs as stiff as the traffic make the sum of traffic x latency^2 least. The operator then goes to the least loaded of
the three nearest nodes with room, which spreads load at little cost in latency.
"""

from __future__ import annotations

from itertools import islice

from meander.model.demands import Metric
from meander.model.ids import NodeId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import route_to_sink
from meander.place.mechanisms.search.message_counts import Message, count
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.mechanisms.search.snap import load_share, nearest_with_room, space_of
from meander.place.mechanisms.search.springs import rest, springs
from meander.place.problem import Problem, Proposal

NEAREST = 3


class Relaxation(Mechanism):
    """Spring relaxation, then the least loaded of the nearest nodes."""

    name = "relaxation"
    metadata = Metadata(
        (Metric.LATENCY, Metric.NETWORK_USAGE, Metric.LOAD),
        "least traffic x latency^2 in the cost space, spread over the nearest nodes",
        needs_cost_space=True,
    )

    def place(self, problem: Problem) -> Proposal:
        space = space_of(problem, self.name)
        if not problem.free:
            return Proposal()
        system = springs(problem, space)
        point = dict(zip(system.operators, rest(system), strict=True)) if system.operators else {}
        considered = 0

        def least_loaded(spot: Spot) -> list[NodeId]:
            nonlocal considered
            if spot.operator not in point:
                return list(route_to_sink(spot))
            near = list(islice(nearest_with_room(spot, space, point[spot.operator]), NEAREST))
            considered += len(near)
            return sorted(near, key=lambda n: load_share(problem.room, n))

        proposal = downstream(problem, least_loaded, per_try=())
        count(proposal, Message.COORDINATE, len(set(problem.pinned.values())) + considered)
        count(proposal, Message.STATE, considered)
        return proposal
