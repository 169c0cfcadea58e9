"""A query is stopped while it moves from one mechanism's placement to another's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meander.adapt.decisions import Transition
from meander.model.events import CapacityChanged, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from tests.coordinator.loop.catalog_checks import catalog_faults
from tests.coordinator.loop.deployment_checks import deployment_faults, host_faults, step_faults
from tests.coordinator.loop.ground import Ground, query, text
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.test_faults import tuples_flow
from tests.coordinator.loop.world import ServiceWorld, Setting


@pytest.mark.parametrize("restarts", [False, True], ids=["", "and a restart"])
@pytest.mark.parametrize("steps", range(4))
def test_a_query_in_a_transition_could_not_be_stopped(tmp_path: Path, steps: int, restarts: bool) -> None:
    """One whose function takes long never ends its transition, and keeps everybody waiting meanwhile."""
    world = ServiceWorld(tmp_path, Ground.roomy(), Setting())
    for name, body in (("gone", "load"), ("stays", "fast")):
        world.texts[QueryId(name)] = text(body, "one")
        world.apply(QueryAdded(0, query(name, body, "one")))
    world.settle()
    world.feed(np.random.default_rng(1))
    world.settle()
    transitions = world.core.adaptation.transitions
    transitions.start(Transition(QueryId("gone"), "bottom_up", "producer_consumer", {}, 0, protocol="mfgs_concurrent"))
    for _ in range(steps):
        world.clock.now_ms += 50
        world.step()
        world.loop.poll()
        transitions.poll()
    assert transitions.under_way, "it is to be stopped on its way"
    world.apply(QueryRemoved(0, QueryId("gone")))
    assert not transitions.under_way
    if restarts:
        world.crash()
    assert world.settle()
    assert QueryId("gone") not in world.catalog.plan.queries
    assert not world.loop.deployer.placed.held
    assert not world.loop.deployer.special
    found = [*catalog_faults(world.catalog), *step_faults(world), *deployment_faults(world), *host_faults(world)]
    assert found == []
    assert tuples_flow(world, "stays", "one")
    world.apply(QueryRemoved(0, QueryId("stays")), CapacityChanged(0, "cloud", slots=50))
    assert world.settle()
    assert leftovers(world) == []
    world.close()
