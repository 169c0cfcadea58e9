"""The difference that a batch makes, compared with a catalog that was copied before."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meander.model.events import CapacityChanged, ChangeEvent, LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.model.operators import Filter, Sink
from meander.model.topology.elements import Link
from meander.place.catalog import Catalog
from meander.place.difference import Difference
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.validate import validate
from tests.place.amenders.test_amendment import Diamond
from tests.place.worlds import EDGES, SENSORS, query, world


def test_an_operator_that_waited_and_is_removed_is_in_the_difference() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    gone = set(diamond.catalog.plan.operators)
    lost = diamond.run(LinkRemoved(0, "sensor", "left"), LinkRemoved(0, "sensor", "right"))
    assert lost.difference.lost
    assert lost.unplaced == dict(lost.difference.waiting)
    report = diamond.run(QueryRemoved(0, QueryId("q")))
    assert set(report.difference.removed) == gone
    assert {o for o, node in report.difference.removed.items() if node is None} == set(lost.difference.lost)


def test_an_operator_that_is_placed_anew_on_its_node_has_its_other_route_in_the_difference() -> None:
    diamond = Diamond(right_ms=1.0)
    diamond.run(diamond.added())
    plan, edge = diamond.catalog.plan, (diamond.operator(Filter), diamond.operator(Sink))
    before = diamond.catalog.placement.routes[edge]
    diamond.catalog.topology.connect([(before.nodes[0], diamond.catalog.topology.id("right"))], Link("x", "y", 1))
    plan[edge[0]].pin = before.nodes[0]
    report = diamond.run(LinkRemoved(0, diamond.catalog.topology.name(before.nodes[0]), "cloud"))
    assert edge[0] not in report.difference.moved
    assert report.difference.rerouted[edge] == diamond.catalog.placement.routes[edge] != before


@given(st.integers(0, 10_000))
@example(55)  # others on a broken edge's way moved, and the edge itself got no route
@example(91)
@settings(max_examples=60)
def test_the_difference_applied_to_what_was_gives_what_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    catalog = world(seed % 50, slots=2, bandwidth_mbps=1.0)
    engine = Engine(catalog, mechanism("bottom_up"))
    told: list[Difference] = []
    engine.listener = told.append
    nodes, routes = dict(catalog.placement.nodes), dict(catalog.placement.routes)
    for number in range(12):
        report = engine.run(_events(catalog, rng, number))
        difference = report.difference
        assert told[-1] is difference
        for operator in (*difference.lost, *difference.removed):
            nodes.pop(operator, None)
        nodes.update(difference.gained)
        nodes.update((o, there) for o, (_, there) in difference.moved.items())
        routes |= {e: path for e, path in difference.rerouted.items() if path is not None}
        for edge in [e for e, path in difference.rerouted.items() if path is None]:
            routes.pop(edge, None)
        assert nodes == catalog.placement.nodes
        assert routes == catalog.placement.routes
        assert difference.waiting.keys().isdisjoint(nodes)
        assert {o: r.reason for o, r in catalog.plan.operators.items() if o not in nodes}.items() >= {
            **difference.waiting
        }.items()
        assert validate(catalog) == []


def _events(catalog: Catalog, rng: np.random.Generator, number: int) -> list[ChangeEvent]:
    queries = list(catalog.plan.queries)
    match int(rng.integers(4)):
        case 0 if queries:
            return [QueryRemoved(0, QueryId(str(rng.choice(queries))))]
        case 1:
            sensor = f"s{rng.integers(SENSORS)}"
            here = [link.target for link in catalog.topology.links() if link.source == sensor]
            there = f"e{rng.integers(EDGES)}"
            return [*(LinkRemoved(0, sensor, t) for t in here), LinkAdded(0, Link(sensor, there, 1.0, 1.0))]
        case 2:
            return [CapacityChanged(0, f"e{rng.integers(EDGES)}", slots=int(rng.integers(3)))]
        case _:
            return [QueryAdded(0, query(int(rng.integers(300)), f"q{number}"))]
