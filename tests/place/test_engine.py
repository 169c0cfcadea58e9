"""Random schedules of every kind of change event: after each batch the placement is valid and nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.global_plan import OperatorState
from meander.model.ids import OperatorId, QueryId
from meander.model.placement import mbps, violations
from meander.model.topology.elements import Link, Node
from meander.place.amenders.routes import Routes
from meander.place.catalog import Catalog
from meander.place.costspace.build import build
from meander.place.engine import BatchReport, Engine, Result
from meander.place.mechanisms import MECHANISMS, mechanism
from tests.place.worlds import query, world


def faults(catalog: Catalog) -> list[str]:
    """Violations other than operators that are not placed and say why."""
    unplaced = {o for o, r in catalog.plan.operators.items() if o not in catalog.placement.nodes and r.reason}
    return [
        v.reason for v in violations(catalog.plan, catalog.placement, catalog.topology) if v.operator not in unplaced
    ]


def check_conserved(catalog: Catalog) -> None:
    """The ledger is exactly what the placement uses, on every node and arc."""
    slots, load = np.zeros_like(catalog.ledger.slots), np.zeros_like(catalog.ledger.load_tps)
    memory = np.zeros_like(catalog.ledger.memory_mb)
    traffic = np.zeros_like(catalog.ledger.mbps)
    for operator, node in catalog.placement.nodes.items():
        record = catalog.plan[operator]
        slots[node] += record.slots
        load[node] += record.load_tps if record.slots else 0
        memory[node] += record.memory_mb if record.slots else 0
    for (upstream, _), route in catalog.placement.routes.items():
        for arc in route.arcs:
            traffic[arc] += mbps(catalog.plan[upstream])
    np.testing.assert_array_equal(catalog.ledger.slots, slots)
    np.testing.assert_array_equal(catalog.ledger.load_tps, load)
    np.testing.assert_array_equal(catalog.ledger.memory_mb, memory)
    np.testing.assert_array_equal(catalog.ledger.mbps, traffic)


def check_plan(catalog: Catalog) -> None:
    """Shared plans are the connected components; readers mirror inputs; the index knows every shareable operator."""
    plan = catalog.plan
    for operator, record in plan.operators.items():
        assert operator in plan.plans[plan.plan_of(operator)]
        assert all(operator in plan[i].readers for i in record.inputs)
        assert all(operator in plan[r].inputs for r in record.readers)
        assert record.users == len(record.readers) + sum(operator in q.sinks for q in plan.queries.values())
        assert record.state in (OperatorState.PLACED, OperatorState.TO_BE_PLACED)
        assert (record.state is OperatorState.PLACED) == (operator in catalog.placement.nodes)
    seen: set[OperatorId] = set()
    for start in plan.operators:
        if start in seen:
            continue
        component, stack = {start}, [start]
        while stack:
            for neighbour in plan.neighbours(stack.pop()):
                if neighbour not in component:
                    component.add(neighbour)
                    stack.append(neighbour)
        assert plan.plans[plan.plan_of(start)] == component
        seen |= component
    assert set(catalog.running.values()) <= set(plan.operators)


def check_kept_latencies(engine: Engine) -> None:
    """Latencies kept from batch to batch are those that would be found now."""
    kept, log = engine.applicator.routes, engine.log
    kept.renew(o for entry in log.waiting for o in entry.operators)
    for operator in engine.catalog.plan.operators:
        if operator in engine.catalog.placement.nodes:
            for known, down in ((kept._above, False), (kept._below, True)):
                if operator in known:
                    assert known[operator] == Routes(engine.catalog)._latencies(operator, {}, down=down)


class ChangingWorld(RuleBasedStateMachine):
    """Collects events into a batch and runs it; remembers what left so that it can come back."""

    @initialize(
        seed=st.integers(0, 10_000),
        slots=st.sampled_from([1, 3, 20]),
        bandwidth=st.sampled_from([0.05, 1.0, 1000.0]),
        amenders=st.sampled_from([1, 2, 8]),
        control=st.sampled_from(["optimistic", "pessimistic"]),
        name=st.sampled_from([m.name for m in MECHANISMS]),
    )
    def start(self, seed: int, slots: int, bandwidth: float, amenders: int, control: str, name: str) -> None:
        self.catalog = world(seed, slots=slots, bandwidth_mbps=bandwidth)
        if mechanism(name).metadata.needs_cost_space:
            self.catalog.space = build(self.catalog.topology)
        self.engine = Engine(
            self.catalog, mechanism(name), amenders=amenders, control=control, seed=seed, worth_sharing=0
        )
        self.batch: list[ChangeEvent] = []
        self.queries: dict[str, bool] = {}
        self.away: dict[str, tuple[Node, list[Link]]] = {}
        self.cut: list[Link] = []
        self.report = BatchReport(0)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.run_batch()
        running = [QueryRemoved(0, q) for q in self.catalog.plan.queries]
        self.engine.run(running)
        self.engine.close()
        assert not self.catalog.plan.operators
        assert not self.catalog.plan.plans
        assert not self.catalog.running
        assert not self.catalog.placement.nodes
        assert not self.catalog.placement.routes
        assert not self.catalog.on_node
        assert not self.catalog.on_arc
        assert not self.catalog.ledger.slots.any()
        assert not self.catalog.ledger.load_tps.any()
        assert not self.catalog.ledger.memory_mb.any()
        assert not self.catalog.ledger.mbps.any()

    @rule(seed=st.integers(0, 40))
    def add_query(self, seed: int) -> None:
        name = f"q{len(self.queries)}"
        self.queries[name] = True
        self.batch.append(QueryAdded(0, query(seed, name)))

    @precondition(lambda self: any(self.queries.values()))
    @rule(data=st.data())
    def remove_query(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([q for q, there in self.queries.items() if there]))
        self.queries[name] = False
        self.batch.append(QueryRemoved(0, QueryId(name)))

    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        """Takes a node away, after the batch so far has run (so that its links are known)."""
        self.run_batch()
        topology = self.catalog.topology
        if not len(topology):
            return
        name = data.draw(st.sampled_from([topology.name(n) for n in topology.ids()]))
        links = [link for link in topology.links() if name in (link.source, link.target)]
        self.away[name] = (topology.node(topology.id(name)), links)
        self.batch.append(NodeRemoved(0, name))

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def node_returns(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.away)))
        node, links = self.away.pop(name)
        self.batch.append(NodeAdded(0, node))
        for link in links:
            if not {link.source, link.target} & set(self.away):
                self.batch.append(LinkAdded(0, link))
            else:
                gone = next(n for n in (link.source, link.target) if n in self.away)
                self.away[gone][1].append(link)

    @rule(data=st.data())
    def cut_link(self, data: st.DataObject) -> None:
        self.run_batch()
        links = list(self.catalog.topology.links())
        if links:
            link = data.draw(st.sampled_from(links))
            self.cut.append(link)
            self.batch.append(LinkRemoved(0, link.source, link.target))

    @precondition(lambda self: self.cut)
    @rule()
    def mend_link(self) -> None:
        link = self.cut.pop()
        gone = [n for n in (link.source, link.target) if n in self.away]
        if gone:
            self.away[gone[0]][1].append(link)
        else:
            self.batch.append(LinkAdded(0, link))

    @rule(
        data=st.data(),
        slots=st.integers(0, 6),
        tps=st.sampled_from([50.0, 2000.0, float("inf")]),
        memory=st.sampled_from([0.05, 0.2, None, float("inf")]),
    )
    def change_capacity(self, data: st.DataObject, slots: int, tps: float, memory: float | None) -> None:
        self.run_batch()
        topology = self.catalog.topology
        if not len(topology):
            return
        name = data.draw(st.sampled_from([topology.name(n) for n in topology.ids()]))
        self.batch.append(CapacityChanged(0, name, slots=slots, capacity_tps=tps, memory_mb=memory))

    @rule(stream=st.integers(0, 3), rate=st.sampled_from([1.0, 33.3, 1000.0]))
    def change_rate(self, stream: int, rate: float) -> None:
        self.batch.append(RateChanged(0, f"stream{stream}", rate))

    @rule(data=st.data())
    def pin_operator(self, data: st.DataObject) -> None:
        self.run_batch()
        movable = [o for o, r in self.catalog.plan.operators.items() if r.slots]
        topology = self.catalog.topology
        if movable and len(topology):
            operator = data.draw(st.sampled_from(movable))
            name = data.draw(st.sampled_from([topology.name(n) for n in topology.ids()]))
            self.batch.append(PlacementChanged(0, operator, name))

    @rule()
    def run_batch(self) -> None:
        self.report = self.engine.run(self.batch)
        self.batch = []

    @invariant()
    def valid_conserved_and_connected(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        check_kept_latencies(self.engine)

    @invariant()
    def everything_unplaced_is_waiting(self) -> None:
        if hasattr(self, "engine"):
            waiting = {o for entry in self.engine.log.waiting for o in entry.operators}
            assert {o for o in self.catalog.plan.operators if o not in self.catalog.placement.nodes} <= waiting


TestChangingWorld = ChangingWorld.TestCase
TestChangingWorld.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_bad_event_changes_nothing_of_its_batch() -> None:
    catalog = world(1)
    engine = Engine(catalog, mechanism("bottom_up"))
    engine.run([QueryAdded(0, query(1, "a"))])
    before = (dict(catalog.placement.nodes), set(catalog.plan.operators), catalog.topology.version)
    with pytest.raises(InputError, match=r"event 3 of 3: no node 's99'; known nodes: cloud0"):
        engine.run([QueryAdded(0, query(2, "b")), NodeRemoved(0, "s0"), LinkRemoved(0, "s99", "e0")])
    assert (dict(catalog.placement.nodes), set(catalog.plan.operators), catalog.topology.version) == before


def test_a_device_that_leaves_and_returns_in_one_batch_moves_nothing() -> None:
    catalog = world(3, slots=20, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism("bottom_up"))
    engine.run([QueryAdded(0, query(i, f"q{i}")) for i in range(8)])
    name = next(catalog.topology.name(n) for n in catalog.on_node if catalog.topology.name(n).startswith("s"))
    node = catalog.topology.node(catalog.topology.id(name))
    links = [link for link in catalog.topology.links() if name in (link.source, link.target)]
    report = engine.run([NodeRemoved(0, name), NodeAdded(0, node), *(LinkAdded(0, link) for link in links)])
    assert report.moves == []
    assert report.rerouted
    assert faults(catalog) == []


def test_a_report_says_exactly_what_a_batch_did() -> None:
    """s0 and its source, a filter above it and the sink: placed, re-routed, moved and removed."""
    catalog = world(3, slots=20, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism("bottom_up"))
    report = engine.run([QueryAdded(0, query(1, "first")), QueryAdded(0, query(1, "again"))])
    plan, placed = catalog.plan.operators, catalog.placement.nodes
    assert (report.events, report.deltas, report.touched) == (2, 1, len(plan))
    assert report.results == {Result.SUCCESS: 1, Result.PARTIAL: 0, Result.FAILED: 0}
    assert {m.operator: (m.source, m.target) for m in report.moves} == {o: (None, placed[o]) for o in plan}
    assert {m.cause for m in report.moves} == {"query first added; query again added"}
    assert report.difference.gained == placed
    assert (report.unplaced, report.rerouted, report.aborts, report.widened_tries) == ({}, [], 0, 0)
    free = [o for o, r in plan.items() if r.slots]
    assert report.messages >= 2 * len(free)
    assert report.message_bytes >= (12 + 8) * len(free)
    assert report.total_s == report.apply_s + report.merge_s + report.amend_s > 0
    assert (report.lock_s, report.validation_s) == (0.0, 0.0)
    before = dict(placed)
    report = engine.run([QueryRemoved(0, QueryId("first"))])
    (sink,) = set(before) - set(plan)
    assert [(m.operator, m.source, m.target, m.cause) for m in report.moves] == [
        (sink, before[sink], None, "query first removed")
    ]
    assert (report.events, report.deltas, report.touched) == (1, 1, 2)
    victim = next(o for o in free if catalog.topology.name(placed[o]).startswith("s"))
    here, before = placed[victim], dict(placed)
    name = catalog.topology.name(here)
    report = engine.run([CapacityChanged(0, name, slots=0)])
    leaving = {o for o in free if before[o] == here}
    assert {m.operator for m in report.moves} == leaving
    assert all((m.source, m.target) == (here, placed[m.operator]) and m.target != here for m in report.moves)
    assert {m.cause for m in report.moves} == {f"capacity of node {name} changed"}
    assert report.difference.moved == {o: (here, placed[o]) for o in leaving}


def test_an_addition_touches_only_what_it_adds_and_what_it_hangs_on() -> None:
    catalog = world(3, slots=20, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism("bottom_up"))
    engine.run([QueryAdded(0, query(1, "first"))])
    report = engine.run([QueryAdded(0, query(1, "again"))])
    assert report.touched == 2
    assert len(report.moves) == 1
