"""The checks themselves: each finds what it is for, in a world that is as it should be but for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from meander.deploy.fragments import DeploymentChange
from meander.model.events import LinkAdded, LinkRemoved, QueryAdded
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.operators import Filter
from meander.model.topology.elements import Link
from meander.model.topology.path_cache import Path as Route
from meander.run.store.commit import Commit, RemoveChannel, Rewire
from meander.run.store.records.deployment import ChannelRecord
from meander.run.store.records.reconfigurations import ReconfigurationRecord
from tests.coordinator.loop.catalog_checks import catalog_faults
from tests.coordinator.loop.deployment_checks import deployment_faults, host_faults, step_faults
from tests.coordinator.loop.ground import Ground, query
from tests.coordinator.loop.reasons import reason_faults, stuck_faults
from tests.coordinator.loop.schedules import leftovers
from tests.coordinator.loop.world import LoopWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LoopWorld]:
    found = LoopWorld(tmp_path, Ground.roomy())
    found.apply(QueryAdded(0, query("q", "load", "one")), QueryAdded(0, query("r", "wet", "near")))
    assert found.settle()
    assert everything(found) == []
    yield found
    found.close()


def everything(world: LoopWorld) -> list[str]:
    found = [*catalog_faults(world.catalog), *reason_faults(world.catalog), *step_faults(world)]
    return [*found, *deployment_faults(world), *host_faults(world)]


def _filter(world: LoopWorld) -> OperatorId:
    return next(o for o, r in world.catalog.plan.operators.items() if isinstance(r.spec, Filter))


def _routed(world: LoopWorld) -> tuple[OperatorId, OperatorId]:
    return next(edge for edge, route in world.catalog.placement.routes.items() if len(route.arcs) > 0)


def _channel_key(world: LoopWorld) -> tuple[OperatorId, FragmentId]:
    return next(k for k, c in world.loop.deployer.deployment.channels.items() if c.path is not None)


def another_node(world: LoopWorld) -> None:
    world.catalog.placement.nodes[_filter(world)] = world.catalog.topology.id("cloud")


def another_route(world: LoopWorld) -> None:
    """The same ends, other hops."""
    edge = _routed(world)
    ends = world.catalog.placement.routes[edge].nodes
    via = next(n for n in world.catalog.topology.ids() if n not in ends)
    world.catalog.placement.routes[edge] = Route((ends[0], via, ends[-1]), (0, 1), 1.0)


def a_charge_too_many(world: LoopWorld) -> None:
    world.catalog.ledger.slots[world.catalog.topology.id("hub")] += 1


def traffic_too_little(world: LoopWorld) -> None:
    world.catalog.ledger.mbps[world.catalog.placement.routes[_routed(world)].arcs[0]] -= 2**-20


def an_index_that_forgot(world: LoopWorld) -> None:
    world.catalog.on_node.popitem()


def a_detour_of_a_channel(world: LoopWorld) -> None:
    """Its ends are right, its hops are not."""
    deployment = world.loop.deployer.deployment
    for key, channel in deployment.channels.items():
        if channel.path is not None:
            ends = channel.path.nodes[0], channel.path.nodes[-1]
            others = (r for r in _all_routes(world, Route(ends[:1], (), 0.0), ends[1]) if r.nodes != channel.path.nodes)
            detour = next(others, None)
            if detour is not None:
                deployment.channels[key] = replace(channel, path=detour)
                return
    raise AssertionError("no channel has another route")


def _all_routes(world: LoopWorld, route: Route, goal: NodeId) -> Iterator[Route]:
    """Every way to the goal that passes no node twice."""
    topology = world.catalog.topology
    if route.nodes[-1] == goal:
        yield route
        return
    for arc in topology.adjacency.leaving(route.nodes[-1]):
        tip = NodeId(int(topology.arcs.tip[arc]))
        if tip not in route.nodes:
            yield from _all_routes(world, Route((*route.nodes, tip), (*route.arcs, arc), 0.0), goal)


def a_channel_that_is_cut(world: LoopWorld) -> None:
    deployment, key = world.loop.deployer.deployment, _channel_key(world)
    deployment.channels[key] = replace(deployment.channels[key], path=None, is_cut=True)


def a_channel_that_is_cut_in_the_store(world: LoopWorld) -> None:
    channel = world.loop.deployer.deployment.channels[_channel_key(world)]
    world.host.store.commit(Commit(rewire=(Rewire(channel.id, channel.receiver, is_cut=True),)))


def a_channel_that_went(world: LoopWorld) -> None:
    channel = world.loop.deployer.deployment.channels[_channel_key(world)]
    world.host.store.commit(Commit(remove=(RemoveChannel(channel.id, discard=True),)))


def a_fragment_that_stopped(world: LoopWorld) -> None:
    world.host.routing.pause(next(iter(world.host.routing.fragments)), "no reason")


def a_fragment_that_went(world: LoopWorld) -> None:
    world.host.routing.remove([next(iter(world.host.routing.fragments))])


def a_record_too_many(world: LoopWorld) -> None:
    world.host.store.commit(Commit(records=(ReconfigurationRecord(77, DeploymentChange()),)))


def a_record_of_another_route(world: LoopWorld) -> None:
    channel = world.loop.deployer.deployment.channels[_channel_key(world)]
    world.host.store.commit(Commit(records=(ChannelRecord(replace(channel, path=None, is_cut=False)),)))


def a_source_that_nobody_feeds(world: LoopWorld) -> None:
    world.host.feeding.drop({ChannelId(c) for channels in world.host.feeding.channels.values() for c in channels})


def a_reason_that_is_not_true(world: LoopWorld) -> None:
    """An operator waits for a path that is there."""
    operator = _filter(world)
    record = world.catalog.plan[operator]
    world.catalog.lift(operator)
    for edge in world.catalog.plan.edges_of(operator):
        world.catalog.release_route(edge)
    record.reason = "no path leads from s0 to cloud"


DAMAGES: tuple[Callable[[LoopWorld], None], ...] = (
    another_node,
    another_route,
    a_charge_too_many,
    traffic_too_little,
    an_index_that_forgot,
    a_detour_of_a_channel,
    a_channel_that_is_cut,
    a_channel_that_is_cut_in_the_store,
    a_channel_that_went,
    a_fragment_that_stopped,
    a_fragment_that_went,
    a_record_too_many,
    a_record_of_another_route,
    a_source_that_nobody_feeds,
    a_reason_that_is_not_true,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_every_damage_is_found(world: LoopWorld, damage: Callable[[LoopWorld], None]) -> None:
    damage(world)
    assert everything(world) != []


def test_the_detour_is_found_by_its_hops_alone(world: LoopWorld) -> None:
    a_detour_of_a_channel(world)
    assert any("the catalog's route is" in fault for fault in deployment_faults(world))


def test_an_operator_that_could_run_is_stuck(world: LoopWorld) -> None:
    a_reason_that_is_not_true(world)
    assert stuck_faults(world.catalog)


def test_an_operator_without_a_path_waits_for_a_good_reason(world: LoopWorld) -> None:
    world.apply(LinkRemoved(0, "s2", "f2"))
    world.settle()
    assert world.loop.waiting()
    assert everything(world) == []
    assert stuck_faults(world.catalog) == []
    world.apply(LinkAdded(0, Link("s2", "f1", 1)))
    world.settle()
    assert not world.loop.waiting()


def test_what_runs_is_left_over_as_long_as_queries_are_there(world: LoopWorld) -> None:
    assert {line.split(":")[0] for line in leftovers(world)} >= {"operators", "fragments", "channels in the store"}
