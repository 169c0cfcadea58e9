"""Mobile DCEP: operators are handed from node to node towards the sink; each node decides alone and few messages flow.

No node knows more than its next hop towards the sink. An operator starts where its inputs' ways meet and is offered
from hop to hop; the first node with room keeps it. Sensors and mobile nodes, which are weak or on the move, and the
consumer only take an operator when no other node on the route does.
"""

from __future__ import annotations

from collections.abc import Iterator

from meander.model.demands import Metric
from meander.model.ids import NodeId
from meander.model.topology.elements import NodeKind
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import route_to_sink
from meander.place.mechanisms.search.message_counts import Message
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.problem import Problem, Proposal


class Mdcep(Mechanism):
    """Takes the nearest node after the producers on the route to the consumer."""

    name = "mdcep"
    metadata = Metadata(
        (Metric.OVERHEAD, Metric.LATENCY), "local decisions from hop to hop: few messages, steady when nodes move"
    )

    def place(self, problem: Problem) -> Proposal:
        return downstream(problem, next_hops, per_try=(Message.OFFER,))


def next_hops(spot: Spot) -> Iterator[NodeId]:
    """Steady nodes on the route, nearest to the inputs first; then the consumer; then the others, nearest to it
    first."""
    nodes = spot.problem.topology.nodes
    route = list(route_to_sink(spot))
    steady = [n for n in route[:-1] if nodes.kind[n] != NodeKind.SENSOR and not nodes.mobile[n]]
    yield from steady
    yield from (n for n in reversed(route) if n not in steady)
