"""Eviction: what leaves a node that holds too much leaves from the ends, so that data does not go to and fro."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.lang.sql.script import sql
from meander.model.events import CapacityChanged, ChangeEvent, PlacementChanged, QueryAdded, RateChanged
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Map, Source
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place import physical
from meander.place.amenders.eviction import leaving
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import mechanism
from tests.place.test_engine import check_conserved, check_plan, faults

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")


@pytest.fixture(autouse=True)
def as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains are as long as they are written: rewrites would merge them."""
    monkeypatch.setattr(physical, "rewritten", lambda plan, rules: plan)


def chain(length: int) -> str:
    """Maps and filters in turn, each above the one before."""
    text = "s"
    for i in range(length):
        column = f"v{i - 1}" if i else "speed"
        inner = text if text == "s" else f"({text}) AS t{i}"
        text = f"SELECT id, ts, {column} * {i + 2} AS v{i} FROM {inner}" + (f" WHERE {column} < {i}" if i % 2 else "")
    return f"{text} INTO out"


class Row:
    """device with the source - edge - gateway - cloud with the sink."""

    def __init__(self, name: str = "bottom_up", *, slots: tuple[int, int, int, int] = (0, 40, 40, 400)) -> None:
        kinds = (NodeKind.SENSOR, NodeKind.EDGE, NodeKind.EDGE, NodeKind.CLOUD)
        names = ("device", "edge", "gateway", "cloud")
        nodes = [Node(n, kind, s) for n, kind, s in zip(names, kinds, slots, strict=True)]
        links = [Link(a, b, 5) for a, b in pairwise(names)]
        streams = {"s": Stream("s", SCHEMA, "ts", ("device",), rate_tps=100)}
        self.catalog = Catalog(Topology.of(nodes, links), streams, {"out": SinkTarget("out", "cloud")})
        self.engine = Engine(self.catalog, mechanism(name))

    def run(self, *events: ChangeEvent) -> BatchReport:
        report = self.engine.run(events)
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        return report

    def add(self, text: str, name: str = "q") -> BatchReport:
        (found,) = sql(text, self.catalog.streams, self.catalog.sinks, name).queries
        return self.run(QueryAdded(0, found))

    def nodes_on_ways(self) -> list[list[str]]:
        """Nodes of the operators on each way from the source to a sink."""
        plan, placed, name = self.catalog.plan, self.catalog.placement.nodes, self.catalog.topology.name
        found: list[list[str]] = []
        stack: list[list[OperatorId]] = [[o] for o, r in plan.operators.items() if isinstance(r.spec, Source)]
        while stack:
            way = stack.pop()
            stack.extend([*way, reader] for reader in plan[way[-1]].readers)
            if not plan[way[-1]].readers:
                found.append([name(placed[o]) for o in way])
        return sorted(found)

    def changes(self) -> int:
        """The most changes of node along a way."""
        return max(sum(a != b for a, b in pairwise(way)) for way in self.nodes_on_ways())


def test_the_last_operator_of_a_chain_leaves_and_not_the_heaviest() -> None:
    row = Row()
    row.add(chain(4))
    assert row.nodes_on_ways() == [["device", "edge", "edge", "edge", "edge", "edge", "edge", "cloud"]]
    report = row.run(CapacityChanged(0, "edge", slots=5))
    assert len(report.moves) == 1
    assert row.nodes_on_ways() == [["device", "edge", "edge", "edge", "edge", "edge", "gateway", "cloud"]]


def test_the_first_operator_leaves_where_the_sink_is() -> None:
    row = Row("top_down")
    row.add(chain(4))
    assert row.changes() == 1
    report = row.run(CapacityChanged(0, "cloud", slots=4))
    assert len(report.moves) == 2
    assert row.nodes_on_ways() == [["device", "gateway", "gateway", "cloud", "cloud", "cloud", "cloud", "cloud"]]


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["bottom_up", "top_down", "ilp", "mdcep", "global_optimal"]),
    length=st.integers(1, 6),
    queries=st.integers(1, 3),
    cuts=st.lists(
        st.tuples(
            st.sampled_from(["edge", "gateway", "cloud"]), st.integers(0, 8), st.sampled_from([60.0, 250.0, None])
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_an_eviction_adds_at_most_one_change_of_node(
    name: str, length: int, queries: int, cuts: list[tuple[str, int, float | None]]
) -> None:
    """There is room on all other nodes; a node gets its room back before the next one is cut."""
    row = Row(name)
    for number in range(queries):
        row.add(chain(length + number), f"q{number}")
    for node, slots, tps in cuts:
        before = row.changes()
        report = row.run(CapacityChanged(0, node, slots=slots, capacity_tps=tps))
        assert report.unplaced == {}
        assert row.changes() <= before + 1, row.nodes_on_ways()
        assert not leaving(row.catalog, row.catalog.topology.id(node))
        assert row.run(CapacityChanged(1, node, slots=40, capacity_tps=float("inf"))).moves == []


def test_no_more_leave_than_must_and_rates_count() -> None:
    row = Row()
    row.run(CapacityChanged(0, "edge", capacity_tps=250.0))
    for number in range(2):
        row.add(f"SELECT * FROM s WHERE speed < {number + 1} INTO out", f"q{number}")
    assert row.run(RateChanged(0, "s", 120.0)).moves == []
    report = row.run(RateChanged(0, "s", 130.0))
    assert len(report.moves) == 1
    assert row.catalog.ledger.load_tps[row.catalog.topology.id("edge")] == 130.0


def test_an_operator_that_somebody_holds_there_leaves_last() -> None:
    row = Row()
    row.add(chain(3))
    held = next(o for o, r in row.catalog.plan.operators.items() if isinstance(r.spec, Filter))
    row.run(PlacementChanged(0, held, "edge"))
    row.run(CapacityChanged(0, "edge", slots=1))
    edge = row.catalog.topology.id("edge")
    assert row.catalog.on_node[edge] == {held}


@pytest.mark.parametrize("slots", range(7))
def test_what_leaves_is_enough_and_ends_of_the_chain(slots: int) -> None:
    row = Row()
    row.add(chain(4))
    edge = row.catalog.topology.id("edge")
    order = [o for o, r in row.catalog.plan.operators.items() if isinstance(r.spec, Map | Filter)]
    row.catalog.topology.set_capacity(edge, slots=slots)
    assert sorted(leaving(row.catalog, edge)) == order[slots:]
