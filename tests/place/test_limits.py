"""Bandwidth and memory are limits of every mechanism: what a greedy choice would miss is still placed."""

from __future__ import annotations

import pytest

from meander.lang.sql.script import sql
from meander.model.events import CapacityChanged, ChangeEvent, QueryAdded
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Map, WindowJoin
from meander.model.placement import mbps
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place import physical
from meander.place.catalog import Catalog
from meander.place.costspace.build import build
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from tests.place.test_engine import check_conserved, check_plan, faults

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")
ALL = pytest.mark.parametrize("name", [m.name for m in MECHANISMS])


class Line:
    """device - fog - cloud. The source is on the device and the sink in the cloud."""

    def __init__(self, name: str, *, uplink_mbps: float, slots: int = 10, memory_mb: float = float("inf")) -> None:
        nodes = [
            Node("device", NodeKind.SENSOR, slots, memory_mb=memory_mb),
            Node("fog", NodeKind.EDGE, slots, memory_mb=memory_mb),
            Node("cloud", NodeKind.CLOUD, 100, memory_mb=memory_mb),
        ]
        links = [Link("device", "fog", 1, 100), Link("fog", "cloud", 10, uplink_mbps)]
        streams = {"s": Stream("s", SCHEMA, "ts", ("device",), rate_tps=1000)}
        self.catalog = Catalog(Topology.of(nodes, links), streams, {"out": SinkTarget("out", "cloud")})
        if mechanism(name).metadata.needs_cost_space:
            self.catalog.space = build(self.catalog.topology)
        self.engine = Engine(self.catalog, mechanism(name))

    def add(self, text: str, name: str = "q") -> BatchReport:
        (found,) = sql(text, self.catalog.streams, self.catalog.sinks, name).queries
        return self.run(QueryAdded(0, found))

    def run(self, *events: ChangeEvent) -> BatchReport:
        report = self.engine.run(events)
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        return report

    def operator(self, kind: type) -> OperatorId:
        return next(o for o, r in self.catalog.plan.operators.items() if isinstance(r.spec, kind))

    def nodes(self) -> list[str]:
        placed = self.catalog.placement.nodes
        return [self.catalog.topology.name(placed[o]) for o, r in self.catalog.plan.operators.items() if r.slots]


@ALL
def test_an_operator_is_placed_before_a_link_that_is_too_thin_for_its_input(name: str) -> None:
    line = Line(name, uplink_mbps=0.3)
    report = line.add("SELECT * FROM s WHERE speed < 3 INTO out")
    source = line.catalog.plan[line.catalog.plan[line.operator(Filter)].inputs[0]]
    assert mbps(line.catalog.plan[line.operator(Filter)]) < 0.3 < mbps(source)
    assert report.unplaced == {}
    assert set(line.nodes()) <= {"device", "fog"}


@ALL
def test_a_chain_that_shrinks_late_stays_before_the_thin_link(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written: a rewrite would put the filter first. The map before the filter widens tuples, so a mechanism that
    starts at the cloud must look ahead, or be mended."""
    monkeypatch.setattr(physical, "rewritten", lambda plan, rules: plan)
    line = Line(name, uplink_mbps=0.3)
    text = (
        "SELECT * FROM (SELECT id, speed, speed * 2 AS a, speed * 3 AS b, speed * 4 AS c FROM s) AS t "
        "WHERE a < b INTO out"
    )
    report = line.add(text)
    assert line.operator(Map)
    assert report.unplaced == {}
    assert set(line.nodes()) <= {"device", "fog"}


@ALL
def test_memory_is_a_limit_and_the_reason_says_so(name: str) -> None:
    line = Line(name, uplink_mbps=100.0, memory_mb=2.0)
    text = "SELECT a.id FROM s a JOIN s b ON a.id = b.id WINDOW TUMBLING({span} s) INTO out"
    assert line.add(text.format(span=10), "small").unplaced == {}
    report = line.add(text.format(span=1000), "large")
    large = next(
        r for r in line.catalog.plan.operators.values() if isinstance(r.spec, WindowJoin) and r.memory_mb > 2.0
    )
    assert f"{large.memory_mb:g} MB" in report.unplaced[large.id]
    report = line.run(CapacityChanged(1, "device" if name == "producer_consumer" else "fog", memory_mb=500.0))
    assert report.unplaced == {}


@ALL
def test_less_memory_moves_what_no_longer_fits(name: str) -> None:
    line = Line(name, uplink_mbps=100.0, memory_mb=100.0)
    line.add("SELECT a.id FROM s a JOIN s b ON a.id = b.id WINDOW TUMBLING(100 s) INTO out")
    join = line.operator(WindowJoin)
    where = line.catalog.topology.name(line.catalog.placement.nodes[join])
    report = line.run(CapacityChanged(1, where, memory_mb=1.0))
    assert report.unplaced == {}
    assert line.catalog.topology.name(line.catalog.placement.nodes[join]) != where
