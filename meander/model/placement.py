"""Placements: which node runs each operator and which path carries each edge, and the check that all is valid."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from meander.model.global_plan import GlobalPlan, OperatorState, PlanOperator
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import describe
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path

Edge = tuple[OperatorId, OperatorId]
"""An upstream operator and its reader."""

TOLERANCE = 1e-6


@dataclass(slots=True)
class Placement:
    """Operator to node, and edge to path for operators on different nodes. Hops in between forward."""

    nodes: dict[OperatorId, NodeId] = field(default_factory=dict)
    routes: dict[Edge, Path] = field(default_factory=dict)


class Fault(Enum):
    """Ways in which a placement can be invalid."""

    NOT_PLACED = "not placed"
    DEAD_NODE = "dead node"
    MOVED_PIN = "pinned elsewhere"
    NO_PATH = "no path"
    BROKEN_ROUTE = "broken route"
    STRAY = "stray"
    TOO_FEW_SLOTS = "too few slots"
    TOO_MANY_TUPLES = "too many tuples"
    TOO_LITTLE_MEMORY = "too little memory"
    TOO_LITTLE_BANDWIDTH = "too little bandwidth"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong, with its reason in words."""

    fault: Fault
    reason: str
    operator: OperatorId | None = None
    node: NodeId | None = None


def mbps(record: PlanOperator) -> float:
    """Bandwidth that the operator's output takes, in steps of 2^-20 so that sums are exact."""
    return round(record.rate_tps * record.row_bytes * 8 / 1e6 * 2**20) / 2**20


def violations(plan: GlobalPlan, placement: Placement, topology: Topology) -> list[Violation]:
    """Everything that is wrong with a placement; empty when it is valid."""
    found: list[Violation] = []
    for record in plan.operators.values():
        found.extend(_operator_faults(record, placement, topology))
        found.extend(_edge_faults(record, plan, placement, topology))
    found.extend(_strays(plan, placement))
    found.extend(_overloads(plan, placement, topology))
    return found


def _operator_faults(record: PlanOperator, placement: Placement, topology: Topology) -> list[Violation]:
    node = placement.nodes.get(record.id)
    what = f"operator {record.id} ({describe(record.spec)})"
    if record.state in (OperatorState.TO_BE_REMOVED, OperatorState.REMOVED):
        if node is None:
            return []
        return [Violation(Fault.STRAY, f"{what} is {record.state.value}, but still placed", record.id, node)]
    if node is None:
        return [Violation(Fault.NOT_PLACED, f"{what} is not placed: {record.reason or 'no reason known'}", record.id)]
    if not topology.is_alive(node):
        return [Violation(Fault.DEAD_NODE, f"{what} is on {topology.name(node)}, which is gone", record.id, node)]
    if record.pin is not None and record.pin != node:
        where = f"pinned to {topology.name(record.pin)}, but runs on {topology.name(node)}"
        return [Violation(Fault.MOVED_PIN, f"{what} is {where}", record.id, node)]
    return []


def _edge_faults(record: PlanOperator, plan: GlobalPlan, placement: Placement, topology: Topology) -> list[Violation]:
    found: list[Violation] = []
    here = placement.nodes.get(record.id)
    for upstream in dict.fromkeys(record.inputs):
        there = placement.nodes.get(upstream)
        if here is None or there is None:
            continue
        edge = f"edge {upstream} to {record.id}"
        route = placement.routes.get((upstream, record.id))
        ends = f"{topology.name(there)} to {topology.name(here)}"
        if here == there:
            if route is not None:
                found.append(Violation(Fault.STRAY, f"{edge} stays on one node, but has a route", record.id, here))
        elif route is None:
            fault = Fault.BROKEN_ROUTE if topology.reachable(there, here) else Fault.NO_PATH
            found.append(Violation(fault, f"{edge} has no route from {ends}", record.id, here))
        elif (route.nodes[0], route.nodes[-1]) != (there, here):
            found.append(
                Violation(Fault.BROKEN_ROUTE, f"{edge} has a route that does not lead from {ends}", record.id, here)
            )
        elif not is_live(route, topology):
            found.append(
                Violation(Fault.BROKEN_ROUTE, f"{edge} uses a link between {ends} that is gone", record.id, here)
            )
    return found


def is_live(route: Path, topology: Topology) -> bool:
    """Whether all links of a route are there."""
    arcs = topology.arcs
    steps = zip(route.arcs, route.nodes, route.nodes[1:], strict=False)
    return len(route.arcs) == len(route.nodes) - 1 and all(
        arcs.alive[arc] and (arcs.tail[arc], arcs.tip[arc]) == (tail, tip) for arc, tail, tip in steps
    )


def _strays(plan: GlobalPlan, placement: Placement) -> list[Violation]:
    found = [
        Violation(Fault.STRAY, f"operator {operator} is not in the plan, but placed", operator, node)
        for operator, node in placement.nodes.items()
        if operator not in plan.operators
    ]
    for upstream, reader in placement.routes:
        known = upstream in placement.nodes and reader in placement.nodes and reader in plan.operators
        if not known or upstream not in plan[reader].inputs:
            found.append(Violation(Fault.STRAY, f"a route is kept for edge {upstream} to {reader}, which does not run"))
    return found


def _overloads(plan: GlobalPlan, placement: Placement, topology: Topology) -> list[Violation]:
    slots: defaultdict[NodeId, int] = defaultdict(int)
    load: defaultdict[NodeId, float] = defaultdict(float)
    memory: defaultdict[NodeId, float] = defaultdict(float)
    traffic: defaultdict[int, float] = defaultdict(float)
    for operator, node in placement.nodes.items():
        if operator in plan.operators:
            own_slots, own_tps, own_mb = plan[operator].charge
            slots[node] += own_slots
            load[node] += own_tps
            memory[node] += own_mb
    for (upstream, _), route in placement.routes.items():
        if upstream in plan.operators:
            for arc in route.arcs:
                traffic[arc] += mbps(plan[upstream])
    found: list[Violation] = []
    for node, used in slots.items():
        room = int(topology.nodes.slots[node])
        if used > room:
            reason = f"node {topology.name(node)} holds {used} operators, but has {room} slots"
            found.append(Violation(Fault.TOO_FEW_SLOTS, reason, node=node))
    for node, tps in load.items():
        capacity = float(topology.nodes.capacity_tps[node])
        if tps > capacity * (1 + TOLERANCE):
            reason = f"node {topology.name(node)} takes in {tps:g} tuples/s, but can take {capacity:g}"
            found.append(Violation(Fault.TOO_MANY_TUPLES, reason, node=node))
    for node, used_mb in memory.items():
        owned_mb = float(topology.nodes.memory_mb[node])
        if used_mb > owned_mb * (1 + TOLERANCE):
            reason = f"node {topology.name(node)} needs {used_mb:g} MB of memory, but has {owned_mb:g}"
            found.append(Violation(Fault.TOO_LITTLE_MEMORY, reason, node=node))
    for arc, used_mbps in traffic.items():
        width = float(topology.arcs.bandwidth_mbps[arc])
        if used_mbps > width * (1 + TOLERANCE):
            tail, tip = (topology.name(NodeId(int(end[arc]))) for end in (topology.arcs.tail, topology.arcs.tip))
            reason = f"link {tail} to {tip} carries {used_mbps:g} Mbit/s, but has {width:g}"
            found.append(Violation(Fault.TOO_LITTLE_BANDWIDTH, reason))
    return found
