"""Every way in which a placement can be invalid, one at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meander.model.events import QueryAdded
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Sink
from meander.model.placement import Fault, mbps, violations
from meander.model.topology.path_cache import Path
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.place.worlds import query, world


@pytest.fixture
def catalog() -> Catalog:
    """A valid placement with a route."""
    catalog = world(3, slots=20, bandwidth_mbps=1000)
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, query(i, f"q{i}")) for i in range(6)])
    assert violations(catalog.plan, catalog.placement, catalog.topology) == []
    return catalog


def movable(catalog: Catalog) -> OperatorId:
    return next(o for o, r in catalog.plan.operators.items() if r.slots)


def forget(catalog: Catalog) -> None:
    del catalog.placement.nodes[movable(catalog)]


def kill(catalog: Catalog) -> None:
    catalog.topology.nodes.alive[catalog.placement.nodes[movable(catalog)]] = False


def move_sink(catalog: Catalog) -> None:
    sink = next(o for o, r in catalog.plan.operators.items() if isinstance(r.spec, Sink))
    catalog.placement.nodes[sink] = NodeId(0)


def forget_much(catalog: Catalog) -> None:
    catalog.topology.set_capacity(catalog.placement.nodes[movable(catalog)], memory_mb=0.01)


def drop_route(catalog: Catalog) -> None:
    catalog.placement.routes.popitem()


def stale_route(catalog: Catalog) -> None:
    edge, path = next(iter(catalog.placement.routes.items()))
    catalog.placement.routes[edge] = Path(path.nodes[::-1], path.arcs, path.latency_ms)


def cut_route(catalog: Catalog) -> None:
    path = next(iter(catalog.placement.routes.values()))
    catalog.topology.remove_link(catalog.topology.name(path.nodes[0]), catalog.topology.name(path.nodes[1]))


def isolate(catalog: Catalog) -> None:
    path = next(iter(catalog.placement.routes.values()))
    for neighbour in catalog.topology.neighbours(path.nodes[-1]):
        catalog.topology.remove_link(catalog.topology.name(path.nodes[-1]), catalog.topology.name(neighbour))
    catalog.placement.routes.clear()


def keep_removed(catalog: Catalog) -> None:
    catalog.plan[movable(catalog)].state = OperatorState.REMOVED


def keep_unknown(catalog: Catalog) -> None:
    catalog.placement.nodes[OperatorId(9999)] = NodeId(0)


def shrink(catalog: Catalog) -> None:
    catalog.topology.set_capacity(catalog.placement.nodes[movable(catalog)], slots=0)


def slow_down(catalog: Catalog) -> None:
    catalog.topology.set_capacity(catalog.placement.nodes[movable(catalog)], capacity_tps=0.5)


def narrow(catalog: Catalog) -> None:
    (upstream, _), path = next(iter(catalog.placement.routes.items()))
    catalog.topology.arcs.bandwidth_mbps[path.arcs[0]] = mbps(catalog.plan[upstream]) / 2


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (forget, Fault.NOT_PLACED),
        (kill, Fault.DEAD_NODE),
        (move_sink, Fault.MOVED_PIN),
        (drop_route, Fault.BROKEN_ROUTE),
        (stale_route, Fault.BROKEN_ROUTE),
        (cut_route, Fault.BROKEN_ROUTE),
        (isolate, Fault.NO_PATH),
        (keep_removed, Fault.STRAY),
        (keep_unknown, Fault.STRAY),
        (shrink, Fault.TOO_FEW_SLOTS),
        (slow_down, Fault.TOO_MANY_TUPLES),
        (forget_much, Fault.TOO_LITTLE_MEMORY),
        (narrow, Fault.TOO_LITTLE_BANDWIDTH),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_fault_is_found(catalog: Catalog, spoil: Callable[[Catalog], None], fault: Fault) -> None:
    spoil(catalog)
    assert fault in {v.fault for v in violations(catalog.plan, catalog.placement, catalog.topology)}


def test_bandwidth_of_an_operator_adds_up_exactly(catalog: Catalog) -> None:
    rates = [mbps(record) for record in catalog.plan.operators.values()]
    assert sum(rates) - sum(reversed(rates)) == 0.0
    assert all((rate * 2**20).is_integer() for rate in rates)
