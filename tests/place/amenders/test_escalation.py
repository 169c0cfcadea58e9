"""Escalation: what could run somewhere runs, whatever happened before, and what runs is not disturbed for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meander.lang.sql.script import sql
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    QueryAdded,
    QueryRemoved,
)
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import Filter
from meander.model.placement import mbps
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.costspace.build import build
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from tests.place.test_engine import check_conserved, check_plan, faults

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")
NAMES = [m.name for m in MECHANISMS]
ALL = pytest.mark.parametrize("name", NAMES)
TEXTS = (
    "SELECT * FROM s0 WHERE speed < 1 INTO out0",
    "SELECT * FROM s0 WHERE speed < 1 INTO out1",
    "SELECT * FROM s0 WHERE speed < 2 INTO out1",
    "SELECT id, speed * 2 AS v FROM s1 WHERE speed < 1 INTO out0",
    "SELECT id, count(*) AS n FROM s1 GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO out1",
    "SELECT a.id FROM s0 a JOIN s1 b ON a.id = b.id WINDOW TUMBLING(1 s) INTO out0",
    "SELECT * FROM s1 INTO out0",
)


def added(catalog: Catalog, text: str, name: str) -> QueryAdded:
    (found,) = sql(text, catalog.streams, catalog.sinks, name).queries
    return QueryAdded(0, found)


def run(engine: Engine, *events: ChangeEvent) -> BatchReport:
    report = engine.run(events)
    catalog = engine.catalog
    assert faults(catalog) == []
    check_conserved(catalog)
    check_plan(catalog)
    return report


# ---------------------------------------------------------------------------- an independent answer


class BruteForce:
    """Tries every node for every operator and every simple path for every edge."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self.catalog, self.plan, self.topology = catalog, catalog.plan, catalog.topology
        self.order = self._order()
        self.only_ends = name == "producer_consumer"
        nodes = self.topology.nodes
        self.left = {
            n: [float(nodes.slots[n]), float(nodes.capacity_tps[n]), float(nodes.memory_mb[n])]
            for n in self.topology.ids()
        }
        arcs = self.topology.arcs
        self.width = {int(a): float(arcs.bandwidth_mbps[a]) for a in np.flatnonzero(arcs.alive)}
        self.where: dict[OperatorId, NodeId] = {}

    def _order(self) -> list[OperatorId]:
        done: list[OperatorId] = []
        todo = sorted(self.plan.operators)
        while todo:
            ready = next(o for o in todo if all(i in done for i in self.plan[o].inputs))
            done.append(ready)
            todo.remove(ready)
        return done

    def possible(self, at: int = 0) -> bool:
        """Whether all operators from this one on can be placed."""
        if at == len(self.order):
            return True
        record = self.plan[self.order[at]]
        for node in self._places(record.id):
            if not self.topology.is_alive(node):
                continue
            left = self.left[node]
            charge = record.charge
            if any(need > have for need, have in zip(charge, left, strict=True)):
                continue
            self.left[node] = [have - need for need, have in zip(charge, left, strict=True)]
            self.where[record.id] = node
            edges = [(i, mbps(self.plan[i])) for i in dict.fromkeys(record.inputs)]
            if self._routed(edges, node, at):
                return True
            del self.where[record.id]
            self.left[node] = left
        return False

    def _places(self, operator: OperatorId) -> list[NodeId]:
        pin = self.plan[operator].pin
        if pin is not None:
            return [pin]
        if not self.only_ends:
            return list(self.topology.ids())
        ends: set[NodeId] = set()
        for towards in (lambda o: self.plan[o].inputs, lambda o: self.plan[o].readers):
            stack = [operator]
            while stack:
                top = stack.pop()
                pin = self.plan[top].pin
                if pin is not None:
                    ends.add(pin)
                stack.extend(towards(top))
        return sorted(ends)

    def _routed(self, edges: list[tuple[OperatorId, float]], node: NodeId, at: int) -> bool:
        if not edges:
            return self.possible(at + 1)
        (upstream, need), *rest = edges
        for arcs in self._paths(self.where[upstream], node, need, set()):
            for arc in arcs:
                self.width[arc] -= need
            if self._routed(rest, node, at):
                return True
            for arc in arcs:
                self.width[arc] += need
        return False

    def _paths(self, start: NodeId, goal: NodeId, need: float, met: set[NodeId]) -> Iterator[list[int]]:
        if start == goal:
            yield []
            return
        for arc in self.topology.adjacency.leaving(start):
            tip = NodeId(int(self.topology.arcs.tip[arc]))
            if tip not in met and self.width[arc] >= need:
                for rest in self._paths(tip, goal, need, met | {start}):
                    yield [arc, *rest]


# ---------------------------------------------------------------------------- small worlds in which things are scarce


def crowded(seed: int) -> Catalog:
    """Five nodes, few slots, links that go one way or both and are often too thin for a stream."""
    rng = np.random.default_rng(seed)
    kinds = [NodeKind.SENSOR, NodeKind.SENSOR, NodeKind.EDGE, NodeKind.EDGE, NodeKind.CLOUD]
    nodes = [
        Node(
            f"n{i}",
            kind,
            int(rng.integers(0, 5)),
            capacity_tps=float(rng.choice([500.0, 2000.0, np.inf])),
            memory_mb=float(rng.choice([0.1, 0.3, np.inf])),
        )
        for i, kind in enumerate(kinds)
    ]
    links = []
    for i in range(5):
        for j in range(i):
            if rng.random() < 0.7:
                ends = (f"n{i}", f"n{j}") if rng.random() < 0.5 else (f"n{j}", f"n{i}")
                links.append(_link(rng, *ends))
    streams = {f"s{i}": Stream(f"s{i}", SCHEMA, "ts", (f"n{i}",), rate_tps=1000) for i in range(2)}
    sinks = {"out0": SinkTarget("out0", "n4"), "out1": SinkTarget("out1", f"n{rng.integers(2, 5)}")}
    return Catalog(Topology.of(nodes, links), streams, sinks)


def _link(rng: np.random.Generator, source: str, target: str) -> Link:
    width = float(rng.choice([0.1, 0.25, 0.45, 0.8, np.inf]))
    return Link(source, target, float(rng.integers(1, 9)), width, directed=bool(rng.random() < 0.3))


def change(catalog: Catalog, rng: np.random.Generator, running: set[str], names: Iterator[str]) -> list[ChangeEvent]:
    """One to three events of any kind that the world can take."""
    events: list[ChangeEvent] = []
    links = list(catalog.topology.links())
    for _ in range(int(rng.integers(1, 4))):
        kind = rng.integers(6)
        if kind <= 1 and len(running) < 4:
            name = next(names)
            running.add(name)
            events.append(added(catalog, TEXTS[int(rng.integers(len(TEXTS)))], name))
        elif kind == 2 and running:
            name = str(rng.choice(sorted(running)))
            running.discard(name)
            if any(isinstance(e, QueryAdded) and e.query.id == name for e in events):
                events = [e for e in events if not (isinstance(e, QueryAdded) and e.query.id == name)]
            else:
                events.append(QueryRemoved(0, QueryId(name)))
        elif kind == 3 and links:
            link = links.pop(int(rng.integers(len(links))))
            if not any(isinstance(e, LinkAdded) for e in events):
                events.append(LinkRemoved(0, link.source, link.target, link.directed))
        elif kind == 4:
            a, b = (int(n) for n in rng.choice(5, 2, replace=False))
            topology = catalog.topology
            free = (
                topology.adjacency.between(NodeId(a), NodeId(b)) is None
                and topology.adjacency.between(NodeId(b), NodeId(a)) is None
            )
            if free and not any(isinstance(e, LinkAdded) for e in events):
                events.append(LinkAdded(0, _link(rng, f"n{a}", f"n{b}")))
        else:
            events.append(CapacityChanged(0, f"n{rng.integers(5)}", slots=int(rng.integers(0, 4))))
    return events


@ALL
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 100_000))
def test_everything_runs_whenever_there_is_a_way(name: str, seed: int) -> None:
    """After every batch: if all queries can be placed somehow, nothing waits. Slots are few, links thin and one-way."""
    rng = np.random.default_rng(seed)
    catalog = crowded(seed)
    if mechanism(name).metadata.needs_cost_space:
        catalog.space = build(catalog.topology)
    engine = Engine(catalog, mechanism(name), seed=seed)
    running: set[str] = set()
    names = (f"q{i}" for i in range(1000))
    for _ in range(6):
        report = run(engine, *change(catalog, rng, running, names))
        waiting = {o for o in catalog.plan.operators if o not in catalog.placement.nodes}
        assert set(report.unplaced) <= waiting
        if waiting:
            reasons = [catalog.plan[o].reason for o in waiting]
            assert not BruteForce(catalog, name).possible(), reasons
        empty = run(engine)
        assert not empty.difference, "nothing happened, so nothing changes"
        assert empty.widened_tries == 0, "what was tried is remembered"


# ---------------------------------------------------------------------------- cases that waited for ever


class Fork:
    """device - left - cloud and device - right - lab. No path leads from left to lab."""

    def __init__(self, name: str, *, slots: int = 4) -> None:
        nodes = [
            Node("device", NodeKind.SENSOR, 0),
            Node("left", NodeKind.EDGE, slots),
            Node("right", NodeKind.EDGE, slots),
            Node("cloud", NodeKind.CLOUD, 0),
            Node("lab", NodeKind.CLOUD, 0),
        ]
        self.onward = Link("right", "cloud", 9, directed=True)
        links = [
            Link("device", "left", 1, directed=True),
            Link("device", "right", 3, directed=True),
            Link("left", "cloud", 1, directed=True),
            Link("right", "lab", 1, directed=True),
            self.onward,
        ]
        streams = {"s": Stream("s", SCHEMA, "ts", ("device",), rate_tps=100)}
        sinks = {"cloud": SinkTarget("cloud", "cloud"), "lab": SinkTarget("lab", "lab")}
        self.catalog = Catalog(Topology.of(nodes, links), streams, sinks)
        if mechanism(name).metadata.needs_cost_space:
            self.catalog.space = build(self.catalog.topology)
        self.engine = Engine(self.catalog, mechanism(name))

    def add(self, name: str, sink: str, limit: int = 1) -> BatchReport:
        return run(self.engine, added(self.catalog, f"SELECT * FROM s WHERE speed < {limit} INTO {sink}", name))

    @property
    def filter_node(self) -> str | None:
        operator = next(o for o, r in self.catalog.plan.operators.items() if isinstance(r.spec, Filter))
        node = self.catalog.placement.nodes.get(operator)
        return None if node is None else self.catalog.topology.name(node)


ELSEWHERE = pytest.mark.parametrize("name", [n for n in NAMES if n != "producer_consumer"])
"""Producers and consumers have no slots in the fork."""


@ELSEWHERE
def test_a_sink_that_no_path_reached_makes_the_operator_above_it_move(name: str) -> None:
    fork = Fork(name)
    fork.add("first", "cloud")
    if fork.filter_node != "left":
        run(fork.engine, CapacityChanged(0, "right", slots=0))
        run(fork.engine, CapacityChanged(0, "right", slots=4))
    assert fork.filter_node == "left"
    report = fork.add("second", "lab")
    assert report.unplaced == {}
    assert fork.filter_node == "right"
    (moved,) = [m for m in report.moves if m.source is not None]
    assert moved.cause == "query second added; placed anew with its neighbours, so that operator 4 can run"
    assert (report.widened, fork.engine.log.waiting) == (1, [])


@ELSEWHERE
def test_what_runs_stays_when_a_wider_try_places_no_more(name: str) -> None:
    fork = Fork(name)
    fork.add("first", "cloud")
    if fork.filter_node != "left":
        run(fork.engine, CapacityChanged(0, "right", slots=0))
        run(fork.engine, CapacityChanged(0, "right", slots=4))
    run(fork.engine, LinkRemoved(0, "right", "cloud", directed=True))
    report = fork.add("second", "lab")
    assert list(report.unplaced.values()) != []
    assert fork.filter_node == "left", "moving it would cut the first query off"
    assert [m for m in report.moves if m.source is not None] == []
    report = run(fork.engine, DemandChanged(1, QueryId("first"), ()))
    assert report.widened_tries == 0, "nothing that could help has changed"
    report = run(fork.engine, LinkAdded(2, fork.onward))
    assert (report.unplaced, fork.filter_node) == ({}, "right")


def test_other_plans_make_room_when_nothing_less_helps() -> None:
    """The only slot that the second query can use is taken by the first one, which could be anywhere."""
    fork = Fork("bottom_up", slots=1)
    run(fork.engine, CapacityChanged(0, "left", slots=0))
    fork.add("first", "cloud", 1)
    assert fork.filter_node == "right"
    run(fork.engine, CapacityChanged(0, "left", slots=1))
    report = fork.add("second", "lab", 2)
    assert report.unplaced == {}
    assert fork.filter_node == "left"


def test_operators_that_cannot_run_at_all_are_not_tried_again_and_again() -> None:
    fork = Fork("bottom_up")
    run(fork.engine, LinkRemoved(0, "right", "lab", directed=True))
    report = fork.add("second", "lab")
    assert report.unplaced
    assert report.widened_tries == 0
    report = run(fork.engine, CapacityChanged(0, "left", slots=9))
    assert report.widened_tries == 0


def test_a_full_world_is_seen_at_a_glance() -> None:
    """All slots together are fewer than the waiting query needs: no try can help until there are more."""
    fork = Fork("bottom_up", slots=1)
    fork.add("first", "cloud", 1)
    fork.add("second", "cloud", 2)
    report = fork.add("third", "cloud", 3)
    assert len(report.unplaced) == 1
    assert report.widened_tries == 0
    assert run(fork.engine, CapacityChanged(0, "left", slots=2)).unplaced == {}
