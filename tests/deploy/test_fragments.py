"""Fragments of random placements: maximal, connected, on one node; ids stay where content stays."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from meander.deploy.fragments import Deployment, deploy
from meander.model.events import LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.model.topology import Link
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.place.worlds import query, world


def placed(seed: int, queries: int) -> tuple[Catalog, Engine]:
    catalog = world(seed, slots=3, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism("bottom_up"))
    engine.run([QueryAdded(0, query(seed + i, f"q{i}")) for i in range(queries)])
    return catalog, engine


def check(catalog: Catalog, deployment: Deployment) -> None:
    plan, nodes = catalog.plan, catalog.placement.nodes
    owner = deployment.fragment_of
    assert set(owner) == set(nodes)
    assert sum(len(f.operators) for f in deployment.fragments.values()) == len(nodes)
    for fragment in deployment.fragments.values():
        assert {nodes[o] for o in fragment.operators} == {fragment.node}
        for position, operator in enumerate(fragment.operators):
            assert not set(plan[operator].inputs) & set(fragment.operators[position + 1 :])
    for operator in nodes:
        for upstream in plan[operator].inputs:
            if upstream not in nodes:
                continue
            together = nodes[upstream] == nodes[operator]
            assert (owner[upstream] == owner[operator]) == together
            if not together:
                channel = deployment.channels[upstream, owner[operator]]
                assert (channel.sender, channel.receiver) == (owner[upstream], owner[operator])
                assert channel.path == catalog.placement.routes[upstream, operator]
    numbers = [c.id for c in deployment.channels.values()]
    assert len(set(numbers)) == len(numbers)


@given(st.integers(0, 500), st.integers(1, 6))
@settings(max_examples=40)
def test_fragments_are_the_connected_operators_of_a_node(seed: int, queries: int) -> None:
    catalog, _ = placed(seed, queries)
    check(catalog, deploy(catalog.plan, catalog.placement))


@given(st.integers(0, 500))
@settings(max_examples=40)
def test_what_a_change_does_not_touch_keeps_its_id_and_version(seed: int) -> None:
    catalog, engine = placed(seed, 4)
    before = deploy(catalog.plan, catalog.placement)
    assert deploy(catalog.plan, catalog.placement, before) == before
    old = next(link for link in catalog.topology.links() if link.source == "s0")
    new = next(e for e in ("e0", "e1", "e2", "e3") if e != old.target)
    report = engine.run([LinkRemoved(0, "s0", old.target), LinkAdded(0, Link("s0", new, 1.0, 1000))])
    moved = {m.operator for m in report.moves}
    after = deploy(catalog.plan, catalog.placement, before)
    check(catalog, after)
    for fragment in before.fragments.values():
        if not moved & set(fragment.operators):
            gained = set(after.fragments[fragment.id].operators) - set(fragment.operators)
            assert gained <= moved
            if not gained:
                assert after.fragments[fragment.id] == fragment
    for key, channel in before.channels.items():
        if key in after.channels:
            assert after.channels[key].id == channel.id


def test_nothing_is_left_when_everything_is_removed() -> None:
    catalog, engine = placed(1, 3)
    before = deploy(catalog.plan, catalog.placement)
    engine.run([QueryRemoved(0, QueryId(f"q{i}")) for i in range(3)])
    after = deploy(catalog.plan, catalog.placement, before)
    assert not after.fragments
    assert not after.channels
    assert after.next_fragment == before.next_fragment
