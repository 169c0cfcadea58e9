"""The objective of the optimising mechanisms: traffic times latency, summed over flows (the bandwidth-delay
product)."""

from __future__ import annotations

from collections.abc import Mapping

from meander.model.ids import NodeId, OperatorId
from meander.place.problem import Flow, Problem

LEAST_MBPS = 2.0**-20
"""A flow counts with at least this much, so that operators without traffic are not scattered."""


def weight(flow: Flow) -> float:
    """The traffic a flow counts with."""
    return max(flow.mbps, LEAST_MBPS)


def cost_at(problem: Problem, operator: OperatorId, node: NodeId, nodes: Mapping[OperatorId, NodeId]) -> float:
    """Traffic times latency between the operator on this node and those of its neighbours that have one."""
    topology, cost = problem.topology, 0.0
    for flow in problem.inputs[operator]:
        if flow.upstream in nodes:
            cost += weight(flow) * topology.latency_ms(nodes[flow.upstream], node)
    for flow in problem.outputs[operator]:
        if flow.reader in nodes:
            cost += weight(flow) * topology.latency_ms(node, nodes[flow.reader])
    return cost


def cost(problem: Problem, nodes: Mapping[OperatorId, NodeId]) -> float:
    """The objective of a placement: over all flows that touch a free operator, both ends being placed."""
    where = {**problem.pinned, **nodes}
    total = 0.0
    for flow in problem.flows:
        free = flow.upstream in problem.free or flow.reader in problem.free
        if free and flow.upstream in where and flow.reader in where:
            total += weight(flow) * problem.topology.latency_ms(where[flow.upstream], where[flow.reader])
    return total
