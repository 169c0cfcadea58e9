"""What must be true of a catalog after every batch, worked out from the plan, the placement and the topology alone.

Each check says in words what is wrong; nothing when all is well. Amounts are added up anew and compared exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from meander.model.global_plan import OperatorState, PlanOperator
from meander.model.ids import NodeId, OperatorId
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path
from meander.place.catalog import Catalog
from meander.place.nova.queries.partitioned_queries import PartitionedQueries

SETTLED = (OperatorState.PLACED, OperatorState.TO_BE_PLACED)
TOLERANCE = 1e-6


def catalog_faults(catalog: Catalog, parted: PartitionedQueries | None = None) -> list[str]:
    """`parted` queries book what their parts take in."""
    booked: defaultdict[int, float] = defaultdict(float)
    queries = parted.by_name.values() if parted is not None else ()
    for booking in (booking for each in queries for booking in each.bookings):
        for node in np.flatnonzero(booking.taken).tolist():
            booked[node] += float(booking.taken[node])
    amounts = _amounts(catalog, booked)
    return [*_plan(catalog), *_operators(catalog), *_routes(catalog), *_views(catalog), *amounts]


def is_live(path: Path, topology: Topology) -> bool:
    """Whether a path leads from node to node over links that are there."""
    arcs, hops = topology.arcs, list(zip(path.nodes, path.nodes[1:], strict=False))
    return len(path.arcs) == len(hops) and all(
        arcs.alive[arc] and (int(arcs.tail[arc]), int(arcs.tip[arc])) == hop
        for arc, hop in zip(path.arcs, hops, strict=True)
    )


def mbps_of(record: PlanOperator) -> float:
    """Rounded to 2^-20 Mbit/s, as the ledger adds it up."""
    return round(record.rate_tps * record.row_bytes * 8 / 1e6 * 2**20) / 2**20


def _plan(catalog: Catalog) -> Iterator[str]:
    plan = catalog.plan
    wanted: set[OperatorId] = set()
    for name in plan.queries:
        wanted.update(plan.serving(name))
    yield from (f"operator {o} serves no query" for o in plan.operators if o not in wanted)
    for operator, record in plan.operators.items():
        own = sum(operator in running.sinks for running in plan.queries.values())
        if record.users != len(record.readers) + own:
            yield f"operator {operator} has {len(record.readers)} readers and {own} queries, but {record.users} users"
        for upstream in record.inputs:
            if operator not in plan[upstream].readers:
                yield f"operator {operator} reads {upstream}, which does not know"
    yield from (
        f"operator {o} is to be shared, but not in the plan" for o in catalog.running.values() if o not in wanted
    )


def _operators(catalog: Catalog) -> Iterator[str]:
    plan, nodes, topology = catalog.plan, catalog.placement.nodes, catalog.topology
    for operator, record in plan.operators.items():
        node = nodes.get(operator)
        if record.state not in SETTLED:
            yield f"operator {operator} is {record.state.value} after the batch"
        if (record.state is OperatorState.PLACED) != (node is not None):
            yield f"operator {operator} is {record.state.value}, its node is {node}"
        if node is None:
            if not record.reason:
                yield f"operator {operator} waits without a reason"
            continue
        if record.reason:
            yield f"operator {operator} is placed, but has a reason to wait: {record.reason}"
        if not topology.is_alive(node):
            yield f"operator {operator} is on {topology.name(node)}, which is gone"
        if record.pin not in (None, node):
            yield f"operator {operator} is pinned to {record.pin}, but on {node}"
    yield from (f"operator {o} is placed, but not in the plan" for o in nodes if o not in plan.operators)


def _routes(catalog: Catalog) -> Iterator[str]:
    plan, placement, topology = catalog.plan, catalog.placement, catalog.topology
    edges = {(u, o) for o, record in plan.operators.items() for u in record.inputs}
    for edge in placement.routes.keys() - edges:
        yield f"edge {edge} has a route, but is not in the plan"
    for edge in edges:
        ends = [placement.nodes.get(o) for o in edge]
        route = placement.routes.get(edge)
        if None in ends or ends[0] == ends[1]:
            if route is not None:
                yield f"edge {edge} has a route, but its ends are {ends}"
        elif route is None:
            yield f"edge {edge} has no route between {ends}"
        elif [route.nodes[0], route.nodes[-1]] != ends:
            yield f"edge {edge} has a route {route.nodes}, but its ends are {ends}"
        elif not is_live(route, topology):
            yield f"edge {edge} has a route {route.nodes} over links that are gone"


def _views(catalog: Catalog) -> Iterator[str]:
    on_node: defaultdict[NodeId, set[OperatorId]] = defaultdict(set)
    on_arc: defaultdict[int, set[tuple[OperatorId, OperatorId]]] = defaultdict(set)
    for operator, node in catalog.placement.nodes.items():
        on_node[node].add(operator)
    for edge, route in catalog.placement.routes.items():
        for arc in route.arcs:
            on_arc[arc].add(edge)
    if on_node != catalog.on_node:
        yield f"by node: {catalog.on_node}, but placed are {dict(on_node)}"
    if on_arc != catalog.on_arc:
        yield f"by arc: {catalog.on_arc}, but routes use {dict(on_arc)}"


def _amounts(catalog: Catalog, booked: Mapping[int, float]) -> Iterator[str]:
    plan, topology, ledger = catalog.plan, catalog.topology, catalog.ledger
    slots: Counter[int] = Counter()
    load: defaultdict[int, float] = defaultdict(float, booked)
    memory: defaultdict[int, float] = defaultdict(float)
    traffic: defaultdict[int, float] = defaultdict(float)
    for operator, node in catalog.placement.nodes.items():
        if operator in plan.operators and plan[operator].slots:
            slots[int(node)] += plan[operator].slots
            load[int(node)] += plan[operator].load_tps
            memory[int(node)] += plan[operator].memory_mb
    for (upstream, _), route in catalog.placement.routes.items():
        for arc in route.arcs if upstream in plan.operators else ():
            traffic[arc] += mbps_of(plan[upstream])
    kinds = (("slots", ledger.slots, slots), ("load", ledger.load_tps, load), ("memory", ledger.memory_mb, memory))
    for what, kept, found in kinds:
        for number in np.flatnonzero(kept).tolist() + list(found):
            if kept[number] != found[number]:
                name = topology.name(NodeId(number))
                yield f"{what} of {name}: the ledger says {kept[number]}, but {found[number]} are in use"
    for arc in np.flatnonzero(ledger.mbps).tolist() + list(traffic):
        if ledger.mbps[arc] != traffic[arc]:
            yield f"arc {arc}: the ledger says {ledger.mbps[arc]} Mbit/s, but {traffic[arc]} are in use"
    nodes, arcs = topology.nodes, topology.arcs
    for number, used in slots.items():
        if used > nodes.slots[number]:
            yield f"{topology.name(NodeId(number))} holds {used} operators, but has {nodes.slots[number]} slots"
    for number, tps in load.items():
        if tps > nodes.capacity_tps[number] * (1 + TOLERANCE):
            yield f"{topology.name(NodeId(number))} takes in {tps} tuples/s, but can take {nodes.capacity_tps[number]}"
    for number, mb in memory.items():
        if mb > nodes.memory_mb[number] * (1 + TOLERANCE):
            yield f"{topology.name(NodeId(number))} keeps {mb} MB, but has {nodes.memory_mb[number]}"
    for arc, used_mbps in traffic.items():
        if used_mbps > arcs.bandwidth_mbps[arc] * (1 + TOLERANCE):
            yield f"arc {arc} carries {used_mbps} Mbit/s, but has {arcs.bandwidth_mbps[arc]}"
