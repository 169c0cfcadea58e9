"""Amending: partial and failed results, another try when room comes back, bandwidth, and re-routing alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.baselines.placement import whole_plans
from meander.lang.sql.script import sql
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    RateChanged,
)
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Filter, Sink
from meander.model.placement import mbps
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine, Result
from meander.place.mechanisms import mechanism
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.problem import Problem, Proposal
from tests.place.test_engine import check_conserved, check_plan, faults
from tests.place.worlds import query, world

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")


class Diamond:
    """sensor - left - cloud, sensor - right - cloud; right is slower."""

    def __init__(
        self, *, slots: int = 10, left_mbps: float = 100.0, right_ms: float = 2.0, detour: float | None = None
    ) -> None:
        nodes = [
            Node("sensor", NodeKind.SENSOR, 0),
            Node("left", NodeKind.EDGE, slots),
            Node("right", NodeKind.EDGE, slots),
            Node("cloud", NodeKind.CLOUD, 0),
        ]
        links = [
            Link("sensor", "left", 1, left_mbps),
            Link("left", "cloud", 1, left_mbps),
            Link("sensor", "right", right_ms, 100),
            Link("right", "cloud", right_ms, 100),
        ]
        streams = {"s": Stream("s", SCHEMA, "ts", ("sensor",), rate_tps=100)}
        self.catalog = Catalog(Topology.of(nodes, links), streams, {"out": SinkTarget("out", "cloud")})
        self.engine = Engine(self.catalog, mechanism("bottom_up"), detour=detour)

    def added(self, name: str = "q", text: str = "SELECT * FROM s WHERE speed < 3 INTO out") -> QueryAdded:
        (found,) = sql(text, self.catalog.streams, self.catalog.sinks, name).queries
        return QueryAdded(0, found)

    def run(self, *events: ChangeEvent) -> BatchReport:
        report = self.engine.run(events)
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        return report

    def operator(self, kind: type) -> OperatorId:
        return next(o for o, r in self.catalog.plan.operators.items() if isinstance(r.spec, kind))

    def node_of(self, kind: type) -> str | None:
        node = self.catalog.placement.nodes.get(self.operator(kind))
        return None if node is None else self.catalog.topology.name(node)

    def way(self) -> list[list[str]]:
        name = self.catalog.topology.name
        return sorted([name(n) for n in path.nodes] for path in self.catalog.placement.routes.values())


def test_what_does_not_fit_waits_with_its_reason_and_is_placed_when_room_comes() -> None:
    diamond = Diamond(slots=0)
    report = diamond.run(diamond.added())
    assert report.results[Result.PARTIAL] == 1
    assert "no room for 1 slots" in report.unplaced[diamond.operator(Filter)]
    assert diamond.node_of(Filter) is None
    assert diamond.node_of(Sink) == "cloud"
    report = diamond.run(CapacityChanged(0, "right", slots=1))
    assert report.results == {Result.SUCCESS: 1, Result.PARTIAL: 0, Result.FAILED: 0}
    assert diamond.node_of(Filter) == "right"
    assert diamond.engine.log.waiting == []


def test_a_waiting_operator_does_not_keep_others_from_being_placed() -> None:
    diamond = Diamond(slots=1)
    diamond.run(diamond.added("one"), diamond.added("two", "SELECT * FROM s WHERE speed < 4 INTO out"))
    report = diamond.run(diamond.added("three", "SELECT * FROM s WHERE speed < 5 INTO out"))
    assert len(report.unplaced) == 1
    assert len(diamond.catalog.placement.nodes) == len(diamond.catalog.plan.operators) - 1


def test_a_pinned_node_that_is_gone_is_named_until_it_comes_back() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    left = diamond.catalog.topology.node(diamond.catalog.topology.id("left"))
    diamond.run(PlacementChanged(0, diamond.operator(Filter), "left"))
    report = diamond.run(NodeRemoved(0, "left"))
    assert report.unplaced == {diamond.operator(Filter): "its node left is gone"}
    links = [Link("sensor", "left", 1, 100), Link("left", "cloud", 1, 100)]
    diamond.run(NodeAdded(1, left), *(LinkAdded(1, link) for link in links))
    assert diamond.node_of(Filter) == "left"


def test_a_released_operator_goes_where_the_mechanism_wants_it() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    chosen = diamond.node_of(Filter)
    assert chosen is not None
    other = next(name for name in ("left", "right", "cloud") if name != chosen)
    diamond.run(PlacementChanged(0, diamond.operator(Filter), other))
    diamond.run(NodeRemoved(0, other))
    diamond.run(PlacementChanged(1, diamond.operator(Filter)))
    assert diamond.node_of(Filter) == chosen
    diamond.run(NodeRemoved(2, chosen))
    assert diamond.node_of(Filter) not in (chosen, other)


def test_a_partition_leaves_the_operators_unplaced_and_heals() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    report = diamond.run(NodeRemoved(0, "left"), LinkRemoved(0, "right", "cloud"))
    assert report.unplaced
    assert any("cloud" in reason for reason in report.unplaced.values())
    diamond.run(LinkAdded(0, Link("right", "cloud")))
    assert diamond.node_of(Filter) == "right"


def test_only_the_path_changes_when_only_the_path_broke() -> None:
    diamond = Diamond(slots=0)
    topology = diamond.catalog.topology
    topology.set_capacity(topology.id("sensor"), slots=1)
    diamond.run(diamond.added())
    assert (diamond.node_of(Filter), diamond.way()) == ("sensor", [["sensor", "left", "cloud"]])
    report = diamond.run(LinkRemoved(0, "left", "cloud"))
    assert report.moves == []
    assert report.rerouted == [(diamond.operator(Filter), diamond.operator(Sink))]
    assert diamond.way() == [["sensor", "right", "cloud"]]


def test_an_operator_moves_when_the_way_round_takes_too_long() -> None:
    diamond = Diamond(right_ms=2.0, detour=1.2)
    diamond.run(diamond.added())
    assert diamond.node_of(Filter) == "left"
    report = diamond.run(LinkRemoved(0, "left", "cloud"))
    assert [m.operator for m in report.moves] == [diamond.operator(Filter)]
    assert report.moves[0].cause == (
        "link left to cloud removed; a detour of 6.0 ms would be 1.5 times a fresh placement (limit 1.2)"
    )
    assert diamond.node_of(Filter) == "right"


def test_an_operator_stays_when_the_way_round_is_short_enough_and_the_reason_says_so() -> None:
    diamond = Diamond(right_ms=2.0, detour=1.5)
    diamond.run(diamond.added())
    report = diamond.run(LinkRemoved(0, "left", "cloud"))
    edge = (diamond.operator(Filter), diamond.operator(Sink))
    assert (report.moves, report.rerouted) == ([], [edge])
    assert report.route_causes == {
        edge: "link left to cloud removed; the detour of 6.0 ms is 1.5 times a fresh placement (limit 1.5)"
    }


def test_routes_go_around_links_that_are_full() -> None:
    diamond = Diamond(left_mbps=0.03)
    topology = diamond.catalog.topology
    topology.set_capacity(topology.id("sensor"), slots=5)
    diamond.run(diamond.added("one"), diamond.added("two", "SELECT * FROM s WHERE speed < 4 INTO out"))
    need = mbps(diamond.catalog.plan[diamond.operator(Filter)])
    assert 0.015 < need < 0.03
    assert diamond.way() == [["sensor", "left", "cloud"], ["sensor", "right", "cloud"]]


def test_a_rate_that_no_longer_fits_a_link_sends_its_edge_elsewhere() -> None:
    diamond = Diamond(left_mbps=0.05)
    topology = diamond.catalog.topology
    topology.set_capacity(topology.id("sensor"), slots=5)
    diamond.run(diamond.added())
    assert diamond.way() == [["sensor", "left", "cloud"]]
    diamond.run(RateChanged(0, "s", 1000.0))
    assert diamond.way() == [["sensor", "right", "cloud"]]


def test_too_little_bandwidth_everywhere_is_the_reason_given() -> None:
    diamond = Diamond(left_mbps=0.001)
    diamond.run(LinkRemoved(0, "right", "cloud"))
    report = diamond.run(diamond.added())
    assert any("Mbit/s left leads from" in reason for reason in report.unplaced.values())


class Broken(Mechanism):
    name = "broken"
    metadata = Metadata((), "raises or chooses badly")

    def __init__(self, node: NodeId | None) -> None:
        self.node = node

    def place(self, problem: Problem) -> Proposal:
        if self.node is None:
            raise ZeroDivisionError("by accident")
        return Proposal(dict.fromkeys(problem.free, self.node))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (None, "mechanism broken failed: by accident"),
        (NodeId(3), "mechanism broken chose node cloud, which has no room for it"),
    ],
)
def test_a_mechanism_is_not_trusted(node: NodeId | None, reason: str) -> None:
    diamond = Diamond()
    diamond.engine.mechanism = Broken(node)
    report = diamond.run(diamond.added())
    assert reason in report.unplaced.values()
    diamond.engine.mechanism = mechanism("bottom_up")
    assert diamond.run(CapacityChanged(0, "left", slots=9)).unplaced == {}
    assert diamond.node_of(Filter) == "left"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3]), st.sampled_from([0.05, 0.15, 0.3, 1.0]), st.data())
def test_incremental_is_valid_whenever_holistic_is(
    seed: int, slots: int, bandwidth_mbps: float, data: st.DataObject
) -> None:
    """Both see the same batches; where re-placing everything places all, so does re-placing what broke.

    Slots are scarce and links are thin, so that often only a reshuffle of what runs makes room.
    """
    catalogs = [world(seed, slots=slots, bandwidth_mbps=bandwidth_mbps) for _ in range(2)]
    engines = [
        Engine(catalogs[0], mechanism("bottom_up")),
        Engine(catalogs[1], mechanism("bottom_up"), widening=whole_plans),
    ]
    names = 0
    for _ in range(4):
        batch: list[ChangeEvent] = []
        for number in data.draw(st.lists(st.integers(0, 40), max_size=2)):
            names += 1
            batch.append(QueryAdded(0, query(number, f"q{names}")))
        links = [link for link in catalogs[0].topology.links() if link.source.startswith("s")]
        for link in data.draw(
            st.lists(st.sampled_from(links), max_size=2, unique_by=lambda x: x.source) if links else st.just([])
        ):
            batch += [LinkRemoved(0, link.source, link.target), LinkAdded(0, _moved(link))]
        for engine in engines:
            engine.run(batch)
        waiting = [{o for o in c.plan.operators if o not in c.placement.nodes} for c in catalogs]
        assert [faults(c) for c in catalogs] == [[], []]
        if not waiting[1]:
            assert not waiting[0]


def _moved(link: Link) -> Link:
    """The same link to the next edge."""
    target = f"e{(int(link.target[1:]) + 1) % 4}"
    return Link(link.source, target, link.latency_ms, link.bandwidth_mbps)
