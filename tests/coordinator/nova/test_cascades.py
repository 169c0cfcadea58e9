"""Queries with several joins that Nova places: every result once, through changes and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    JoinMatrixChanged,
    LinkAdded,
    MechanismChanged,
    NodeRemoved,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import QueryId
from meander.model.topology.elements import Link
from meander.place.nova.queries.cascade import CascadedQuery
from tests.coordinator.loop.ground import SENSORS, SINKS, STREAMS, Ground
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.world import ServiceWorld, Setting
from tests.coordinator.nova.test_in_service import NARROW, run

CHAIN = QueryId("chain")
TEXT = (
    "SELECT a.id AS car, b.id AS rain, c.id AS other FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 300 ms "
    "JOIN (SELECT id, road FROM cars WHERE speed > 5) AS c ON b.road = c.road WITHIN 300 ms INTO one"
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServiceWorld]:
    found = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    yield found
    found.close()


def added(world: ServiceWorld, text: str = TEXT) -> QueryAdded:
    (found,) = sql(text, STREAMS, SINKS, "chain").queries
    world.texts[found.id] = text
    return QueryAdded(0, found, "nova")


def chain(world: ServiceWorld) -> CascadedQuery:
    return world.engine.parted.joined(CHAIN)


def finished(world: ServiceWorld, event: QueryAdded) -> None:
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    wanted = world.tuples.expected(event.query)["one"]
    assert Counter(world.results()[CHAIN, "one"]) == Counter(wanted)
    assert len(wanted) > 10


def test_joins_that_read_joins_are_cut_and_cut_anew_through_changes_and_crashes(world: ServiceWorld) -> None:
    rng = np.random.default_rng(3)
    world.apply(*(replace(each, capacity_tps=20.0) for each in NARROW))
    event = added(world)
    world.apply(event)
    assert world.settle()
    assert len(chain(world).stages) == 2
    assert len(chain(world).running) > 2, "no node takes in all of it"
    run(world, rng)
    world.apply(RateChanged(0, "cars", 4.0, "s0"))
    run(world, rng)
    before = [(r.part, r.operator) for r in chain(world).running]
    world.crash()
    assert [(r.part, r.operator) for r in chain(world).running] == before, "nothing is decided anew"
    run(world, rng, 2)
    hub = chain(world).hubs[0]
    detours = [LinkAdded(0, Link(sensor, f"f{(number + 1) % 3}", 3)) for number, sensor in enumerate(SENSORS)]
    world.apply(*detours, NodeRemoved(0, hub))
    assert chain(world).hubs[0] != hub
    run(world, rng)
    world.crash()
    run(world, rng)
    finished(world, event)
    world.apply(QueryRemoved(0, CHAIN))
    assert world.settle()
    assert leftovers(world) == []


def test_any_changes_and_crashes_give_the_output_of_the_whole_joins(world: ServiceWorld) -> None:
    rng = np.random.default_rng(17)
    world.apply(*(replace(each, capacity_tps=18.0) for each in NARROW))
    event = added(world)
    world.apply(event)
    assert world.settle()
    stages_changed: Counter[int] = Counter()
    for _ in range(14):
        node = str(rng.choice(["cloud", "hub", "f0", "f1", "f2", "s0", "s1", "s2"]))
        before = [{r.part for r in stage.wiring.parts} for stage in chain(world).stages]
        hubs = chain(world).hubs
        match int(rng.integers(0, 4)):
            case 0:
                world.apply(CapacityChanged(0, node, capacity_tps=float(rng.choice([0.0, 9.0, 18.0, 30.0]))))
            case 1:
                world.apply(RateChanged(0, str(rng.choice(["cars", "rain"])), float(rng.integers(2, 14))))
            case 2:
                world.apply(CapacityChanged(0, hubs[0], capacity_tps=0.0), CapacityChanged(0, node, capacity_tps=30.0))
            case _ if rng.random() < 0.5:
                world.crash()
        after = [{r.part for r in stage.wiring.parts} for stage in chain(world).stages]
        stages_changed.update(n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
        run(world, rng, int(rng.integers(1, 3)))
    assert min(stages_changed[0], stages_changed[1]) > 2, "both joins are cut anew"
    finished(world, event)


def test_the_matrix_of_each_join_changes_for_itself_and_a_new_source_comes(world: ServiceWorld) -> None:
    rng, event = np.random.default_rng(5), added(world)
    world.apply(event)
    assert world.settle()
    assert chain(world).matrix.pairs == [("s0", "s2"), ("s1", "s2"), ("join1", "s0"), ("join1", "s1")]
    run(world, rng, 10)
    world.apply(JoinMatrixChanged(0, CHAIN, (("s0", "s2"),)))
    world.apply(JoinMatrixChanged(0, CHAIN, (("join1", "s1"),)))
    assert chain(world).matrix.pairs == [("s0", "s2"), ("join1", "s1")]
    run(world, rng)
    world.crash()
    assert chain(world).matrix.pairs == [("s0", "s2"), ("join1", "s1")]
    world.apply(JoinMatrixChanged(0, CHAIN, (("s0", "s2"), ("s1", "s2"), ("join1", "s1"))))
    run(world, rng, 8)
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    got, whole = world.results()[CHAIN, "one"], world.tuples.expected(event.query)["one"]
    assert max(Counter(got).values()) == 1
    assert set(got) < set(whole)
    cars = {node: {row[1] for row in world.tuples.entered["cars", node]} for node in ("s0", "s1")}
    for_all_the_time = [row for row in whole if row[0] in cars["s0"] and row[2] in cars["s1"]]
    assert len(for_all_the_time) > 3
    assert set(for_all_the_time) <= set(got)
    for pairs, complaint in (((("s9", "s2"),), "pair of producers 's9:s2'"), ((), "at least one")):
        with pytest.raises(InputError, match=complaint):
            world.apply(JoinMatrixChanged(0, CHAIN, pairs))


def test_it_neither_comes_to_nova_nor_leaves_it_while_it_runs(world: ServiceWorld) -> None:
    world.apply(replace(added(world), mechanism=""))
    assert world.settle()
    with pytest.raises(InputError, match="2 joins, so it cannot go to Nova or leave it while it runs; stop it"):
        world.apply(MechanismChanged(0, CHAIN, "nova"))
    world.apply(QueryRemoved(0, CHAIN))
    assert world.settle()
    world.apply(added(world))
    assert world.settle()
    with pytest.raises(InputError, match="2 joins, so it cannot go to Nova or leave it while it runs; stop it"):
        world.apply(MechanismChanged(0, CHAIN, "bottom_up"))
