"""Candidates along paths: where can an operator run between the operators it reads from and those it leads to?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meander.model.ids import NodeId, OperatorId
from meander.model.topology.graph import Topology
from meander.place.problem import Problem


def goals(problem: Problem) -> dict[OperatorId, list[NodeId]]:
    """For each free operator the nodes of all pinned operators downstream of it, those of its readers first."""
    return _pinned_nodes(problem, reversed(list(problem.free)), lambda o: [f.reader for f in problem.outputs[o]])


def origins(problem: Problem) -> dict[OperatorId, list[NodeId]]:
    """For each free operator the nodes of all pinned operators upstream of it, those of its inputs first."""
    return _pinned_nodes(problem, problem.free, lambda o: [f.upstream for f in problem.inputs[o]])


def _pinned_nodes(
    problem: Problem, order: Iterable[OperatorId], towards: Callable[[OperatorId], list[OperatorId]]
) -> dict[OperatorId, list[NodeId]]:
    found: dict[OperatorId, list[NodeId]] = {}
    pinned = problem.pinned
    for operator in order:
        others = towards(operator)
        nodes = dict.fromkeys([pinned[o] for o in others if o in pinned])
        for other in others:
            if other not in pinned:
                nodes.update(dict.fromkeys(found[other]))
        found[operator] = list(nodes)
    return found


def common_route(topology: Topology, starts: Iterable[NodeId], goal: NodeId) -> list[NodeId] | None:
    """Nodes that lie on the paths from every start to the goal, nearest to the starts first; None without a path.

    Where the paths only meet at the goal, the way is the goal alone.
    """
    shared: list[NodeId] | None = None
    for start in starts:
        path = topology.path(start, goal)
        if path is None:
            return None
        if shared is None:
            shared = list(path.nodes)
        else:
            on_path = set(path.nodes)
            shared = [n for n in shared if n in on_path]
    return shared


def connects(topology: Topology, starts: Iterable[NodeId], node: NodeId, ends: Iterable[NodeId]) -> bool:
    """Whether the node is reached from every start and reaches every end."""
    return all(topology.reachable(s, node) for s in starts) and all(topology.reachable(node, e) for e in ends)
