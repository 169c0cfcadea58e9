"""What is said of a query is said of its own operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from meander.coordinator.condition.condition import Condition, Status, query_condition
from meander.coordinator.condition.facts import facts_of
from meander.model.events import QueryAdded
from meander.model.ids import FragmentId, OperatorId, QueryId
from meander.model.operators import Map, Source
from meander.model.topology.elements import NodeKind
from meander.run.failures import Cause
from meander.run.fragments.routing import Pause
from meander.run.reporting.host_report import HostReport
from tests.coordinator.loop.ground import Ground, query, text
from tests.coordinator.loop.world import ServiceWorld, Setting


def sharing(directory: Path) -> ServiceWorld:
    """Two queries whose sources, filters and projections all run on the sensors."""
    ground = Ground.roomy()
    nodes = [replace(n, slots=9) if n.kind is NodeKind.SENSOR else n for n in ground.nodes]
    world = ServiceWorld(directory, replace(ground, nodes=tuple(nodes)), Setting())
    for name in ("fast", "kmh"):
        world.texts[QueryId(name)] = text(name, "one")
        world.apply(QueryAdded(0, query(name, name, "one")))
    assert world.settle()
    return world


def test_a_query_that_shares_a_fragment_with_one_that_fails_was_said_to_have_failed_itself(tmp_path: Path) -> None:
    """Until the fragment was split it was paused "until somebody resumes it", for the other's reason."""
    world = sharing(tmp_path)
    failing, fragment = _shared(world)
    world.host.routing.pause(fragment, Pause("a value broke it", Cause.DATA, frozenset({failing})))

    assert _condition(world, "kmh") == Condition(Status.PAUSED, f"operator {failing}: a value broke it")
    beside = _condition(world, "fast")
    assert beside.status is Status.WAITING
    assert "until what failed beside it is set apart: a value broke it" in (beside.reason or "")

    assert world.settle()
    assert _condition(world, "fast").status is Status.RUNNING
    assert _condition(world, "kmh").status is Status.PAUSED
    world.close()


def test_where_nobody_knows_which_operator_failed_all_of_the_fragment_has(tmp_path: Path) -> None:
    world = sharing(tmp_path)
    world.host.routing.pause(_shared(world)[1], Pause("something broke it", Cause.DATA))
    assert {_condition(world, name).status for name in ("fast", "kmh")} == {Status.PAUSED}
    world.close()


def test_a_query_says_which_of_its_sites_goes_on_as_a_replica_and_what_it_waits_for_there(tmp_path: Path) -> None:
    world = sharing(tmp_path)
    owner, source = world.loop.deployer.deployment.owner, _source(world, "fast")
    world.loop.driver.participants.sites[owner[source]] = "west"
    here = HostReport(stands_in="home")
    said = _condition(world, "fast", {"west": here})
    assert said.status is Status.RUNNING
    assert said.reason == "site west is gone, and what ran there goes on from its replica at the coordinator"
    late = "the replica of site west at hub is 4 s behind (1.2 MB), and results wait for it"
    assert _condition(world, "fast", {"west": HostReport(lagging=late)}) == Condition(Status.RUNNING, late)
    assert _condition(world, "fast", {"east": here}).reason is None
    stream = next(iter(world.catalog.streams))
    lost = replace(here, not_reached={stream: "rows are sent to that machine"})
    waiting = _condition(world, "fast", {"west": lost})
    assert waiting.status is Status.WAITING
    assert f"stream {stream} waits for site west, which is gone: rows are sent" in (waiting.reason or "")
    del world.loop.driver.participants.sites[owner[source]]
    world.close()


def _source(world: ServiceWorld, name: str) -> OperatorId:
    plan = world.catalog.plan
    return next(o for o in plan.serving(QueryId(name)) if isinstance(plan[o].spec, Source))


def _shared(world: ServiceWorld) -> tuple[OperatorId, FragmentId]:
    """An operator of `kmh` alone in a fragment that both have, and that fragment."""
    plan, deployment = world.catalog.plan, world.loop.deployer.deployment
    fast, kmh = (set(plan.serving(QueryId(name))) for name in ("fast", "kmh"))
    found = min(o for o in kmh - fast if isinstance(plan[o].spec, Map))
    fragment = deployment.owner[found]
    assert any(isinstance(plan[o].spec, Map) for o in fast.intersection(deployment.fragments[fragment].operators))
    return found, fragment


def _condition(world: ServiceWorld, name: str, reports: Mapping[str, HostReport] | None = None) -> Condition:
    operators = tuple(world.catalog.plan.serving(QueryId(name)))
    return query_condition(facts_of(world.loop, operators, (), reports or {}))
