"""Bottom-up: every operator as close to its sources as there is room, moving towards the sink when a node is full."""

from __future__ import annotations

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.routes import common_way, targets
from meander.place.problem import Problem, Proposal


class BottomUp(Mechanism):
    """Walks from the inputs' nodes along their common way towards the sink and takes the first node with room."""

    name = "bottom_up"
    metadata = Metadata((Metric.NETWORK_USAGE, Metric.OVERHEAD), "filters early: close to the sources, little traffic")

    def place(self, problem: Problem) -> Proposal:
        proposal = Proposal()
        goals = targets(problem)
        nodes = dict(problem.pinned)
        for operator in problem.free:
            missing = [f.upstream for f in problem.inputs[operator] if f.upstream not in nodes]
            if missing:
                proposal.unplaced[operator] = f"its input operator {missing[0]} is not placed"
                continue
            found = self._first_with_room(problem, operator, nodes, goals[operator], proposal)
            if found is not None:
                nodes[operator] = proposal.nodes[operator] = found
                problem.take(operator, found)
        return proposal

    def _first_with_room(
        self, problem: Problem, operator: OperatorId, nodes: dict[OperatorId, NodeId], goal: NodeId, proposal: Proposal
    ) -> NodeId | None:
        topology = problem.topology
        starts = dict.fromkeys(nodes[f.upstream] for f in problem.inputs[operator])
        way = common_way(topology, starts, goal)
        if way is None:
            names = ", ".join(topology.name(s) for s in starts)
            proposal.unplaced[operator] = f"no path leads from {names} to {topology.name(goal)}"
            return None
        for node in way:
            proposal.messages += 1
            if problem.fits(operator, node):
                return node
        names = ", ".join(topology.name(n) for n in way)
        proposal.unplaced[operator] = f"no room for it on {names}"
        return None
