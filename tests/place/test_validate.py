"""A catalog that is not sound is told apart from one that is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meander.model.events import QueryAdded
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.validate import validate
from tests.place.worlds import query, world


def sound() -> Catalog:
    catalog = world(3, slots=3, bandwidth_mbps=1000)
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, query(i, f"q{i}")) for i in range(4)])
    return catalog


def _first(catalog: Catalog) -> OperatorId:
    return next(o for o, r in catalog.plan.operators.items() if r.slots and o in catalog.placement.nodes)


def _lift_silently(catalog: Catalog) -> None:
    catalog.placement.nodes.pop(_first(catalog))


def _forget_index(catalog: Catalog) -> None:
    catalog.on_node[catalog.placement.nodes[_first(catalog)]].discard(_first(catalog))


def _forget_arc(catalog: Catalog) -> None:
    catalog.on_arc.pop(next(iter(catalog.on_arc)))


def _charge_twice(catalog: Catalog) -> None:
    catalog.ledger.slots[catalog.placement.nodes[_first(catalog)]] += 1


def _charge_load(catalog: Catalog) -> None:
    catalog.ledger.load_tps[catalog.placement.nodes[_first(catalog)]] += 1


def _charge_link(catalog: Catalog) -> None:
    catalog.ledger.mbps[next(iter(catalog.on_arc))] += 1


def _kill_node(catalog: Catalog) -> None:
    catalog.topology.remove_node(catalog.placement.nodes[_first(catalog)])


def _wait_without_reason(catalog: Catalog) -> None:
    operator = _first(catalog)
    node = catalog.lift(operator)
    assert node is not None
    for edge in catalog.plan.edges_of(operator):
        catalog.release_route(edge)
    catalog.ledger.add(NodeId(node), -1, -catalog.plan[operator].load_tps)
    catalog.plan[operator].become(OperatorState.TO_BE_REPLACED)
    catalog.plan[operator].become(OperatorState.TO_BE_PLACED)
    catalog.plan[operator].reason = None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_lift_silently, "is placed, but has no place"),
        (_forget_index, "is said to hold operators"),
        (_forget_arc, "is said to carry edges"),
        (_charge_twice, "operators, but holds"),
        (_charge_load, "tuples/s, but takes in"),
        (_charge_link, "Mbit/s, but carries"),
        (_kill_node, "which is gone"),
        (_wait_without_reason, "no reason known"),
    ],
)
def test_what_is_wrong_is_named(spoil: Callable[[Catalog], None], words: str) -> None:
    catalog = sound()
    assert validate(catalog) == []
    spoil(catalog)
    assert any(words in fault for fault in validate(catalog))
