"""Checks that a catalog is sound: a valid placement, indexes that agree with it, and a ledger that adds up."""

from __future__ import annotations

from collections import defaultdict

from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, Fault, mbps, violations
from meander.place.catalog import Catalog

TOLERANCE = 1e-6


def validate(catalog: Catalog) -> list[str]:
    """Everything that is wrong, in sentences; empty when all is well. An operator may wait if it says why."""
    return [*_placement_faults(catalog), *_state_faults(catalog), *_index_faults(catalog), *_ledger_faults(catalog)]


def _placement_faults(catalog: Catalog) -> list[str]:
    plan = catalog.plan
    found = violations(plan, catalog.placement, catalog.topology)
    return [
        v.reason
        for v in found
        if v.fault is not Fault.NOT_PLACED or v.operator is None or plan[v.operator].reason is None
    ]


def _state_faults(catalog: Catalog) -> list[str]:
    nodes = catalog.placement.nodes
    return [
        f"operator {operator} is {record.state.value}, but has {'a' if operator in nodes else 'no'} place"
        for operator, record in catalog.plan.operators.items()
        if (record.state is OperatorState.PLACED) != (operator in nodes)
    ]


def _index_faults(catalog: Catalog) -> list[str]:
    on_node: dict[NodeId, set[OperatorId]] = defaultdict(set)
    for operator, node in catalog.placement.nodes.items():
        on_node[node].add(operator)
    on_arc: dict[int, set[Edge]] = defaultdict(set)
    for edge, path in catalog.placement.routes.items():
        for arc in path.arcs:
            on_arc[arc].add(edge)
    name = catalog.topology.name
    found = [
        f"node {name(n)} is said to hold operators {sorted(catalog.on_node.get(n, ()))}, but holds {sorted(on_node[n])}"
        for n in {*on_node, *catalog.on_node}
        if on_node[n] != catalog.on_node.get(n, set())
    ]
    return found + [
        f"arc {arc} is said to carry edges {sorted(catalog.on_arc.get(arc, ()))}, but carries {sorted(on_arc[arc])}"
        for arc in {*on_arc, *catalog.on_arc}
        if on_arc[arc] != catalog.on_arc.get(arc, set())
    ]


def _ledger_faults(catalog: Catalog) -> list[str]:
    """Yields differences between the ledger and the use by operators. Joins that are cut into parts book more than
    their operators take."""
    plan, ledger, name = catalog.plan, catalog.ledger, catalog.topology.name
    slots: dict[int, int] = defaultdict(int)
    load: dict[int, float] = defaultdict(float)
    memory: dict[int, float] = defaultdict(float)
    traffic: dict[int, float] = defaultdict(float)
    for operator, node in catalog.placement.nodes.items():
        record = plan.operators.get(operator)
        if record is not None and record.slots:
            slots[node] += record.slots
            load[node] += record.load_tps
            memory[node] += record.memory_mb
    for (upstream, _), path in catalog.placement.routes.items():
        for arc in path.arcs if upstream in plan.operators else ():
            traffic[arc] += mbps(plan[upstream])
    found: list[str] = []
    for node in map(NodeId, range(len(ledger.slots))):
        if ledger.slots[node] != slots[node]:
            found.append(f"node {name(node)} is charged for {ledger.slots[node]} operators, but holds {slots[node]}")
        more = float(ledger.load_tps[node]) - load[node]
        if abs(more) > TOLERANCE and (more < 0 or not plan.bundles):
            charged = f"{ledger.load_tps[node]:g}"
            found.append(f"node {name(node)} is charged for {charged} tuples/s, but takes in {load[node]:g}")
        if abs(float(ledger.memory_mb[node]) - memory[node]) > TOLERANCE:
            charged = f"{ledger.memory_mb[node]:g}"
            found.append(f"node {name(node)} is charged for {charged} MB, but needs {memory[node]:g}")
    for arc in range(len(ledger.mbps)):
        if abs(float(ledger.mbps[arc]) - traffic[arc]) > TOLERANCE:
            charged = f"{ledger.mbps[arc]:g}"
            found.append(f"arc {arc} is charged for {charged} Mbit/s, but carries {traffic[arc]:g}")
    return found
