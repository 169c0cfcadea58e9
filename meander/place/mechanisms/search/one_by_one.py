"""The frame of all mechanisms that place one operator after the other.

A mechanism says in which order it would try nodes for one operator, given where its neighbours are. The frame takes
the first that has room and whose links can carry the operator's flows. When there is none, it looks for any such node
nearby; when there is none either, the operator stays unplaced with the reason, and so do those that would read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.search.message_counts import Message, count, count_assignments
from meander.place.mechanisms.search.nearby import MOST_VISITED, nearby
from meander.place.mechanisms.search.routes import connects, goals, origins
from meander.place.mechanisms.solvers.objective import cost_at, weight
from meander.place.problem import Problem, Proposal

MOST_REFUSED = 64
"""Nodes with room whose links are too full that are looked at for one operator."""
COMPARED = 4
"""Of this many nearby nodes with room, the cheapest is taken."""


@dataclass(frozen=True, slots=True)
class Spot:
    """An operator to place, and the nodes it has to be connected with."""

    problem: Problem
    operator: OperatorId
    starts: list[NodeId]
    """Its data comes from here: every node must reach the operator's."""
    ends: list[NodeId]
    """Its data goes there: the operator's node must reach every one. The most important one comes first."""
    placed: dict[OperatorId, NodeId]
    """All operators that have a node so far."""

    def connects(self, node: NodeId) -> bool:
        return connects(self.problem.topology, self.starts, node, self.ends)

    def fits(self, node: NodeId) -> bool:
        return self.problem.fits(self.operator, node)


Candidates = Callable[[Spot], Iterable[NodeId]]
"""Connected nodes in the order in which a mechanism tries them."""

ASKED = (Message.ASK, Message.ANSWER)


def downstream(
    problem: Problem,
    candidates: Candidates,
    *,
    widen: bool = True,
    per_try: tuple[Message, ...] = ASKED,
    given: Mapping[OperatorId, NodeId] | None = None,
) -> Proposal:
    """Places inputs before their readers. Free operators that are `given` have taken their room already."""
    proposal = Proposal()
    if not problem.free:
        return proposal
    ends = goals(problem)
    placed = dict(problem.pinned)
    if given:
        placed.update(given)
        proposal.nodes.update(given)
    for operator in problem.free:
        if given and operator in given:
            continue
        inputs = [f.upstream for f in problem.inputs[operator]]
        if missing := [o for o in inputs if o not in placed]:
            proposal.unplaced[operator] = f"its input, operator {missing[0]}, is not placed"
            continue
        starts = list(dict.fromkeys([placed[o] for o in inputs]))
        _place(Spot(problem, operator, starts, ends[operator], placed), candidates, proposal, widen, per_try)
    if given:
        proposal.nodes = {o: proposal.nodes[o] for o in problem.free if o in proposal.nodes}
    count_assignments(proposal)
    return proposal


def upstream(
    problem: Problem, candidates: Candidates, *, widen: bool = True, per_try: tuple[Message, ...] = ASKED
) -> Proposal:
    """Places readers before their inputs."""
    proposal = Proposal()
    if not problem.free:
        return proposal
    starts = origins(problem)
    placed = dict(problem.pinned)
    for operator in reversed(list(problem.free)):
        readers = [f.reader for f in problem.outputs[operator]]
        ends = list(dict.fromkeys([placed[o] for o in readers if o in placed]))
        if readers and not ends:
            proposal.unplaced[operator] = f"its reader, operator {readers[0]}, is not placed"
            continue
        _place(Spot(problem, operator, starts[operator], ends, placed), candidates, proposal, widen, per_try)
    proposal.nodes = {o: proposal.nodes[o] for o in problem.free if o in proposal.nodes}
    count_assignments(proposal)
    return proposal


def _place(spot: Spot, candidates: Candidates, proposal: Proposal, widen: bool, per_try: tuple[Message, ...]) -> None:
    if not (spot.starts or spot.ends):
        proposal.unplaced[spot.operator] = "no operator it reads from or leads to has a node"
        return
    node, tried = _choose(spot, candidates, proposal, widen, per_try)
    if node is None:
        served = _served_ends(spot)
        if served or _branches(spot):
            spot = replace(spot, ends=served or spot.ends)
            node, tried = _choose(spot, candidates, proposal, widen, per_try, every=False)
    if node is None:
        proposal.unplaced[spot.operator] = _reason(spot, tried, widen)
        return
    spot.placed[spot.operator] = proposal.nodes[spot.operator] = node
    spot.problem.take(spot.operator, node)


def _served_ends(spot: Spot) -> list[NodeId]:
    """The ends that a path leads to, if some are cut off: those should not keep the others waiting."""
    topology = spot.problem.topology
    served = [e for e in spot.ends if all(topology.reachable(s, e) for s in spot.starts)]
    return served if spot.starts and len(served) < len(spot.ends) else []


def _branches(spot: Spot) -> bool:
    """Whether several readers have a node: one that the links cannot serve should not keep the others waiting."""
    return sum(f.reader in spot.placed for f in spot.problem.outputs[spot.operator]) > 1


def _choose(
    spot: Spot,
    candidates: Candidates,
    proposal: Proposal,
    widen: bool,
    per_try: tuple[Message, ...],
    *,
    every: bool = True,
) -> tuple[NodeId | None, list[NodeId]]:
    """A node with room, connected with its neighbours, and those that were asked before."""
    problem = spot.problem
    need = problem.free[spot.operator]
    tried: list[NodeId] = []
    node: NodeId | None = None
    refused = 0
    for candidate in candidates(spot):
        tried.append(candidate)
        if problem.room.fits(candidate, need.slots, need.load_tps, need.memory_mb):
            if problem.connect(spot.operator, candidate, spot.placed, every=every):
                node = candidate
                break
            refused += 1
            if refused == MOST_REFUSED:
                break
    for message in per_try:
        count(proposal, message, len(tried))
    if node is None and widen:
        node = somewhere(spot, proposal, every=every)
    return node, tried


def somewhere(spot: Spot, proposal: Proposal, *, every: bool = True) -> NodeId | None:
    """The cheapest of the nearest nodes with room that connect it, searched around the neighbour with most traffic."""
    problem, operator = spot.problem, spot.operator
    around, against = spot.ends[0] if spot.ends else spot.starts[0], bool(spot.ends)
    heaviest = 0.0
    for flow in problem.inputs[operator]:
        if flow.upstream in spot.placed and weight(flow) > heaviest:
            around, against, heaviest = spot.placed[flow.upstream], False, weight(flow)
    found: list[tuple[float, NodeId]] = []
    refused = 0
    for node in nearby(problem.room, around, problem.free[operator], upstream=against):
        count(proposal, Message.ASK)
        count(proposal, Message.ANSWER)
        if not spot.connects(node):
            continue
        if problem.connect(operator, node, spot.placed, every=every):
            problem.disconnect((operator,))
            found.append((cost_at(problem, operator, node, spot.placed), node))
            if len(found) == COMPARED:
                break
        else:
            refused += 1
            if refused == MOST_REFUSED:
                break
    if not found:
        return None
    best = min(found)[1]
    problem.connect(operator, best, spot.placed, every=every)
    return best


def _reason(spot: Spot, tried: list[NodeId], widen: bool) -> str:
    """The reason why there is no node for the operator: no path, or no room."""
    topology = spot.problem.topology
    for start in spot.starts:
        if not topology.is_alive(start):
            return f"node {topology.name(start)}, which it reads from, is gone"
        for end in spot.ends:
            if not topology.is_alive(end):
                return f"node {topology.name(end)}, which it leads to, is gone"
            if not topology.reachable(start, end):
                return f"no path leads from {topology.name(start)} to {topology.name(end)}"
    if thin := _thin_link(spot, tried):
        return thin
    need = spot.problem.free[spot.operator]
    names = ", ".join(topology.name(n) for n in tried[:8]) + (" and others" if len(tried) > 8 else "")
    where = f" on {names}" if names else ""
    if widen:
        where += f"{' nor' if names else ''} on any connected node among the {MOST_VISITED:,} nearest"
    memory = f", {need.memory_mb:g} MB" if _memory_binds(spot, tried) else ""
    return f"no room for {need.slots} slots{memory} and {need.load_tps:g} tuples/s{where}"


def _memory_binds(spot: Spot, tried: list[NodeId]) -> bool:
    """Whether one of the nodes would do if it had more memory."""
    need, room, near = spot.problem.free[spot.operator], spot.problem.room, (*tried, *spot.starts, *spot.ends)
    return any(room.fits(n, need.slots, need.load_tps) and room.free_mb(n) < need.memory_mb for n in near)


def _thin_link(spot: Spot, tried: list[NodeId]) -> str | None:
    """The flow that the links around a node with room cannot carry beside the others, if that is the reason."""
    problem, topology = spot.problem, spot.problem.topology
    for node in tried:
        if not spot.fits(node):
            continue
        into = [(f, spot.placed.get(f.upstream), node) for f in problem.inputs[spot.operator]]
        out_of = [(f, node, spot.placed.get(f.reader)) for f in problem.outputs[spot.operator]]
        room = problem.room.copy()
        for flow, start, goal in (*into, *out_of):
            if start is None or goal is None:
                continue
            path = room.path(start, goal, flow.mbps)
            if path is None:
                names = f"{topology.name(start)} to {topology.name(goal)}"
                return f"no path with {flow.mbps:g} Mbit/s left leads from {names}"
            room.take_traffic(path.arcs, flow.mbps)
    return None
