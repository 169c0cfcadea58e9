"""Candidates along paths: where can an operator run between its inputs and the pinned operators it leads to?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meander.model.ids import NodeId, OperatorId
from meander.model.topology import Topology
from meander.place.problem import Problem


def targets(problem: Problem) -> dict[OperatorId, NodeId]:
    """For each free operator the node of the nearest pinned operator downstream of it."""
    return _nearest_pinned(problem, reversed(list(problem.free)), lambda o: [f.reader for f in problem.outputs[o]])


def origins(problem: Problem) -> dict[OperatorId, list[NodeId]]:
    """For each free operator the nodes of all pinned operators upstream of it, nearest first."""
    found: dict[OperatorId, list[NodeId]] = {}
    for operator in problem.free:
        nodes: dict[NodeId, None] = {}
        for flow in problem.inputs[operator]:
            pinned = problem.pinned.get(flow.upstream)
            nodes.update(dict.fromkeys([pinned] if pinned is not None else found[flow.upstream]))
        found[operator] = list(nodes)
    return found


def _nearest_pinned(
    problem: Problem, order: Iterable[OperatorId], towards: Callable[[OperatorId], list[OperatorId]]
) -> dict[OperatorId, NodeId]:
    found: dict[OperatorId, NodeId] = {}
    for operator in order:
        for other in towards(operator):
            node = problem.pinned.get(other, found.get(other))
            if node is not None:
                found[operator] = node
                break
    return found


def common_way(topology: Topology, starts: Iterable[NodeId], goal: NodeId) -> list[NodeId] | None:
    """Nodes that lie on the paths from every start to the goal, nearest to the starts first; None without a path.

    Where the paths only meet at the goal, the way is the goal alone.
    """
    shared: list[NodeId] | None = None
    for start in starts:
        path = topology.path(start, goal)
        if path is None:
            return None
        on_path = set(path.nodes)
        shared = list(path.nodes) if shared is None else [n for n in shared if n in on_path]
    return shared
