"""A running query that goes to Nova and leaves it again: every result once, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.problems import ServiceRefusedError
from meander.coordinator.service.switching import switch
from meander.model.errors import InputError
from meander.model.events import CapacityChanged, ChangeEvent, MechanismChanged, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.place.nova.queries.cascade import CascadedQuery
from tests.coordinator.loop.ground import Ground, query, text
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.world import ServiceWorld, Setting
from tests.coordinator.nova.test_in_service import NARROW, PAIRS, run, shown

TO_NOVA = MechanismChanged(0, PAIRS, "nova")
AWAY = MechanismChanged(0, PAIRS, "bottom_up")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServiceWorld]:
    found = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    yield found
    found.close()


def added(world: ServiceWorld, name: str, body: str = "pairs", mechanism: str = "", into: str = "one") -> QueryAdded:
    found = query(name, body, into)
    world.texts[found.id] = text(body, into)
    return QueryAdded(0, found, mechanism)


def parts(world: ServiceWorld) -> int:
    return len(world.engine.parted.joined(PAIRS, away=True).wiring.active)


def on_its_way(world: ServiceWorld) -> bool:
    parted = world.engine.parted.by_name.get(PAIRS)
    return isinstance(parted, CascadedQuery) and parted.wiring.legacy is not None


def later(world: ServiceWorld, rng: np.random.Generator, moments: int = 12) -> None:
    """Time goes on for longer than windows last."""
    run(world, rng, moments)
    assert world.settle()
    run(world, rng)


def finished(world: ServiceWorld, *wanted: QueryAdded) -> None:
    """All results are out, each once."""
    world.end_streams()
    assert world.settle()
    assert world.validate() == []
    for event in wanted:
        expected = world.tuples.expected(event.query)["one"]
        assert Counter(world.results()[event.query.id, "one"]) == Counter(expected)
        assert len(expected) > 10


def test_a_running_query_goes_to_nova_and_its_former_join_ends_with_its_windows(world: ServiceWorld) -> None:
    rng, event = np.random.default_rng(1), added(world, "pairs0")
    world.apply(*NARROW[:1])
    world.apply(event)
    assert world.settle()
    run(world, rng)
    world.apply(TO_NOVA)
    assert shown(world)["mechanism"] == "nova"
    assert on_its_way(world)
    former = world.engine.parted.joined(PAIRS, away=True).wiring.retired[0].operator
    later(world, rng)
    assert not on_its_way(world)
    assert former not in world.catalog.plan.operators
    finished(world, event)


def test_a_query_leaves_nova_and_another_mechanism_places_all_of_it(world: ServiceWorld) -> None:
    rng, event = np.random.default_rng(2), added(world, "pairs0", mechanism="nova")
    world.apply(*NARROW)
    world.apply(event)
    assert world.settle()
    run(world, rng)
    assert parts(world) > 1
    world.apply(*(CapacityChanged(0, e.node, capacity_tps=100.0) for e in NARROW))
    world.apply(AWAY)
    assert shown(world)["mechanism"] == "bottom_up"
    later(world, rng)
    wiring, plan = world.engine.parted.joined(PAIRS, away=True).wiring, world.catalog.plan
    assert not wiring.retired
    (whole,) = wiring.parts
    assert whole.operator is not None
    assert plan[whole.operator].pin is None
    assert PAIRS not in plan.replacing
    world.crash()
    assert shown(world)["mechanism"] == "bottom_up"
    run(world, rng)
    (whole,) = world.engine.parted.joined(PAIRS, away=True).wiring.parts
    assert whole.operator is not None
    placed = world.catalog.placement.nodes
    before = placed[whole.operator]
    world.apply(CapacityChanged(0, world.catalog.topology.name(before), slots=0))
    assert placed[whole.operator] != before
    run(world, rng)
    finished(world, event)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_while_it_goes_back_and_forth_results_come_once(world: ServiceWorld, seed: int) -> None:
    rng = np.random.default_rng(seed)
    event, other = added(world, "pairs0", into="one"), added(world, "pairs1", into="one")
    world.apply(event, *([other] if seed % 2 else []))
    assert world.settle()
    run(world, rng)
    to_nova = True
    for _ in range(4):
        changes: list[ChangeEvent] = [TO_NOVA if to_nova else AWAY]
        if not on_its_way(world):
            world.apply(*changes)
            to_nova = not to_nova
        for _ in range(int(rng.integers(1, 12))):
            run(world, rng, 1)
            if rng.random() < 0.25:
                world.crash()
            if rng.random() < 0.2:
                node = str(rng.choice(["hub", "f0", "f1", "f2"]))
                world.apply(CapacityChanged(0, node, capacity_tps=float(rng.choice([25.0, 60.0, 100.0]))))
    finished(world, event, *([other] if seed % 2 else []))
    for name in list(world.catalog.plan.queries):
        world.apply(QueryRemoved(0, name))
    world.crash()
    assert world.settle()
    assert leftovers(world) == []


def test_ordinary_queries_that_come_and_go_keep_their_numbers_although_one_went_to_nova(world: ServiceWorld) -> None:
    rng, event = np.random.default_rng(4), added(world, "pairs0")
    first, second = added(world, "wet1", "wet"), added(world, "wet2", "wet")
    world.apply(added(world, "wet0", "wet"), event)
    world.apply(first)
    assert world.settle()
    run(world, rng)
    world.apply(TO_NOVA)
    later(world, rng)
    assert world.engine.parted.joined(PAIRS, away=True).wiring.legacy is None
    for name in ("wet0", "wet1"):
        world.apply(QueryRemoved(0, QueryId(name)))
    assert world.settle()
    world.apply(second)
    assert world.settle()
    before = {o: str(r.spec) for o, r in world.catalog.plan.operators.items()}
    world.crash()
    assert {o: str(r.spec) for o, r in world.catalog.plan.operators.items()} == before
    run(world, rng)
    finished(world, event)


def asked(world: ServiceWorld, name: str, mechanism: str, *, dry_run: bool = False) -> tuple[int, dict[str, Any]]:
    reader = ChangeReader(world.world.streams, world.world.sinks)
    status, body = switch(world.core, reader.read, QueryId(name), mechanism, None, dry_run=dry_run)
    assert isinstance(body, dict)
    return status, body


def test_a_switch_says_what_it_takes_and_what_cannot_go_over_is_refused_with_the_remedy(world: ServiceWorld) -> None:
    world.apply(added(world, "pairs0"), added(world, "wet0", "wet"))
    assert world.settle()
    status, told = asked(world, "pairs0", "nova", dry_run=True)
    assert status == HTTPStatus.OK
    assert told["transition"]["moves"] > 0
    assert PAIRS not in world.engine.parted.by_name
    with pytest.raises(ServiceRefusedError, match="it has no join, and not exactly one aggregate"):
        asked(world, "wet0", "nova")
    with pytest.raises(InputError, match="'novva'"):
        asked(world, "pairs0", "novva")
    status, told = asked(world, "pairs0", "nova")
    assert status == HTTPStatus.ACCEPTED
    assert told["predicted"]["bytes"] == 0
    for mechanism in ("nova", "bottom_up"):
        with pytest.raises(ServiceRefusedError, match="on its way to Nova"):
            asked(world, "pairs0", mechanism)


def test_a_text_names_the_mechanism_of_its_query_and_limits_of_its_own(world: ServiceWorld) -> None:
    def named(name: str, options: str) -> QueryAdded:
        world.texts[QueryId(name)] = said = f"{text('pairs', 'one')} WITH ({options})"
        return QueryAdded(0, world.reader.query(said, name))

    world.apply(*NARROW)
    world.apply(named("pairs0", "mechanism = 'nova', bandwidth_tps = '8', sigma = 'auto'"))
    world.apply(named("pairs1", "mechanism = 'top_down'"))
    assert world.settle()
    assert [shown(world, name)["mechanism"] for name in ("pairs0", "pairs1")] == ["nova", "top_down"]
    joins = world.engine.parted.joined(PAIRS, away=True).reoptimiser.joins
    takes = [10.0 * len(r.left) / r.left_parts + 10.0 * len(r.right) / r.right_parts for r in joins.replicas()]
    assert max(takes) <= 8
    world.crash()
    assert [shown(world, name)["mechanism"] for name in ("pairs0", "pairs1")] == ["nova", "top_down"]
    assert world.engine.parted.joined(PAIRS, away=True).joins.settings.bandwidth_tps == 8
    for options, complaint in (("mechanism = 'novva'", "novva"), ("sigmma = '1'", "option of a query 'sigmma'")):
        with pytest.raises(InputError, match=complaint):
            world.apply(named("pairs2", options))


def test_a_query_that_leaves_nova_as_soon_as_it_has_come_loses_no_pair_of_what_came_while_its_parts_were_warming(
    world: ServiceWorld,
) -> None:
    rng, event = np.random.default_rng(7), added(world, "pairs0")
    world.apply(event)
    assert world.settle()
    run(world, rng, 12)
    world.apply(TO_NOVA)
    for _ in range(40):
        if not on_its_way(world):
            break
        run(world, rng, 1)
    assert not on_its_way(world)
    world.apply(AWAY)
    run(world, rng)
    finished(world, event)
