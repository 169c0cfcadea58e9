"""A dry run says what happens then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meander.coordinator.service.dry_run_report import try_changes
from meander.model.events import CapacityChanged, ChangeEvent, LinkAdded, LinkRemoved, PlacementChanged, QueryAdded
from meander.model.ids import QueryId
from meander.model.operators import Map, Union
from meander.model.topology.elements import Link
from meander.run.failures import Cause
from meander.run.fragments.routing import Pause
from tests.coordinator.loop.ground import Ground, query, text
from tests.coordinator.loop.test_faults import operator_of
from tests.coordinator.loop.world import ServiceWorld, Setting


def opened(directory: Path, setting: Setting, **queries: str) -> ServiceWorld:
    ground = Ground.roomy()
    links = [replace(k, latency_ms=1) for k in ground.links]
    world = ServiceWorld(directory, replace(ground, links=tuple(links)), setting)
    for name, body in queries.items():
        world.texts[QueryId(name)] = text(body, "one")
        world.apply(QueryAdded(0, query(name, body, "one")))
    assert world.settle()
    return world


def tried(world: ServiceWorld, *events: ChangeEvent) -> dict[str, Any]:
    return try_changes(world.core, world._changes(events))


def test_operators_that_are_set_apart_do_not_count_as_changed(tmp_path: Path) -> None:
    """The dry run joined what had been set apart: sixteen fragments were said to change, and two did."""
    world = opened(tmp_path, Setting(), fast="fast", kmh="kmh")
    deployer, failing = world.loop.deployer, operator_of(world, Map)
    fragment = deployer.deployment.owner[failing]
    world.host.routing.pause(fragment, Pause("a value broke it", Cause.DATA, frozenset({failing})))
    assert world.settle()
    assert deployer.placed.apart
    event = PlacementChanged(0, operator_of(world, Union), "f1")
    said = tried(world, event)
    world.apply(event)
    changed = {f for each in deployer.under_way.values() for f in each.change.fragments}
    assert said["fragments"] == len(changed)
    world.close()


@pytest.mark.parametrize("mechanism", ["random", "bottom_up"])
def test_chance_decides_as_it_will(tmp_path: Path, mechanism: str) -> None:
    """A mechanism that draws was tried with the draws of the first batch."""
    world = opened(tmp_path, Setting(mechanism), fast="fast", wet="wet", all="all")
    for near, far in (("f1", "f0"), ("f2", "f1"), ("f0", "f2")):
        events: list[ChangeEvent] = [
            LinkRemoved(0, "s0", far),
            LinkAdded(0, Link("s0", near, 1)),
            CapacityChanged(0, far, slots=1),
        ]
        said = tried(world, *events)
        before = dict(world.catalog.placement.nodes)
        world.apply(*events)
        name, now = world.catalog.topology.name, world.catalog.placement.nodes
        moved = {int(o): name(n) for o, n in now.items() if before.get(o) != n}
        assert {m["operator"]: m["to"] for m in said["moves"]} == moved
        world.settle()
    world.close()
