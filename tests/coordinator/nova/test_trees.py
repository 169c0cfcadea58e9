"""Aggregates that Nova places as a tree: every result once and to the last bit, through changes and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    JoinMatrixChanged,
    LinkAdded,
    MechanismChanged,
    NodeRemoved,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import NodeId, QueryId
from meander.model.topology.elements import Link
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.tree_query import TreeQuery
from tests.coordinator.loop.ground import FOGS, SENSORS, SINKS, STREAMS, Ground
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.world import ServiceWorld, Setting
from tests.coordinator.nova.test_in_service import run

LOAD = QueryId("load")
TEXT = (
    "SELECT window_start, road, count(*) AS n, min(id) AS first, max(speed) * 2 AS v, count(road) AS known FROM cars "
    "WHERE speed > 3 GROUP BY road WINDOW {} HAVING n > 0 INTO one"
)
WINDOWS = ("TUMBLING(ts, 500 ms)", "SLIDING(ts, 900 ms, 300 ms)")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServiceWorld]:
    found = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    found.engine.parted.settings = NovaQuerySettings.of({"fan_in": 2})
    yield found
    found.close()


def added(world: ServiceWorld, text: str) -> QueryAdded:
    (found,) = sql(text, STREAMS, SINKS, LOAD).queries
    world.texts[found.id] = text
    return QueryAdded(0, found, "nova")


def nodes(world: ServiceWorld) -> list[str]:
    parted = world.engine.parted.by_name[LOAD]
    assert isinstance(parted, TreeQuery)
    return [world.catalog.topology.name(NodeId(m.node)) for m in parted.merges]


@pytest.mark.parametrize("window", WINDOWS)
def test_merges_move_with_their_state_through_changes_and_crashes(world: ServiceWorld, window: str) -> None:
    rng, event = np.random.default_rng(4), added(world, TEXT.format(window))
    world.apply(CapacityChanged(0, "cloud", capacity_tps=15.0), event)
    assert world.settle()
    assert len(nodes(world)) > 1, "the sink cannot take in all tuples"
    run(world, rng)
    moved = 0
    for node in (nodes(world)[0], "f0", "f1"):
        before = nodes(world)
        world.apply(CapacityChanged(0, before[0], capacity_tps=0.0), CapacityChanged(0, node, capacity_tps=0.0))
        moved += nodes(world) != before
        run(world, rng, 2)
        world.crash()
    assert moved > 1
    before = nodes(world)
    world.crash()
    assert nodes(world) == before, "nothing is decided anew"
    detours: list[ChangeEvent] = [
        LinkAdded(0, Link(sensor, f"f{(number + 1) % 3}", 3)) for number, sensor in enumerate(SENSORS)
    ]
    detours += [LinkAdded(0, Link(fog, "cloud", 20)) for fog in FOGS]
    world.apply(*detours, RateChanged(0, "cars", 4.0), NodeRemoved(0, before[0]))
    assert before[0] not in nodes(world)
    run(world, rng)
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    wanted = world.tuples.expected(event.query)["one"]
    assert Counter(world.results()[LOAD, "one"]) == Counter(wanted)
    assert len(wanted) > 10
    world.apply(QueryRemoved(0, LOAD))
    assert world.settle()
    assert leftovers(world) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("SELECT approx_count_distinct(id) AS n FROM cars WINDOW TUMBLING(ts, 1 s)", "approx_count_distinct cannot be"),
        ("SELECT count(*) AS n FROM cars WINDOW SESSION(ts, 1 s)", "are not known before all tuples are there"),
        ("SELECT id FROM cars", "it has no join, and not exactly one aggregate"),
    ],
)
def test_what_cannot_be_merged_in_a_tree_is_refused_with_the_reason(world: ServiceWorld, body: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        world.apply(added(world, f"{body} INTO one"))
    assert not world.catalog.plan.queries


def test_a_tree_has_no_join_matrix_and_stays_with_its_mechanism(world: ServiceWorld) -> None:
    world.apply(added(world, TEXT.format(WINDOWS[0])))
    assert world.settle()
    with pytest.raises(InputError, match="has no join, and so no join matrix"):
        world.apply(JoinMatrixChanged(0, LOAD, (("s0", "s1"),)))
    with pytest.raises(InputError, match="has no join, so it cannot go to Nova or leave it while it runs"):
        world.apply(MechanismChanged(0, LOAD, "bottom_up"))
