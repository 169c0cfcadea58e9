"""Amending a delta: work out released resources, ask the mechanism for new places, route the edges.

Nothing here changes the catalog. The result is an `AmendmentDraft`: amounts to give back and to take, and the placement
that follows. `control` makes it true in the ledger, or has it drafted again when another amender was faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, mbps
from meander.model.topology.path_cache import Path
from meander.place.amenders.gain import gains
from meander.place.catalog import Catalog
from meander.place.changelog import Delta
from meander.place.free_capacity import Room
from meander.place.mechanisms.base import Mechanism
from meander.place.mechanisms.solvers.packing import Packing
from meander.place.problem import Flow, Need, Problem, Proposal

ROUNDS = 3
"""Rounds in which refused operators are put to the mechanism again, after others were withdrawn."""


@dataclass(slots=True)
class AmendmentDraft:
    """The changes that amending a delta would make."""

    room: Room
    """Everything given back and taken, on nodes and arcs."""
    lifted: list[OperatorId] = field(default_factory=list)
    lifted_routes: dict[Edge, None] = field(default_factory=dict)
    nodes: dict[OperatorId, NodeId] = field(default_factory=dict)
    routes: dict[Edge, Path] = field(default_factory=dict)
    unplaced: dict[OperatorId, str] = field(default_factory=dict)
    unrouted: dict[Edge, str] = field(default_factory=dict)
    overtaken: bool = False
    """Whether the mechanism chose a node without room: by mistake, or because another amender was faster."""
    proposal: Proposal | None = None
    """The mechanism's answer, if it was asked."""
    proposed: dict[Edge, Path] = field(default_factory=dict)
    """Paths over which the mechanism connected its operators."""
    broken: bool = False
    """Whether the mechanism raised an error."""


def draft(catalog: Catalog, delta: Delta, mechanism: Mechanism, room: Room, seed: int) -> AmendmentDraft:
    """Both phases on a private view: removal, then addition."""
    result = AmendmentDraft(room)
    _release(catalog, delta, result)
    wanted = [o for o in delta.operators if catalog.plan[o].state is not OperatorState.TO_BE_REMOVED]
    left = wanted
    for number in range(ROUNDS):
        if left:
            _place(catalog, delta, left, mechanism, result, seed)
        withdrawn = _route(catalog, delta, left, wanted, result)
        refused = [o for o in left if o in result.unplaced and o not in withdrawn and catalog.plan[o].pin is None]
        if not (withdrawn and refused) or number == ROUNDS - 1 or mechanism.metadata.routes_all:
            break
        for operator in refused:  # beside what was withdrawn: there may be room now, or another reason
            del result.unplaced[operator]
        left = refused
    return result


def draft_packed(catalog: Catalog, delta: Delta, mechanism: Mechanism, room: Room, seed: int) -> AmendmentDraft:
    """As `draft`, but takes any nodes with room that the mechanism allows: used when the mechanism's own choice
    failed."""
    return draft(catalog, delta, Packing(mechanism), room, seed)


def removal_only(catalog: Catalog, delta: Delta, room: Room, reason: str) -> AmendmentDraft:
    """The first phase alone: what a delta that cannot be placed still gives back."""
    result = AmendmentDraft(room, broken=True)
    _release(catalog, delta, result)
    for operator in delta.operators:
        if catalog.plan[operator].state is not OperatorState.TO_BE_REMOVED:
            result.unplaced[operator] = reason
    result.unrouted = dict.fromkeys(delta.edges, reason)
    return result


def _release(catalog: Catalog, delta: Delta, result: AmendmentDraft) -> None:
    plan, placement, room = catalog.plan, catalog.placement, result.room
    for operator in delta.operators:
        record = plan[operator]
        node = placement.nodes.get(operator)
        if node is None:
            continue
        result.lifted.append(operator)
        slots, load, memory = record.charge
        room.take(node, -slots, -load, -memory)
        for edge in plan.edges_of(operator):
            route = placement.routes.get(edge)
            if route is not None and edge not in result.lifted_routes:
                result.lifted_routes[edge] = None
                room.take_traffic(route.arcs, -mbps(plan[edge[0]]))


def _place(
    catalog: Catalog, delta: Delta, wanted: list[OperatorId], mechanism: Mechanism, result: AmendmentDraft, seed: int
) -> None:
    plan = catalog.plan
    _pin(catalog, wanted, result)
    if all(o in result.nodes or o in result.unplaced for o in wanted) and not mechanism.metadata.routes_all:
        return
    fixed = {o: catalog.placement.nodes[o] for o in delta.boundary if plan[o].state is OperatorState.PLACED}
    fixed.update(result.nodes)
    free = _placeable(catalog, wanted, fixed, result)
    everything = mechanism.metadata.routes_all
    if not free and not everything:
        return
    members = {*free, *fixed}
    moving = set(wanted) if everything else set()
    flows = tuple(
        Flow(upstream, o, plan[upstream].rate_tps, mbps(plan[upstream]))
        for o in members
        for upstream in dict.fromkeys(plan[o].inputs)
        if upstream in members and (o in free or upstream in free or o in moving or upstream in moving)
    )
    ends = {o for f in flows for o in (f.upstream, f.reader)}
    problem = Problem(
        free={o: Need(*plan[o].charge) for o in free},
        pinned={o: n for o, n in fixed.items() if o in ends},
        flows=flows,
        topology=catalog.topology,
        room=result.room.copy(),
        seed=seed,
        space=catalog.space,
        former={o: catalog.placement.nodes[o] for o in free if o in catalog.placement.nodes},
        waiting=frozenset(wanted).difference(catalog.placement.nodes) if everything else frozenset(),
    )
    proposal = mechanism.place(problem)
    if result.proposal is not None:
        proposal.messages += result.proposal.messages
        proposal.bytes += result.proposal.bytes
    result.proposal = proposal
    result.proposed = problem.routes
    if delta.optional and not gains(problem, proposal.nodes):
        proposal.nodes, proposal.unplaced = dict(problem.former), {}
    _accept(catalog, free, mechanism, proposal, result)


def _accept(
    catalog: Catalog, free: dict[OperatorId, None], mechanism: Mechanism, proposal: Proposal, result: AmendmentDraft
) -> None:
    """Takes what the mechanism proposed from the room, and does not trust it: what does not fit is not placed."""
    for operator in free:
        record = catalog.plan[operator]
        node = proposal.nodes.get(operator)
        if node is None:
            silence = f"mechanism {mechanism.name} found no node for it"
            result.unplaced[operator] = proposal.unplaced.get(operator, silence)
        elif not result.room.fits(node, *record.charge):
            name = catalog.topology.name(node)
            result.unplaced[operator] = f"mechanism {mechanism.name} chose node {name}, which has no room for it"
            result.overtaken = True
        else:
            result.nodes[operator] = node
            result.room.take(node, *record.charge)


def _pin(catalog: Catalog, wanted: list[OperatorId], result: AmendmentDraft) -> None:
    """Pinned operators go to their node, when it is there and has room."""
    for operator in wanted:
        record = catalog.plan[operator]
        if record.pin is None:
            continue
        if not catalog.topology.is_alive(record.pin):
            result.unplaced[operator] = f"its node {catalog.topology.name(record.pin)} is gone"
        elif not record.slots:
            result.nodes[operator] = record.pin
        elif result.room.fits(record.pin, *record.charge):
            result.nodes[operator] = record.pin
            result.room.take(record.pin, *record.charge)
        else:
            result.unplaced[operator] = f"its node {catalog.topology.name(record.pin)} has no room for it"


def _placeable(
    catalog: Catalog, wanted: list[OperatorId], fixed: dict[OperatorId, NodeId], result: AmendmentDraft
) -> dict[OperatorId, None]:
    """The free operators whose inputs can all be there and that lead to something that is there; others say why not."""
    plan = catalog.plan
    free: dict[OperatorId, None] = {}
    for operator in wanted:
        if plan[operator].pin is None:
            missing = next((i for i in plan[operator].inputs if i not in fixed and i not in free), None)
            if missing is None:
                free[operator] = None
            else:
                result.unplaced[operator] = f"its input operator {missing} is not placed"
    for operator in reversed(list(free)):
        if not any(r in fixed or r in free for r in plan[operator].readers):
            del free[operator]
            result.unplaced[operator] = "nothing that reads its output is placed"
    return free


def _route(
    catalog: Catalog, delta: Delta, placed: list[OperatorId], wanted: list[OperatorId], result: AmendmentDraft
) -> set[OperatorId]:
    """A path for every edge of a newly placed operator, and for every edge whose path broke.

    Returns operators that are withdrawn because there is none.
    """
    plan, topology, room, fresh = catalog.plan, catalog.topology, result.room, result.nodes
    staying, lifted = catalog.placement.nodes, set(result.lifted)
    edges = dict.fromkeys(e for e in delta.edges if e not in result.unrouted)
    for operator in placed:
        if operator in fresh:
            edges.update(dict.fromkeys(plan.edges_of(operator)))
    if result.proposed:
        edges = {**dict.fromkeys(e for e in result.proposed if e in edges), **edges}
    for edge in edges:
        if edge in result.routes:
            continue
        upstream, reader = edge
        start = fresh.get(upstream) if upstream in fresh or upstream in lifted else staying.get(upstream)
        goal = fresh.get(reader) if reader in fresh or reader in lifted else staying.get(reader)
        if start is None or goal is None or start == goal:
            continue
        need = mbps(plan[upstream])
        path = result.proposed.get(edge)
        if path is None or (path.nodes[0], path.nodes[-1]) != (start, goal) or not room.carries(path.arcs, need):
            path = room.path(start, goal, need)
        if path is None:
            names = f"{topology.name(start)} to {topology.name(goal)}"
            result.unrouted[edge] = f"no path with {need:g} Mbit/s left leads from {names}"
        else:
            result.routes[edge] = path
            room.take_traffic(path.arcs, need)
    return _withdraw_unrouted(catalog, set(wanted), result) if result.unrouted else set()


def _withdraw_unrouted(catalog: Catalog, wanted: set[OperatorId], result: AmendmentDraft) -> set[OperatorId]:
    """An operator that cannot be reached is not placed; neither is one that then lacks an input. Returns them.

    Of an edge without a path the reader goes, so that one sink that is cut off does not stop the others.
    """
    withdrawn: set[OperatorId] = set()
    plan, room = catalog.plan, result.room
    doomed: dict[OperatorId, str] = {}
    for (upstream, reader), reason in result.unrouted.items():
        if reader in result.nodes or upstream in result.nodes:
            doomed[reader if reader in result.nodes else upstream] = reason
    while doomed:
        operator, reason = doomed.popitem()
        node = result.nodes.pop(operator)
        withdrawn.add(operator)
        record = plan[operator]
        result.unplaced[operator] = reason
        slots, load, memory = record.charge
        room.take(node, -slots, -load, -memory)
        for edge in plan.edges_of(operator):
            result.unrouted.pop(edge, None)
            route = result.routes.pop(edge, None)
            if route is not None:
                room.take_traffic(route.arcs, -mbps(plan[edge[0]]))
        for reader in record.readers:
            if reader in result.nodes and reader in wanted:
                doomed.setdefault(reader, f"its input operator {operator} is not placed")
    return withdrawn
