"""Producer-consumer: operators run where data is produced or consumed and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.mechanisms.search.routes import goals, origins
from meander.place.mechanisms.solvers.objective import cost_at, weight
from meander.place.problem import Problem, Proposal


class ProducerConsumer(Mechanism):
    """Takes the producer's or consumer's node that costs least traffic x latency, so that no other node is needed."""

    name = "producer_consumer"
    metadata = Metadata((Metric.HOPS, Metric.OVERHEAD), "uses no nodes but those of producers and consumers")

    def place(self, problem: Problem) -> Proposal:
        producers = origins(problem)

        def ends_of_flows(spot: Spot) -> Iterable[NodeId]:
            nodes = dict.fromkeys((*spot.starts, *producers[spot.operator], *spot.ends))
            costs = [(_cost(spot, n), n) for n in nodes if spot.connects(n)]
            return [n for _, n in sorted(costs, key=itemgetter(0))]

        return downstream(problem, ends_of_flows, widen=False)

    def allowed(self, problem: Problem) -> dict[OperatorId, frozenset[NodeId]]:
        producers, consumers = origins(problem), goals(problem)
        return {o: frozenset((*producers[o], *consumers[o])) for o in problem.free}


def _cost(spot: Spot, node: NodeId) -> float:
    """The operator's cost here, as if its free readers ran on the first consumer's node."""
    problem = spot.problem
    onward = sum(weight(f) for f in problem.outputs[spot.operator] if f.reader not in spot.placed)
    ahead = problem.topology.latency_ms(node, spot.ends[0]) if onward and spot.ends else 0.0
    return cost_at(problem, spot.operator, node, spot.placed) + onward * ahead
