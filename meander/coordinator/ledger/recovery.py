"""Recovery: the catalog as it was, rebuilt from the ledger, so that its numbers keep their meaning.

Operators get their numbers in the order in which queries came and went, so the log of queries is followed step by step,
without queries that left nothing in use. Placements are not decided again: every operator is put where the ledger says
it is. Operators of queries that were stopped, but that the host's store still knows, stay in the plan until the host
has taken them up and can let go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from meander.coordinator.ledger.ledger import Ledger, Placing
from meander.coordinator.ledger.query_texts import planned
from meander.coordinator.ledger.retention import QueryArrival, Retention
from meander.lang.demands import parse_demands
from meander.lang.limits import accepted_before
from meander.lang.topology.reader import TopologyFile
from meander.model.global_plan import OperatorState, RunningQuery
from meander.model.ids import OperatorId, QueryId
from meander.model.placement import Edge, mbps
from meander.model.plan import Query
from meander.model.topology.graph import Topology
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.free_capacity import Room
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.physical import Preparation
from meander.place.sharing import add_query, forget, remove_query

FORGOTTEN_AT_ONCE = 50
"""The log of queries is shortened when so many of its steps are of no use."""

ROUTING_TRIES = 8
"""Orders in which edges get their routes back, if links are full before all have one."""


@dataclass(slots=True)
class Recovered:
    """The catalog as it was before."""

    catalog: Catalog
    applicator: Applicator
    """With the queries that Nova places, as they were cut."""
    texts: dict[QueryId, str] = field(default_factory=dict)
    """The queries that run, as people wrote them."""
    since_ms: dict[QueryId, int] = field(default_factory=dict)
    """The time at which each query came."""
    ghosts: list[OperatorId] = field(default_factory=list)
    """Operators of stopped queries that the host still knows."""
    why: dict[OperatorId, str] = field(default_factory=dict)


def rebuild(
    ledger: Ledger, world: TopologyFile, running: Collection[OperatorId], nova: NovaQuerySettings | None = None
) -> Recovered:
    """The catalog of the ledger; `running` are the operators that the host's store knows."""
    topology = ledger.topology.load() if ledger.topology.exists() else world.topology
    catalog = Catalog(topology, dict(world.streams), dict(world.sinks), detour=world.resilience.detour)
    found = Recovered(catalog, Applicator(catalog, ChangeLog()))
    found.applicator.parted.settings = nova or NovaQuerySettings()
    found.catalog.rates_tps.update(ledger.rates())
    cut = {OperatorId(o) for record in ledger.queries.cuts().values() for o in record["cut"]["operators"]}
    _restore_cuts(found, ledger, _follow_queries(found, ledger, set(running) - cut), running)
    found.ghosts = [operator for operator in found.ghosts if operator not in cut]
    _restore_demands(found.catalog, ledger)
    _restore_placements(found, ledger.placements())
    found.catalog.difference()  # earlier ones are no news
    return found


def _follow_queries(found: Recovered, ledger: Ledger, running: set[OperatorId]) -> dict[QueryId, Query]:
    """Adds and removes queries as the log says, batch by batch; queries that left nothing in use are then forgotten.

    Gives those whose operators are not counted here, because they are those of a cut.
    """
    parted: dict[QueryId, Query] = {}
    catalog = found.catalog
    preparation = Preparation(catalog.streams, catalog.sinks)
    batch = None
    leaving: dict[OperatorId, None] = {}
    retention = Retention()
    steps = ledger.queries.log()
    for step in steps:
        if step.batch != batch:
            _let_go(found, leaving, running)
            batch = step.batch
        if step.first is not None:
            catalog.plan.count_from(step.first)
        name = QueryId(step.query)
        if not step.query:
            continue
        if step.parted and step.text is not None:
            with accepted_before():
                query = planned(name, step.text, catalog.streams, catalog.sinks)
            parted[name] = replace(query, id=name)
            now = catalog.plan.next_operator
            retention.came(name, QueryArrival(step.position, step.batch, now, frozenset(), frozenset()))
            found.texts[name], found.since_ms[name] = step.text, step.at_ms
        elif step.text is None and name in parted:
            del parted[name], found.texts[name], found.since_ms[name]
            retention.went(name, step.position, step.batch)
        elif step.text is None:
            leaving.update(dict.fromkeys(remove_query(catalog, catalog.plan.query(name))))
            del found.texts[name], found.since_ms[name]
            retention.went(name, step.position, step.batch)
        else:
            with accepted_before():
                query = planned(name, step.text, catalog.streams, catalog.sinks)
            first = catalog.plan.next_operator
            add_query(catalog, preparation.prepare(replace(query, id=name), step.rules))
            made = frozenset(map(OperatorId, range(first, catalog.plan.next_operator)))
            used = frozenset(catalog.plan.serving(name))
            retention.came(name, QueryArrival(step.position, step.batch, first, made, used))
            found.texts[name], found.since_ms[name] = step.text, step.at_ms
    _let_go(found, leaving, running)
    needed = retention.needed(running)
    if len(needed) + FORGOTTEN_AT_ONCE <= len(steps):
        with ledger.transaction():
            ledger.queries.keep(needed, catalog.plan.next_operator)
    return parted


def _restore_cuts(
    found: Recovered, ledger: Ledger, parted: Mapping[QueryId, Query], running: Collection[OperatorId]
) -> None:
    """Adds the queries that Nova places as they were cut; no number is given twice, also of what still runs. Queries
    that Nova is taking over are in the plan as they were before."""
    plan, cuts = found.catalog.plan, ledger.queries.cuts()
    used = [*running, *(OperatorId(o) for record in cuts.values() for o in record["cut"]["operators"])]
    plan.count_from(max([plan.next_operator, *(o + 1 for o in used)]))
    for name, query in parted.items():
        if name in cuts:  # or else it was accepted, and is added when the batch is applied
            found.applicator.parted.restore(query, cuts[name])
        else:
            del found.texts[name]
    for name in map(QueryId, cuts):
        if name not in parted and name in plan.queries:
            found.applicator.parted.restore(plan.query(name).query, cuts[name])


def _let_go(found: Recovered, leaving: dict[OperatorId, None], running: set[OperatorId]) -> None:
    """Releases operators without readers at the end of a batch. Those that still run are only not shared again."""
    plan = found.catalog.plan
    gone = [o for o in leaving if plan[o].state is OperatorState.TO_BE_REMOVED]
    leaving.clear()
    kept = _with_readers_inside(found.catalog, gone, running)
    forget(found.catalog, [o for o in gone if o not in kept])
    for operator in kept:
        record = plan[operator]
        if found.catalog.running.get(record.signature) == operator:
            del found.catalog.running[record.signature]
    found.ghosts += kept


def _with_readers_inside(catalog: Catalog, gone: list[OperatorId], running: set[OperatorId]) -> list[OperatorId]:
    """Of operators that go, those that run and all that they read."""
    inside = set(gone)
    found = dict.fromkeys(o for o in gone if o in running)
    stack = list(found)
    while stack:
        for upstream in catalog.plan[stack.pop()].inputs:
            if upstream in inside and upstream not in found:
                found[upstream] = None
                stack.append(upstream)
    return list(found)


def _restore_demands(catalog: Catalog, ledger: Ledger) -> None:
    plan = catalog.plan
    for name, texts in ledger.queries.demands().items():
        running = plan.queries.get(QueryId(name))
        if running is not None:
            demands = parse_demands(", ".join(texts))
            query = replace(running.query, demands=demands)
            plan.queries[query.id] = RunningQuery(query, running.sinks)


def _restore_placements(found: Recovered, placements: Mapping[OperatorId, Placing]) -> None:
    """Puts operators where they are and charges for it. Routes are found again; they need not be the same."""
    catalog, plan = found.catalog, found.catalog.plan
    topology: Topology = catalog.topology
    catalog.ledger.grow()
    for operator, placing in placements.items():
        record = plan.operators.get(operator)
        if record is None or record.state is OperatorState.TO_BE_REMOVED:
            continue
        if placing.pinned:
            record.pin = placing.node
            plan.readers_changed()
        if topology.is_alive(placing.node):
            catalog.put(operator, placing.node)
            catalog.ledger.add(placing.node, *record.charge)
            record.become(OperatorState.PLACED)
            found.why[operator] = placing.why
    _restore_routes(catalog)


def _restore_routes(catalog: Catalog) -> None:
    """Finds routes with room for all edges. In another order other links fill up, so that edges for which nothing was
    left go first in the next try; what is left after the last one is placed anew."""
    plan, nodes = catalog.plan, catalog.placement.nodes
    pairs = [(upstream, operator) for operator in nodes for upstream in dict.fromkeys(plan[operator].inputs)]
    edges = [(u, o) for u, o in pairs if u in nodes and nodes[u] != nodes[o]]
    for tries_left in reversed(range(ROUTING_TRIES)):
        left = [edge for edge in edges if not _found_route(catalog, edge)]
        crowded = [(u, o) for u, o in left if catalog.topology.reachable(nodes[u], nodes[o])]
        if not crowded or not tries_left:
            return
        for edge in edges:
            catalog.release_route(edge)
        edges = list(dict.fromkeys([*crowded, *edges]))


def _found_route(catalog: Catalog, edge: Edge) -> bool:
    """Gives the edge a route with room, if there is one."""
    nodes, need = catalog.placement.nodes, mbps(catalog.plan[edge[0]])
    path = Room(catalog.ledger).path(nodes[edge[0]], nodes[edge[1]], need)
    if path is None:
        return False
    catalog.put_route(edge, path)
    catalog.ledger.add_traffic(path.arcs, need)
    return True


def reopen(catalog: Catalog, log: ChangeLog) -> None:
    """Writes down operators without a place, or without a route to a reader, so that the next batch places them."""
    plan, placement = catalog.plan, catalog.placement
    homeless = {o for o, r in plan.operators.items() if r.state is OperatorState.TO_BE_PLACED}
    for operator, node in list(placement.nodes.items()):
        for upstream in dict.fromkeys(plan[operator].inputs):
            there = placement.nodes.get(upstream)
            if there is not None and there != node and (upstream, operator) not in placement.routes:
                plan[operator].become(OperatorState.TO_BE_REPLACED)
                homeless.add(operator)
                break
    log.write(homeless, (), "the coordinator started again")
