"""Nova as a mechanism of the service: asked for or usual, responsible while the query runs, and after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.service.dry_run_report import try_changes
from meander.model.errors import InputError
from meander.model.events import CapacityChanged, JoinMatrixChanged, NodeRemoved, QueryAdded, QueryRemoved, RateChanged
from meander.model.ids import QueryId
from meander.model.operators import Source
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.reconfigure.driver.parts import SiteMap, cut
from tests.coordinator.loop.ground import Ground, query, text
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.world import ServiceWorld, Setting

PAIRS = QueryId("pairs0")
NARROW = [CapacityChanged(0, name, capacity_tps=12.0) for name in ("cloud", "hub", "f0", "f1", "f2", "s0", "s1", "s2")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServiceWorld]:
    found = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    yield found
    found.close()


def added(world: ServiceWorld, body: str = "pairs", mechanism: str = "nova", into: str = "one") -> QueryAdded:
    found = query(f"{body}0", body, into)
    world.texts[found.id] = text(body, into)
    return QueryAdded(0, found, mechanism)


def run(world: ServiceWorld, rng: np.random.Generator, moments: int = 4) -> None:
    for _ in range(moments):
        world.feed(rng)
        world.step()
        world.poll()


def nodes_of(world: ServiceWorld) -> set[str]:
    return {world.catalog.topology.name(p.node) for p in world.engine.parted.joined(PAIRS).wiring.active}


def sources(world: ServiceWorld) -> list[Source]:
    return [r.spec for r in world.catalog.plan.operators.values() if isinstance(r.spec, Source)]


def shown(world: ServiceWorld, name: str = "pairs0") -> dict[str, Any]:
    return world.core.publisher.query(name)


def test_a_join_is_cut_where_nodes_take_in_little_and_goes_on_whole_through_changes_and_crashes(
    world: ServiceWorld,
) -> None:
    rng = np.random.default_rng(3)
    world.apply(*NARROW)
    event = added(world)
    world.apply(added(world, "wet", ""), event)
    assert world.settle()
    assert shown(world)["mechanism"] == "nova"
    assert len(nodes_of(world)) > 1, "no node takes in all of it"
    run(world, rng)
    world.apply(RateChanged(0, "cars", 4.0, "s0"))
    run(world, rng)
    before = nodes_of(world)
    world.crash()
    assert nodes_of(world) == before, "nothing is decided anew"
    gone = sorted(before - {"cloud", "f0", "f1", "f2", "s0", "s1", "s2"} or {"cloud"})[0]
    world.apply(CapacityChanged(0, gone, capacity_tps=0.0))
    assert gone not in nodes_of(world)
    run(world, rng)
    world.crash()
    run(world, rng)
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    wanted = world.tuples.expected(event.query)["one"]
    assert sorted(world.results()["pairs0", "one"]) == sorted(wanted)
    assert len(wanted) > 10
    world.apply(QueryRemoved(0, PAIRS))
    world.apply(QueryRemoved(0, QueryId("wet0")))
    world.crash()
    assert world.settle()
    assert leftovers(world) == []


def test_the_join_matrix_of_a_running_join_changes_exactly_once_and_survives_a_crash(world: ServiceWorld) -> None:
    rng, event = np.random.default_rng(5), added(world)
    world.apply(*(replace(each, capacity_tps=25.0) for each in NARROW))
    world.apply(event)
    assert world.settle()
    parted = world.engine.parted.joined(PAIRS)
    assert parted.matrix.pairs == [("s0", "s2"), ("s1", "s2")]
    run(world, rng)
    world.apply(JoinMatrixChanged(0, PAIRS, (("s0", "s2"),)))
    run(world, rng)
    world.crash()
    assert world.engine.parted.joined(PAIRS).matrix.pairs == [("s0", "s2")]
    world.clock.now_ms += 60_000
    run(world, rng, 6)
    assert world.settle()
    run(world, rng)
    parted = world.engine.parted.joined(PAIRS)
    assert not parted.wiring.retired, "what has retired has ended, as time went on"
    assert {number for p in parted.wiring.active for number in (p.left, p.right)} == {0, 2}
    assert not any(source.node == "s1" for source in sources(world)), "a source that joins nobody is not read"
    world.apply(JoinMatrixChanged(0, PAIRS, (("s1", "s2"), ("s0", "s2"))))
    assert any(source.node == "s1" for source in sources(world)), "a new source of a running join"
    run(world, rng)
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    got, whole = world.results()["pairs0", "one"], world.tuples.expected(event.query)["one"]
    assert max(Counter(got).values()) == 1
    assert set(got) <= set(whole)
    by_s0 = {row[1] for row in world.tuples.entered["cars", "s0"]}
    assert sorted(r for r in got if r[0] in by_s0) == sorted(r for r in whole if r[0] in by_s0), (
        "s0 joined all the time"
    )
    assert len([r for r in got if r[0] not in by_s0]) < len([r for r in whole if r[0] not in by_s0])


def test_a_join_matrix_that_makes_no_sense_is_refused_and_changes_nothing(world: ServiceWorld) -> None:
    world.apply(added(world), added(world, "wet", ""))
    assert world.settle()
    for pairs, complaint in (
        ((("s9", "s2"),), "'s9'"),
        ((("s2", "s0"),), "producer of stream 'cars'"),
        ((), "at least one"),
    ):
        with pytest.raises(InputError, match=complaint):
            world.apply(JoinMatrixChanged(0, PAIRS, pairs))
    with pytest.raises(InputError, match="is not placed by Nova and has no join matrix"):
        world.apply(JoinMatrixChanged(0, QueryId("wet0"), (("s0", "s2"),)))
    assert world.engine.parted.joined(PAIRS).matrix.pairs == [("s0", "s2"), ("s1", "s2")]


def test_no_part_takes_in_more_than_the_bandwidth_threshold_and_nodes_keep_what_they_are_to_keep(
    world: ServiceWorld,
) -> None:
    world.engine.parted.settings = NovaQuerySettings.of({"sigma": "auto", "bandwidth_tps": 8, "least_free_tps": 15})
    world.apply(*(replace(event, capacity_tps=40.0) for event in NARROW))
    world.apply(added(world))
    assert world.settle()
    joins = world.engine.parted.joined(PAIRS).reoptimiser.joins
    assert not len(joins.unplaced)
    takes = [10.0 * len(r.left) / r.left_parts + 10.0 * len(r.right) / r.right_parts for r in joins.replicas()]
    assert max(takes) <= 8
    assert len(takes) > 4
    assert world.validate() == []


def test_a_node_that_draws_much_is_left_to_others_as_far_as_latency_is_worth_less(world: ServiceWorld) -> None:
    world.apply(CapacityChanged(0, "cloud", capacity_tps=5.0))  # where the results go something runs in any case
    world.apply(added(world))
    assert world.settle()
    usual = nodes_of(world)
    world.apply(QueryRemoved(0, PAIRS))
    assert world.settle()
    topology = world.catalog.topology
    for name in usual:
        topology.nodes.power_w[topology.id(name)] = 200.0
    world.engine.parted.settings = NovaQuerySettings.of({"ms_per_w": 1})
    world.apply(added(world))
    assert world.settle()
    assert not nodes_of(world) & usual


def test_a_dry_run_says_where_parts_would_go_and_changes_nothing(world: ServiceWorld) -> None:
    world.apply(*(replace(event, capacity_tps=25.0) for event in NARROW))
    world.apply(added(world))
    assert world.settle()
    before, numbers = nodes_of(world), world.catalog.plan.next_operator
    hit = sorted(before)[0]
    reader = ChangeReader(world.world.streams, world.world.sinks)
    told = try_changes(world.core, reader.read([CapacityChanged(0, hit, capacity_tps=0.0)]))
    assert told["moves"]
    assert all("capacity changed" in m["cause"] for m in told["moves"])
    assert (nodes_of(world), world.catalog.plan.next_operator) == (before, numbers)
    world.apply(CapacityChanged(0, hit, capacity_tps=0.0))
    assert hit not in nodes_of(world)
    assert world.settle()


def test_what_it_cannot_place_is_refused_where_it_was_asked_for(world: ServiceWorld) -> None:
    with pytest.raises(InputError, match="it has no join, and not exactly one aggregate"):
        world.apply(added(world, "wet"))
    world.apply(*(replace(event, capacity_tps=1.0) for event in NARROW))
    with pytest.raises(InputError, match="add capacity"):
        world.apply(added(world))
    assert not world.catalog.plan.queries


def test_where_it_is_the_usual_mechanism_other_queries_begin_with_another_for_a_reason(tmp_path: Path) -> None:
    world = ServiceWorld(tmp_path, Ground.roomy(), Setting(mechanism="nova"))
    try:
        world.apply(added(world, "wet", ""))
        world.apply(added(world, "pairs", ""))
        assert world.settle()
        assert shown(world)["mechanism"] == "nova"
        assert shown(world, "wet0")["mechanism"] == "bottom_up"
        assert "Nova cannot place it" in shown(world, "wet0")["chosen"]
        world.crash()
        assert [shown(world, name)["mechanism"] for name in ("pairs0", "wet0")] == ["nova", "bottom_up"]
        world.apply(NodeRemoved(0, "f2"))
        world.settle()
        assert world.validate() == []
    finally:
        world.close()


def test_a_site_is_told_of_a_new_cut_although_the_plan_has_forgotten_the_old_one(world: ServiceWorld) -> None:
    world.apply(*(replace(event, capacity_tps=25.0) for event in NARROW))
    world.apply(added(world))
    assert world.settle()
    hit = sorted(nodes_of(world))[0]
    world.decide(CapacityChanged(0, hit, capacity_tps=0.0))
    deployer, plan = world.loop.deployer, world.catalog.plan
    begun, _ = deployer.begin()
    sites = SiteMap(world.catalog.topology, lambda node: "west")
    for each in begun:
        change = each.change
        before = {c.upstream for c in change.channels_before.values()}
        assert before - set(plan.operators), "what sent on former channels has left the plan"
        parts = cut(each, plan, deployer.deployment, dict.fromkeys(change.fragments, "west"), sites)
        after = {c.id for c in change.channels_after.values()}
        assert after <= set(parts["west"].schemas)
        assert set(parts["west"].serialised) == set(change.fragments_after)
    assert begun
    for each in begun:
        deployer.failed(each.number, "only looked at")
    world.begin()
    assert world.settle()
