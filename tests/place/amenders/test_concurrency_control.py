"""Concurrency controls under real contention: nothing lost, nothing leaked, everybody gets a turn."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from meander.model.errors import InputError
from meander.model.events import QueryAdded, QueryRemoved
from meander.model.ids import NodeId, OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.amenders.amendment import AmendmentDraft
from meander.place.amenders.concurrency_control import (
    CONTROLS,
    MOST_ATTEMPTS,
    Control,
    Effort,
    Locks,
    charge,
    still_fits,
)
from meander.place.catalog import Catalog
from meander.place.changelog import Delta
from meander.place.engine import Engine
from meander.place.free_capacity import Room
from meander.place.mechanisms import mechanism
from tests.place.test_engine import check_conserved, check_plan, faults
from tests.place.worlds import query, world

NODES = 4


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def full_mesh(slots: int) -> Catalog:
    nodes = [Node(f"n{i}", NodeKind.EDGE, slots) for i in range(NODES)]
    links = [Link(f"n{i}", f"n{j}") for i in range(NODES) for j in range(i)]
    return Catalog(Topology.of(nodes, links))


def first_with_room(room: Room) -> AmendmentDraft:
    """Takes a slot on the first node that has one, as every thread wants to."""
    for node in range(NODES):
        if room.fits(NodeId(node), 1, 1.0):
            room.take(NodeId(node), 1, 1.0)
            return AmendmentDraft(room, nodes={OperatorId(1): NodeId(node)})
    return AmendmentDraft(room, unplaced={OperatorId(1): "full"})


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("threads", [2, 8])
def test_every_slot_is_given_away_once(name: str, threads: int) -> None:
    catalog = full_mesh(slots=25)
    control = CONTROLS[name](catalog)
    wanted = 60
    results: list[AmendmentDraft] = []
    efforts: list[Effort] = []

    def work() -> None:
        for _ in range(wanted):
            effort = Effort()
            results.append(control.settle(Delta((), (), (), ()), first_with_room, effort))
            efforts.append(effort)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers), "deadlock"
    placed = [node for result in results for node in result.nodes.values()]
    assert len(results) == wanted * threads
    assert len(placed) == min(wanted * threads, 25 * NODES)
    np.testing.assert_array_equal(catalog.ledger.slots[:NODES], np.bincount(placed, minlength=NODES))
    np.testing.assert_array_equal(catalog.ledger.load_tps[:NODES], np.bincount(placed, minlength=NODES))
    assert max(effort.aborts for effort in efforts) <= MOST_ATTEMPTS


@pytest.mark.parametrize("name", CONTROLS)
def test_an_amender_that_always_loses_takes_all_locks_and_gets_through(name: str) -> None:
    catalog = full_mesh(slots=1)
    control: Control = CONTROLS[name](catalog)
    tries = 0

    def overtaken(room: Room) -> AmendmentDraft:
        nonlocal tries
        tries += 1
        return AmendmentDraft(room, overtaken=tries <= MOST_ATTEMPTS)

    effort = Effort()
    control.settle(Delta((), (), (), ()), overtaken, effort)
    assert (tries, effort.aborts) == (MOST_ATTEMPTS + 1, MOST_ATTEMPTS)
    with control.locks.held_at_once(control.locks.all, effort) as free:
        assert free, "a lock was kept"


def test_locks_are_given_back_after_an_error() -> None:
    locks = Locks(8)
    with pytest.raises(ValueError, match="inside"), locks.held([1, 3], Effort()):
        raise ValueError("inside")
    with locks.held_at_once(locks.all, Effort()) as free:
        assert free
        with locks.held_at_once([3], Effort()) as again:
            assert not again


def test_a_view_keeps_what_it_first_saw_and_validation_notices() -> None:
    catalog = full_mesh(slots=1)
    node = NodeId(0)
    room = Room(catalog.ledger)
    assert room.fits(node, 1, 0.0)
    catalog.ledger.add(node, 1, 0.0)
    assert room.fits(node, 1, 0.0)
    room.take(node, 1, 0.0)
    assert not room.copy().fits(node, 1, 0.0)
    assert not still_fits(catalog.ledger, room)
    back = Room(catalog.ledger)
    back.take(node, -1, 0.0)
    assert still_fits(catalog.ledger, back)
    charge(catalog.ledger, back)
    assert not catalog.ledger.slots.any()


def test_giving_back_more_than_was_taken_is_noticed() -> None:
    with pytest.raises(InputError, match="more was given back on node n1 than was taken"):
        full_mesh(slots=1).ledger.add(NodeId(1), -1, 0.0)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("seed", range(6))
def test_batches_of_queries_on_few_slots(name: str, seed: int) -> None:
    catalog = world(seed, slots=4, bandwidth_mbps=2.0)
    engine = Engine(catalog, mechanism("bottom_up"), amenders=8, control=name, worth_sharing=0)
    for start in range(0, 24, 8):
        engine.run([QueryAdded(0, query(100 * seed + i, f"q{i}")) for i in range(start, start + 8)])
        assert faults(catalog) == []
        check_conserved(catalog)
        check_plan(catalog)
    engine.run([QueryRemoved(0, q) for q in list(catalog.plan.queries)])
    engine.close()
    assert not catalog.ledger.slots.any()
    assert not catalog.ledger.mbps.any()


@pytest.mark.parametrize("name", CONTROLS)
def test_what_fits_alone_fits_concurrently(name: str) -> None:
    """No operator is left waiting only because somebody else was faster: whatever one amender places, eight do."""
    complete = scarce = 0
    for seed in range(16):
        events = [QueryAdded(0, query(50 * seed + i, f"q{i}")) for i in range(7)]
        waiting = []
        for amenders in (1, 8):
            catalog = world(seed, slots=1 + seed % 4, bandwidth_mbps=(0.15, 1000.0)[seed % 2])
            engine = Engine(catalog, mechanism("bottom_up"), amenders=amenders, control=name, worth_sharing=0)
            waiting.append(engine.run(events).unplaced)
            engine.close()
            assert faults(catalog) == []
            check_conserved(catalog)
        alone, together = waiting
        assert not [r for r in together.values() if "chose node" in r]
        if not alone:
            assert not together
        complete, scarce = complete + (not alone), scarce + bool(alone)
    assert complete >= 4, "there are worlds in which everything fits"
    assert scarce >= 2, "and some in which it does not, so room is scarce"


def test_an_unknown_control_is_named() -> None:
    with pytest.raises(InputError, match="no concurrency control 'hopeful'; known"):
        Engine(full_mesh(1), mechanism("bottom_up"), control="hopeful")
