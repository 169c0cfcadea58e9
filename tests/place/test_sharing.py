"""Query sharing: what a new query adds to what runs, and what its removal takes away again."""

from __future__ import annotations

import pytest

from meander.lang.sql.script import sql
from meander.model.events import ChangeEvent, PlacementChanged, QueryAdded, QueryRemoved
from meander.model.global_plan import OperatorState
from meander.model.ids import QueryId
from meander.model.operators import describe, kind_of
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog, SharingPolicy
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import mechanism
from tests.place.test_engine import check_conserved, check_plan, faults

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")


def catalog(sharing: SharingPolicy = SharingPolicy.PARTIAL) -> Catalog:
    """a - edge - cloud, b - edge"""
    nodes = [Node(n, NodeKind.SENSOR, 8) for n in "ab"]
    nodes += [Node("edge", NodeKind.EDGE, 50), Node("cloud", NodeKind.CLOUD, 50)]
    links = [Link("a", "edge"), Link("b", "edge"), Link("edge", "cloud")]
    streams = {n: Stream(n, SCHEMA, "ts", (n,), rate_tps=10) for n in "ab"}
    sinks = {n: SinkTarget(n, "cloud") for n in ("out", "other")}
    return Catalog(Topology.of(nodes, links), streams, sinks, sharing=sharing)


class World:
    def __init__(self, sharing: SharingPolicy = SharingPolicy.PARTIAL) -> None:
        self.catalog = catalog(sharing)
        self.engine = Engine(self.catalog, mechanism("bottom_up"))

    def query(self, name: str, text: str) -> Query:
        (query,) = sql(text, self.catalog.streams, self.catalog.sinks, name).queries
        return query

    def run(self, *events: ChangeEvent) -> BatchReport:
        report = self.engine.run(events)
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        return report

    def add(self, name: str, text: str) -> BatchReport:
        return self.run(QueryAdded(0, self.query(name, text)))

    def remove(self, name: str) -> BatchReport:
        return self.run(QueryRemoved(0, QueryId(name)))

    def kinds(self) -> list[str]:
        return sorted(kind_of(r.spec) for r in self.catalog.plan.operators.values())


SLOW = "SELECT id, speed FROM a WHERE speed < 3 INTO out"


@pytest.mark.parametrize("sharing", SharingPolicy)
def test_an_equal_query_adds_only_its_sink(sharing: SharingPolicy) -> None:
    world = World(sharing)
    world.add("one", SLOW)
    assert world.kinds() == ["filter", "map", "sink", "source"]
    assert [m.target for m in world.add("two", SLOW).moves] == [world.catalog.topology.id("cloud")]
    assert world.kinds() == ["filter", "map", "sink", "sink", "source"]
    assert len(world.remove("one").moves) == 1
    assert world.kinds() == ["filter", "map", "sink", "source"]
    world.remove("two")
    assert world.kinds() == []


def test_a_common_part_is_run_once() -> None:
    world = World()
    world.add("one", SLOW)
    report = world.add("two", "SELECT id, speed * 2 AS double_speed FROM a WHERE speed < 3 INTO other")
    assert sorted(kind_of(world.catalog.plan[m.operator].spec) for m in report.moves) == ["map", "sink"]
    assert world.kinds() == ["filter", "map", "map", "sink", "sink", "source"]
    assert len(world.catalog.plan.plans) == 1


def test_complete_sharing_takes_all_or_nothing() -> None:
    world = World(SharingPolicy.COMPLETE)
    world.add("one", SLOW)
    world.add("two", "SELECT id, speed * 2 AS double_speed FROM a WHERE speed < 3 INTO other")
    assert world.kinds() == ["filter", "filter", "map", "map", "sink", "sink", "source", "source"]
    assert len(world.catalog.plan.plans) == 2


def test_the_same_predicate_written_differently_is_shared() -> None:
    world = World()
    world.add("one", "SELECT id, speed FROM a WHERE speed < 3 AND id > 7 INTO out")
    report = world.add("two", "SELECT id, speed FROM a WHERE 7 < id AND NOT speed >= 3 INTO out")
    assert len(report.moves) == 1


def test_columns_with_other_names_are_read_under_the_running_names() -> None:
    world = World()
    window = "FROM a GROUP BY id WINDOW TUMBLING(1 s)"
    world.add("one", f"SELECT id, max(speed) AS fast {window} INTO out")
    report = world.add("two", f"SELECT w FROM (SELECT id AS i, max(speed) AS w {window}) WHERE w > 5 INTO other")
    added = sorted(describe(world.catalog.plan[m.operator].spec) for m in report.moves)
    assert added[0].startswith("filter fast > ")
    assert [text.split()[0] for text in added] == ["filter", "map", "sink"]
    assert world.kinds().count("source") == 1


def test_a_query_joins_two_shared_plans_and_its_removal_splits_them() -> None:
    world = World()
    plan = world.catalog.plan
    world.add("one", SLOW)
    world.add("two", "SELECT id, speed FROM b WHERE speed < 3 INTO out")
    assert len(plan.plans) == 2
    both = "SELECT id, speed FROM a WHERE speed < 3 UNION ALL SELECT id, speed FROM b WHERE speed < 3 INTO other"
    report = world.add("both", both)
    assert sorted(kind_of(plan[m.operator].spec) for m in report.moves) == ["sink", "union"]
    assert len(plan.plans) == 1
    world.remove("both")
    assert len(plan.plans) == 2
    assert {plan.plan_of(o) for o in plan.serving(QueryId("one"))} != {
        plan.plan_of(o) for o in plan.serving(QueryId("two"))
    }


def test_a_query_removed_in_the_batch_that_adds_it_leaves_nothing() -> None:
    world = World()
    report = world.run(QueryAdded(0, world.query("one", SLOW)), QueryRemoved(0, QueryId("one")))
    assert report.moves == []
    assert world.kinds() == []
    assert not world.catalog.running


def test_a_query_removed_while_its_addition_waits_leaves_nothing() -> None:
    world = World()
    topology = world.catalog.topology
    for node in topology.ids():
        topology.set_capacity(node, slots=0)
    report = world.add("one", SLOW)
    assert report.unplaced
    assert world.engine.log.waiting
    world.remove("one")
    assert world.kinds() == []
    world.run()
    assert not world.engine.log.waiting


def test_operators_about_to_be_removed_are_taken_over_without_moving() -> None:
    world = World()
    world.add("one", SLOW)
    before = dict(world.catalog.placement.nodes)
    report = world.run(QueryRemoved(0, QueryId("one")), QueryAdded(0, world.query("two", SLOW)))
    kept = set(before) & set(world.catalog.placement.nodes)
    assert len(kept) == 3
    assert all(world.catalog.placement.nodes[o] == before[o] for o in kept)
    assert {m.operator for m in report.moves}.isdisjoint(kept)
    assert all(r.state is OperatorState.PLACED for r in world.catalog.plan.operators.values())


def test_a_taken_over_operator_goes_where_it_was_pinned_meanwhile() -> None:
    world = World()
    world.add("one", SLOW)
    operator = next(o for o, r in world.catalog.plan.operators.items() if kind_of(r.spec) == "filter")
    world.run(
        PlacementChanged(0, operator, "cloud"),
        QueryRemoved(0, QueryId("one")),
        QueryAdded(0, world.query("two", SLOW)),
    )
    assert world.catalog.placement.nodes[operator] == world.catalog.topology.id("cloud")
