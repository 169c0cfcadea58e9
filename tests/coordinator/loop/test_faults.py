"""Faults that schedules found, each as the smallest schedule that shows it, named after what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Filter, Map, Union, WindowAggregate
from meander.model.topology.elements import Link
from meander.reconfigure.agent.failover import GONE
from tests.coordinator.loop.catalog_checks import catalog_faults
from tests.coordinator.loop.deployment_checks import deployment_faults, host_faults, step_faults
from tests.coordinator.loop.ground import FOGS, SENSORS, Ground, query, text
from tests.coordinator.loop.schedules import Schedule, leftovers
from tests.coordinator.loop.world import LONG_MS, LoopWorld, ServiceWorld, Setting

Opening = Callable[..., LoopWorld]
NOWHERE: list[ChangeEvent] = [CapacityChanged(0, node, slots=0) for node in (*FOGS, "hub", "cloud")]
"""Stations and all else lose their slots."""


@pytest.fixture(params=[LoopWorld, ServiceWorld], ids=["loop", "service"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opening]:
    """Opens worlds that are closed afterwards, of the loop alone and of the service with its ledger."""
    worlds: list[LoopWorld] = []

    def opening(ground: Ground, **queries: tuple[str, str]) -> LoopWorld:
        world: LoopWorld = request.param(tmp_path / str(len(worlds)), ground, Setting())
        worlds.append(world)
        for name, (body, into) in queries.items():
            world.texts[QueryId(name)] = text(body, into)
            world.apply(QueryAdded(0, query(name, body, into)))
        assert world.settle()
        return world

    yield opening
    for world in worlds:
        with suppress(Exception):  # a world that is broken is closed as far as that goes
            world.close()


def with_slots(**slots: int) -> Ground:
    """The roomy ground, but for some nodes; sensors hold nothing but their sources."""
    ground = Ground.roomy()
    wanted = {**dict.fromkeys(SENSORS, 0), **slots}
    return replace(ground, nodes=tuple(replace(n, slots=wanted.get(n.name, n.slots)) for n in ground.nodes))


def one_by_one() -> Ground:
    """No two operators fit on one node before the cloud: each is a fragment of its own."""
    return with_slots(**dict.fromkeys((*FOGS, "hub"), 1))


def operator_of(world: LoopWorld, kind: type) -> OperatorId:
    return next(o for o, r in world.catalog.plan.operators.items() if isinstance(r.spec, kind))


def node_of(world: LoopWorld, operator: OperatorId) -> str:
    return world.catalog.topology.name(world.catalog.placement.nodes[operator])


def faults(world: LoopWorld) -> list[str]:
    return [*catalog_faults(world.catalog), *step_faults(world), *deployment_faults(world), *host_faults(world)]


def tuples_flow(world: LoopWorld, name: str, sink: str) -> bool:
    """Whether new tuples come out of a query."""
    before = len(world.results()[name, sink])
    world.feed(np.random.default_rng(7))
    world.feed(np.random.default_rng(8))
    world.settle()
    return len(world.results()[name, sink]) > before


# ---------------------------------------------------------------- a query that waits is stopped


LOST: dict[str, list[list[ChangeEvent]]] = {
    "nodes lose their slots": [NOWHERE],
    "a station fails, then the others lose their slots": [[NodeRemoved(0, "f2")], NOWHERE[:2] + NOWHERE[3:]],
    "a station fails, then the sensor leaves coverage": [[NodeRemoved(0, "f2")], [NodeRemoved(0, "hub")]],
    "a rate overloads every node": [
        [CapacityChanged(0, node, capacity_tps=50.0) for node in (*FOGS, "hub", "cloud")],
        [RateChanged(0, "rain", 200.0)],
    ],
}


@pytest.mark.parametrize("losing", LOST.values(), ids=LOST)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "and a restart"])
def test_a_query_whose_operators_have_lost_their_place_is_stopped_and_the_others_go_on(
    opened: Opening, losing: list[list[ChangeEvent]], restarts: bool
) -> None:
    """Its fragments stayed while their channels went: every step raised, and a restart failed."""
    world = opened(one_by_one(), gone=("wet", "one"))
    for events in losing:
        world.feed(np.random.default_rng(1))
        world.apply(*events)
        world.settle()
    assert len(world.loop.waiting()) >= 2, "two operators in a row are to wait"
    world.apply(QueryRemoved(0, QueryId("gone")))
    if restarts:
        world.crash()
    world.settle()
    assert faults(world) == []
    assert leftovers(world) == []
    world.crash()
    assert world.settle()
    assert leftovers(world) == []


def test_a_stop_of_one_query_that_waits_leaves_the_others_of_its_slot_alone(opened: Opening) -> None:
    world = opened(one_by_one(), gone=("wet", "one"), other=("all", "two"))
    for operator, node in (operator_of(world, Filter), "f2"), (operator_of(world, Map), "hub"):
        world.apply(PlacementChanged(0, operator, node))
    world.apply(CapacityChanged(0, "f2", slots=0), CapacityChanged(0, "hub", slots=0))
    world.settle()
    assert set(world.loop.waiting()) == {operator_of(world, Filter), operator_of(world, Map)}
    world.apply(QueryRemoved(0, QueryId("gone")))
    world.settle()
    assert faults(world) == []
    assert tuples_flow(world, "other", "two")


# ---------------------------------------------------------------- channels follow their routes


def test_a_channel_takes_the_route_that_was_decided_when_its_operator_stays_on_its_node(opened: Opening) -> None:
    """An operator that was re-placed where it was yielded neither a move nor another route."""
    world = opened(with_slots(f1=0, f2=0, hub=0, cloud=0), all=("all", "near"))
    before = dict(world.catalog.placement.nodes)
    world.apply(LinkRemoved(0, "s0", "f0"), LinkAdded(0, Link("s0", "f1", 10)))
    world.settle()
    assert world.catalog.placement.nodes == before
    name = world.catalog.topology.name
    paths = [[name(n) for n in c.path.nodes] for c in world.loop.deployer.deployment.channels.values() if c.path]
    assert ["s0", "f1", "f0"] in paths
    assert faults(world) == []


def test_a_channel_has_the_arcs_of_links_that_were_cut_and_came_back(opened: Opening) -> None:
    """The route leads over the same nodes as before, but its links are new ones with other bandwidth."""
    world = opened(with_slots(hub=1), all=("all", "one"))
    joined = operator_of(world, Union)
    world.apply(PlacementChanged(0, joined, "hub"))
    world.settle()
    links = reversed(list(world.ground.links_of("f0")))
    back: list[ChangeEvent] = [NodeAdded(0, world.ground.node("f0")), *(LinkAdded(0, link) for link in links)]
    world.apply(NodeRemoved(0, "f0"), *back, PlacementChanged(0, joined))
    world.settle()
    assert node_of(world, joined) == "hub"
    assert faults(world) == []
    assert tuples_flow(world, "all", "one")


def test_a_channel_of_an_operator_that_waits_leaves_a_link_that_goes_after_a_restart(tmp_path: Path) -> None:
    """What the restart took up was recorded as news, so that the operator seemed never to have had a place."""
    world = ServiceWorld(tmp_path, with_slots(), Setting())
    world.texts[QueryId("q")] = text("all", "one")
    world.apply(QueryAdded(0, query("q", "all", "one")))
    world.settle()
    world.crash()
    world.apply(LinkRemoved(0, "s1", "f1"))
    world.settle()
    waiting = [o for o in world.loop.waiting() if o in world.loop.deployer.deployment.owner]
    assert waiting
    world.apply(LinkRemoved(0, "f1", "hub"), LinkRemoved(0, "f0", "f1"), LinkRemoved(0, "f1", "f2"))
    world.settle()
    assert faults(world) == []
    world.close()


# ---------------------------------------------------------------- nodes that are gone


def test_what_stays_on_a_node_that_is_gone_does_not_run_when_the_rest_has_moved_away(opened: Opening) -> None:
    """A copy stands in until the marker. What stays behind ran on, on a node that was gone."""
    ground = with_slots(f1=0, f2=0, hub=0)
    ground = replace(ground, links=(*ground.links, Link("s0", "f1", 5)))
    world = opened(ground, near=("kmh", "near"), far=("kmh", "one"))
    owner = world.loop.deployer.deployment.owner
    (near,) = world.catalog.plan.query(QueryId("near")).sinks
    together = world.loop.deployer.deployment.fragments[owner[near]].operators
    assert len(together) > 1
    world.feed(np.random.default_rng(1))
    world.apply(NodeRemoved(0, "f0"))
    world.settle()
    assert any(o in world.catalog.placement.nodes for o in together), "the rest is to go elsewhere"
    assert world.host.routing.paused[owner[near]].startswith(GONE)
    assert faults(world) == []


def test_fragments_that_a_copy_stood_in_for_stop_again_when_their_change_is_aborted(tmp_path: Path) -> None:
    ground = with_slots()
    ground = replace(ground, links=(*ground.links, Link("f0", "cloud", 20), Link("f1", "cloud", 20)))
    world = LoopWorld(tmp_path, ground, Setting())
    world.apply(QueryAdded(0, query("q", "load", "one")))
    world.settle()
    aggregate = operator_of(world, WindowAggregate)
    assert node_of(world, aggregate) == "hub"
    fragment = world.loop.deployer.deployment.owner[aggregate]
    world.apply(NodeRemoved(0, "hub"))
    (number,) = world.loop.deployer.under_way
    world.loop._take_note(world.loop.driver.abort(number, "somebody changed their mind"))
    assert world.host.routing.paused[fragment].startswith(GONE)
    world.settle()
    assert faults(world) == []
    world.close()


# ---------------------------------------------------------------- state that moves


def test_state_moves_by_the_clock_of_its_loop_and_not_by_that_of_the_machine(tmp_path: Path) -> None:
    """Where the loop's time is not the machine's, a move took as long as it really would: a schedule gave it up now
    and then, when the machine was fast."""
    ground = Ground.roomy()
    slow = replace(
        ground, links=tuple(replace(k, latency_ms=1_000) if k.target == "cloud" else k for k in ground.links)
    )
    world = LoopWorld(tmp_path, slow, Setting(emulated=True))
    world.apply(QueryAdded(0, query("q", "load", "middle")))
    aggregate = operator_of(world, WindowAggregate)
    world.apply(PlacementChanged(0, aggregate, "hub"))
    world.settle()
    world.feed(np.random.default_rng(1))
    world.settle()
    world.apply(PlacementChanged(0, aggregate, "cloud"))
    began_ms = world.clock.now_ms
    assert world.settle()
    assert world.clock.now_ms - began_ms > 1_000
    assert node_of(world, aggregate) == "cloud"
    assert faults(world) == []
    world.close()


# ---------------------------------------------------------------- restarts


def test_operators_of_a_stopped_query_are_not_made_ready_again_by_a_restart(tmp_path: Path) -> None:
    """They became fragments without inputs, and every step of their slot raised."""
    world = ServiceWorld(tmp_path, with_slots(hub=1, cloud=0, f0=2, f1=0, f2=0), Setting())
    world.texts[QueryId("q")] = text("faster", "near")
    world.apply(QueryAdded(0, query("q", "faster", "near")))
    world.settle()
    plan, owner = world.catalog.plan, world.loop.deployer.deployment.owner
    assert any(o in owner and r.readers and not any(i in owner for i in r.readers) for o, r in plan.operators.items())
    world.accept(QueryRemoved(0, QueryId("q")))
    assert not any(r.change.fragments_after for r in world.loop.deployer.under_way.values())
    world.crash()
    world.settle()
    assert leftovers(world) == []
    world.close()


@pytest.mark.parametrize("kind", ["placement", "demand"])
def test_a_batch_that_was_accepted_is_applied_although_it_stops_the_query_that_it_changes(
    tmp_path: Path, kind: str
) -> None:
    """After a restart the query is gone already: all of the batch was refused for that, also what came beside it."""
    world = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    world.texts[QueryId("q")] = text("wet", "one")
    world.apply(QueryAdded(0, query("q", "wet", "one")))
    world.settle()
    changing: ChangeEvent = DemandChanged(0, QueryId("q"), ())
    if kind == "placement":
        changing = PlacementChanged(0, operator_of(world, Filter), "cloud")
    batch = [NodeRemoved(0, "s1"), changing, QueryRemoved(0, QueryId("q"))]
    world.admit(*batch)
    world.accept(*batch)
    assert world.core.failures == {}
    assert world.catalog.topology.find("s1") is None
    assert QueryId("q") not in world.catalog.plan.queries
    world.settle()
    assert leftovers(world) == []
    world.close()


def test_a_restart_books_the_rate_that_was_booked_before_of_a_sensor_that_was_away_when_it_changed(
    tmp_path: Path,
) -> None:
    """What read from the sensor had the former rate until a restart, and then more than its links could carry."""
    ground = with_slots(**dict.fromkeys((*FOGS, "hub"), 0))
    thin = tuple(replace(link, bandwidth_mbps=0.008) if link.source == "s2" else link for link in ground.links)
    world = ServiceWorld(tmp_path, replace(ground, links=thin), Setting())
    world.texts[QueryId("q")] = text("wet", "one")
    world.apply(QueryAdded(0, query("q", "wet", "one")))
    assert world.loop.waiting() == {}
    world.apply(NodeRemoved(0, "s2"))
    world.apply(RateChanged(0, "rain", 20.0))
    world.apply(NodeAdded(0, ground.node("s2")), *(LinkAdded(0, n) for n in thin if n.source == "s2"))
    assert "no path" in " ".join(world.loop.waiting().values()), "the new rate is more than the link carries"
    before = world.catalog.ledger.mbps.sum(), world.catalog.ledger.load_tps.sum()
    world.crash()
    world.settle()
    assert faults(world) == []
    assert (world.catalog.ledger.mbps.sum(), world.catalog.ledger.load_tps.sum()) == before
    world.close()


def test_routes_fit_after_a_restart_that_finds_them_in_another_order(tmp_path: Path) -> None:
    """The first edge took the short link, which was away for a while, and the second one overbooked it."""
    ground = with_slots(**dict.fromkeys((*FOGS, "hub"), 0))
    short, long = Link("f2", "hub", 2, 0.0125), Link("f1", "hub", 2, 0.007)
    links = [link for link in ground.links if (link.source, link.target) not in (("f2", "hub"), ("f0", "hub"))]
    links = [n for n in links if (n.source, n.target) != ("f1", "hub") and n.source not in ("s0", "s1")]
    links += [short, long, Link("s0", "f2", 1), Link("s1", "f2", 1)]
    world = ServiceWorld(tmp_path, replace(ground, links=tuple(links)), Setting())
    for name, body in (("wet", "wet"), ("cars", "all")):
        world.texts[QueryId(name)] = text(body, "one")
    world.apply(RateChanged(0, "cars", 20.0, "s0"), RateChanged(0, "cars", 0.5, "s1"))
    world.apply(QueryAdded(0, query("wet", "wet", "one")))
    world.apply(LinkRemoved(0, "f2", "hub"))
    world.apply(LinkAdded(0, short), QueryAdded(0, query("cars", "all", "one")))
    world.settle()
    assert (world.loop.waiting(), faults(world)) == ({}, [])
    before = dict(world.catalog.placement.nodes)
    world.crash()
    world.settle()
    assert (world.loop.waiting(), faults(world)) == ({}, [])
    assert world.catalog.placement.nodes == before
    world.close()


def test_what_was_about_to_run_when_the_process_ended_is_not_remembered_for_ever(tmp_path: Path) -> None:
    world = LoopWorld(tmp_path, Ground.roomy(), Setting())
    world.apply(QueryAdded(0, query("q", "wet", "one")))
    world.crash()
    world.settle()
    running = {(f.id, f.version) for f in world.loop.deployer.deployment.fragments.values()}
    assert set(world.catalog.plan.former) == running
    world.close()


# ---------------------------------------------------------------- validation


def test_validation_knows_fragments_whose_change_waits_for_another_one(tmp_path: Path) -> None:
    """Channels between fragments that are about to go were reported as belonging to nobody."""
    world = LoopWorld(tmp_path, one_by_one(), Setting())
    world.apply(QueryAdded(0, query("q", "fast", "one")), QueryAdded(0, query("r", "all", "two")))
    world.settle()
    world.apply(PlacementChanged(0, operator_of(world, Filter), "cloud"))
    assert world.loop.deployer.under_way
    world.apply(QueryRemoved(0, QueryId("q")), QueryRemoved(0, QueryId("r")))
    assert world.loop.deployer.waiting
    assert world.validate() == []
    world.settle()
    assert leftovers(world) == []
    world.close()


# ---------------------------------------------------------------- seeds


SEEDS = {
    "channels kept paths over links that were gone": (24, 69, 74, 92, 97, 123, 128, 131, 161, 190, 213, 299, 309, 359),
    "fragments stayed whose channels were gone": (100, 269),
    "a restart made fragments without inputs": (144, 156, 245, 258),
    "fragments ran on nodes that were gone": (57, 327, 374),
    "a reason to wait stayed after it had come to an end": (10221,),
    "an operator waited for room that was given back": (1380,),
    "a source waited beside one that was gone": (435,),
}
"""Schedules that failed before this was mended."""
WIDE_SEEDS = {
    "no room was said where links are too thin for two flows": (20065,),
    "an operator had to leave a node that its mechanism would not choose": (20244,),
}
PARTED_SEEDS = {"a restart counted a rate that had not reached a source that waited": (139,)}


@pytest.mark.parametrize("seeds", SEEDS.values(), ids=SEEDS)
def test_a_schedule_that_failed_once_does_not_again(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        assert Schedule.drawn(tmp_path / str(seed), seed).stuck == []


@pytest.mark.parametrize("seeds", WIDE_SEEDS.values(), ids=WIDE_SEEDS)
def test_a_wide_schedule_that_failed_once_does_not_again(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        assert Schedule.wide(tmp_path / str(seed), seed).stuck == []


@pytest.mark.parametrize("seeds", PARTED_SEEDS.values(), ids=PARTED_SEEDS)
def test_a_schedule_with_nova_that_failed_once_does_not_again(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        assert Schedule.parted(tmp_path / str(seed), seed).crashes > 0


def test_a_refused_batch_changes_nothing(opened: Opening) -> None:
    world = opened(Ground.roomy(), fast=("fast", "one"))
    before = dict(world.catalog.placement.nodes), dict(world.catalog.placement.routes)
    with pytest.raises(InputError, match="event 2 of 2"):
        world.apply(NodeRemoved(0, "f0"), NodeAdded(0, world.ground.node("f1")))
    world.decided.clear()
    assert (dict(world.catalog.placement.nodes), dict(world.catalog.placement.routes)) == before
    world.clock.now_ms += LONG_MS
    assert world.settle()
    assert faults(world) == []
