"""Applying batches: several changes to the same things at once, seen where they end up."""

from __future__ import annotations

from meander.model.events import (
    CapacityChanged,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import QueryId
from meander.model.operators import Filter, Sink, Source
from meander.model.topology.elements import Link, Node, NodeKind
from tests.place.amenders.test_amendment import Diamond


def test_a_node_and_its_links_removed_in_one_batch() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    report = diamond.run(LinkRemoved(0, "left", "cloud"), LinkRemoved(0, "sensor", "left"), NodeRemoved(0, "left"))
    assert [m.operator for m in report.moves] == [diamond.operator(Filter)]
    assert diamond.node_of(Filter) == "right"
    assert not diamond.catalog.on_node.get(diamond.catalog.topology.known_id("left"))


def test_a_node_that_comes_back_smaller_keeps_what_still_fits() -> None:
    diamond = Diamond(slots=2)
    diamond.run(diamond.added("one"), diamond.added("two", "SELECT * FROM s WHERE speed < 4 INTO out"))
    links = [Link("sensor", "left", 1, 100), Link("left", "cloud", 1, 100)]
    smaller = NodeAdded(0, Node("left", NodeKind.EDGE, 1))
    diamond.run(NodeRemoved(0, "left"), smaller, *(LinkAdded(0, link) for link in links))
    left = diamond.catalog.topology.id("left")
    assert sum(diamond.catalog.plan[o].slots for o in diamond.catalog.on_node[left]) == 1


def test_nodes_that_make_the_topology_outgrow_its_columns_are_added() -> None:
    diamond = Diamond()
    diamond.run(*(NodeAdded(0, Node(f"more-{n}", NodeKind.EDGE, 1)) for n in range(20)))
    assert len(diamond.catalog.topology) == 24
    assert len(diamond.catalog.ledger.slots) >= 24


def test_a_sensor_that_moves_within_a_batch_is_re_routed_alone() -> None:
    diamond = Diamond(right_ms=1.0)
    diamond.catalog.topology.remove_link("sensor", "right")
    diamond.run(diamond.added())
    topology = diamond.catalog.topology
    topology.set_capacity(topology.id("cloud"), slots=5)
    diamond.run(CapacityChanged(0, "left", slots=0), CapacityChanged(0, "right", slots=0))
    assert diamond.node_of(Filter) == "cloud"
    report = diamond.run(LinkRemoved(0, "sensor", "left"), LinkAdded(0, Link("sensor", "right", 1.0)))
    assert report.moves == []
    assert report.rerouted == [(diamond.operator(Source), diamond.operator(Filter))]


def test_less_capacity_moves_the_heaviest_first_and_no_more_than_needed() -> None:
    diamond = Diamond(slots=3)
    texts = [f"SELECT * FROM s WHERE speed < {i} INTO out" for i in range(3)]
    diamond.run(*(diamond.added(f"q{i}", text) for i, text in enumerate(texts)))
    report = diamond.run(CapacityChanged(0, "left", slots=2))
    assert len(report.moves) == 1
    report = diamond.run(CapacityChanged(0, "left", slots=2, capacity_tps=100.0))
    assert len(report.moves) == 1


def test_a_new_rate_changes_loads_all_the_way_down() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    plan = diamond.catalog.plan
    before = {o: (r.load_tps, r.rate_tps) for o, r in plan.operators.items()}
    diamond.run(RateChanged(0, "s", 200.0, "sensor"))
    assert {o: (r.load_tps, r.rate_tps) for o, r in plan.operators.items()} == {
        o: (2 * load, 2 * rate) for o, (load, rate) in before.items()
    }
    diamond.run(diamond.added("later", "SELECT * FROM s WHERE speed < 9 INTO out"))
    later = next(o for o in plan.serving(QueryId("later")) if isinstance(plan[o].spec, Filter))
    assert plan[later].load_tps == 200.0


def test_a_new_rate_reaches_a_source_that_waits_and_what_runs_behind_it() -> None:
    """It came back with its former rate: its links carried more than was booked, which a restart then counted."""
    diamond = Diamond()
    diamond.run(diamond.added())
    plan, topology = diamond.catalog.plan, diamond.catalog.topology
    link = next(link for link in topology.links() if {link.source, link.target} == {"sensor", "left"})
    node = topology.node(topology.id("sensor"))
    diamond.run(NodeRemoved(0, "sensor"))
    diamond.run(RateChanged(0, "s", 200.0))
    diamond.run(NodeAdded(0, node), LinkAdded(0, link))
    assert (plan[diamond.operator(Source)].rate_tps, plan[diamond.operator(Filter)].load_tps) == (200.0, 200.0)


def test_a_new_rate_counts_for_a_query_of_the_same_batch_whichever_comes_first() -> None:
    diamond = Diamond()
    diamond.run(diamond.added(), RateChanged(0, "s", 200.0))
    plan = diamond.catalog.plan
    assert (plan[diamond.operator(Source)].rate_tps, plan[diamond.operator(Filter)].load_tps) == (200.0, 200.0)


def test_changed_demands_are_kept_and_move_nothing() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    report = diamond.run(DemandChanged(0, QueryId("q"), ()))
    assert (report.moves, report.deltas) == ([], 0)
    assert diamond.catalog.plan.query(QueryId("q")).query.demands == ()


def test_a_query_that_is_replaced_under_its_name_in_one_batch() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    other = diamond.added("q", "SELECT * FROM s WHERE speed > 30 INTO out")
    diamond.run(QueryRemoved(0, QueryId("q")), other)
    assert list(diamond.catalog.plan.queries) == ["q"]
    assert sum(isinstance(r.spec, Sink) for r in diamond.catalog.plan.operators.values()) == 1
    assert isinstance(other, QueryAdded)
