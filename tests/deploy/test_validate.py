"""A deployment that is not what the catalog says is told apart from one that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.deploy.deployer import Deployer
from meander.deploy.fragments import Deployment, DeploymentChange, Placed, deploy
from meander.deploy.validate import validate
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved, QueryAdded, QueryRemoved
from meander.model.ids import FragmentId, QueryId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.path_cache import Path
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.place.worlds import EDGES, SENSORS, query, world


def running() -> tuple[Placed, Deployment]:
    catalog = world(3, slots=3, bandwidth_mbps=1000)
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, query(i, f"q{i}")) for i in range(4)])
    placed = Placed(catalog.plan, catalog.placement, catalog.topology)
    return placed, deploy(placed)


def _lose_fragment(placed: Placed, deployment: Deployment) -> None:
    number, fragment = next(iter(deployment.fragments.items()))
    channels = dict(deployment.channels_of(number))
    deployment.apply(DeploymentChange({number: fragment}, {}, channels, {}))


def _move_fragment(placed: Placed, deployment: Deployment) -> None:
    number, fragment = next(iter(deployment.fragments.items()))
    elsewhere = next(n for n in placed.topology.ids() if n != fragment.node)
    deployment.fragments[number] = replace(fragment, node=elsewhere)


def _keep_removed(placed: Placed, deployment: Deployment) -> None:
    fragment = next(f for f in deployment.fragments.values() if len(f.operators) == 1)
    del placed.plan.operators[fragment.operators[0]]


def _lose_channel(placed: Placed, deployment: Deployment) -> None:
    deployment.channels.popitem()


def _stale_path(placed: Placed, deployment: Deployment) -> None:
    key, channel = next((k, c) for k, c in deployment.channels.items() if c.path is not None)
    assert channel.path is not None
    middle = next(n for n in placed.topology.ids() if n not in channel.path.nodes)
    detour = Path((channel.path.nodes[0], middle, channel.path.nodes[-1]), channel.path.arcs, 9.0)
    deployment.channels[key] = replace(channel, path=detour)


def _needless_cut(placed: Placed, deployment: Deployment) -> None:
    key, channel = next((k, c) for k, c in deployment.channels.items() if c.path is not None)
    deployment.channels[key] = replace(channel, path=None, is_cut=True)


def _other_outputs(placed: Placed, deployment: Deployment) -> None:
    number, fragment = next((f, x) for f, x in deployment.fragments.items() if x.outputs)
    deployment.fragments[number] = replace(fragment, outputs=())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_lose_fragment, "but does not run"),
        (_move_fragment, "but runs on"),
        (_keep_removed, "but is not in the plan"),
        (_lose_channel, "no channel leads"),
        (_stale_path, "was decided"),
        (_needless_cut, "although there is a route"),
        (_other_outputs, "but others read"),
    ],
)
def test_what_differs_is_named(spoil: Callable[[Placed, Deployment], None], words: str) -> None:
    placed, deployment = running()
    assert validate(placed, deployment) == []
    spoil(placed, deployment)
    assert any(words in fault for fault in validate(placed, deployment))


@given(st.integers(0, 10_000))
@settings(max_examples=60)
def test_what_is_deployed_follows_the_catalog_through_any_changes(seed: int) -> None:
    """Nodes and links go and come back, queries are stopped while they wait: after each, all is as it says."""
    rng = np.random.default_rng(seed)
    catalog = world(seed % 50, slots=2, bandwidth_mbps=1.0)
    engine = Engine(catalog, mechanism("bottom_up"))
    deployer = Deployer(Placed(catalog.plan, catalog.placement, catalog.topology))
    engine.listener = lambda difference: deployer.note(difference.operators, difference.rerouted)
    away: dict[str, list[Link]] = {}
    for number in range(15):
        engine.run(_events(catalog, rng, number, away))
        begun, _ = deployer.begin()
        assert deployer.validate() == []
        for each in begun:
            if rng.random() < 0.2:
                deployer.failed(each.number, "tried")
            else:
                deployer.finished(each.number)
        while deployer.has_open_changes:
            for each in deployer.begin()[0]:
                deployer.finished(each.number)
        assert deployer.validate() == []
    engine.run([QueryRemoved(0, q) for q in list(catalog.plan.queries)])
    for each in deployer.begin()[0]:
        deployer.finished(each.number)
    assert (deployer.deployment.fragments, deployer.deployment.channels) == ({}, {})


def _events(catalog: Catalog, rng: np.random.Generator, number: int, away: dict[str, list[Link]]) -> list[ChangeEvent]:
    queries = list(catalog.plan.queries)
    match int(rng.integers(6)):
        case 0 if queries:
            return [QueryRemoved(0, QueryId(str(rng.choice(queries))))]
        case 1:
            sensor = f"s{rng.integers(SENSORS)}"
            here = [link.target for link in catalog.topology.links() if link.source == sensor]
            there = f"e{rng.integers(EDGES)}"
            fresh = [LinkAdded(0, Link(sensor, there, 1.0, 1.0))] if there not in away else []
            return [*(LinkRemoved(0, sensor, t) for t in here), *fresh]
        case 2:
            edge = f"e{rng.integers(EDGES)}"
            if edge not in away:
                away[edge] = [link for link in catalog.topology.links() if edge in (link.source, link.target)]
                return [NodeRemoved(0, edge)]
            back = [k for k in away.pop(edge) if not {k.source, k.target} & set(away)]
            fresh = [LinkAdded(0, k) for k in back if not k.source.startswith("s")]
            return [NodeAdded(0, Node(edge, NodeKind.EDGE, 2, capacity_tps=4000)), *fresh]
        case _:
            return [QueryAdded(0, query(int(rng.integers(300)), f"q{number}"))]


def test_operators_of_changes_under_way_are_left_out() -> None:
    placed, deployment = running()
    _lose_fragment(placed, deployment)
    missing = {o for o in placed.placement.nodes if o not in deployment.owner}
    assert validate(placed, deployment, missing) == []
    assert FragmentId(1) not in deployment.fragments
