"""Fragments of random placements: maximal, connected, on one node; ids stay where content stays."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.deploy.components import strongly_connected
from meander.deploy.contexts import parts
from meander.deploy.cycle_constraints import independent
from meander.deploy.fragments import Channel, Deployment, Placed, deploy, redeploy, rerouted
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.ids import FragmentId, OperatorId, QueryId
from meander.model.operators import Sink, Source
from meander.model.topology.elements import Link
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.place.worlds import query, world


def placed(seed: int, queries: int) -> tuple[Catalog, Engine]:
    catalog = world(seed, slots=3, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism("bottom_up"))
    engine.run([QueryAdded(0, query(seed + i, f"q{i}")) for i in range(queries)])
    return catalog, engine


def placed_in(catalog: Catalog) -> Placed:
    return Placed(catalog.plan, catalog.placement, catalog.topology)


def check(catalog: Catalog, deployment: Deployment) -> None:
    plan, nodes = catalog.plan, catalog.placement.nodes
    owner = deployment.owner
    assert set(owner) <= set(plan.operators)
    assert all(i in owner for o in owner for i in plan[o].inputs)
    assert all(o in owner or any(i not in owner for i in plan[o].inputs) for o in nodes)
    assert owner == {o: f.id for f in deployment.fragments.values() for o in f.operators}
    for fragment in deployment.fragments.values():
        assert {nodes.get(o, fragment.node) for o in fragment.operators} == {fragment.node}
        for position, operator in enumerate(fragment.operators):
            assert not set(plan[operator].inputs) & set(fragment.operators[position + 1 :])
    where = {o: deployment.fragments[f].node for o, f in owner.items()}
    wanted = set()
    for operator, here in where.items():
        for upstream in plan[operator].inputs:
            if upstream not in where:
                continue
            if owner[upstream] == owner[operator]:
                assert where[upstream] == here
            else:
                wanted.add((upstream, owner[operator]))
                channel = deployment.channels[upstream, owner[operator]]
                assert (channel.sender, channel.receiver) == (owner[upstream], owner[operator])
                assert channel.is_cut == (channel.path is None and where[upstream] != here)
                if channel.path is not None:
                    assert (channel.path.nodes[0], channel.path.nodes[-1]) == (where[upstream], here)
    assert wanted == set(deployment.channels)
    numbers = [c.id for c in deployment.channels.values()]
    assert len(set(numbers)) == len(numbers)
    check_cycles(catalog, deployment)


def check_cycles(catalog: Catalog, deployment: Deployment) -> None:
    """There are none, and fragments of a node are apart only where they would be in one."""
    assert not cycles_of(deployment, {f: f for f in deployment.fragments})
    leader = {f: f for f in deployment.fragments}
    apart = [c for c in deployment.channels.values() if len({deployment.fragments[f].node for f in ends(c)}) == 1]
    for _ in deployment.fragments:
        for channel in apart:
            low, high = sorted(leader[f] for f in ends(channel))
            leader = {f: low if one == high else one for f, one in leader.items()}
    found = cycles_of(deployment, leader)
    assert all(any(leader[c.sender] in cycle for cycle in found) for c in apart)


def ends(channel: Channel) -> tuple[FragmentId, FragmentId]:
    return channel.sender, channel.receiver


def cycles_of(deployment: Deployment, leader: dict[FragmentId, FragmentId]) -> list[set[FragmentId]]:
    ahead: dict[FragmentId, set[FragmentId]] = {f: set() for f in leader.values()}
    for channel in deployment.channels.values():
        sender, receiver = (leader[f] for f in ends(channel))
        if sender != receiver:
            ahead[sender].add(receiver)
    return strongly_connected(ahead, ahead.__getitem__)


@given(st.integers(0, 500), st.integers(1, 6))
@settings(max_examples=40)
def test_fragments_are_the_connected_operators_of_a_node(seed: int, queries: int) -> None:
    catalog, _ = placed(seed, queries)
    check(catalog, deploy(placed_in(catalog)))


def move(catalog: Catalog, engine: Engine, sensor: str, target: str) -> list[OperatorId]:
    """A sensor connects elsewhere; says which operators moved or lost a route."""
    old = next(link for link in catalog.topology.links() if link.source == sensor)
    events: list[ChangeEvent] = [LinkRemoved(0, sensor, old.target)]
    if target != "nowhere":
        events.append(LinkAdded(0, Link(sensor, target, 1.0, 1000)))
    report = engine.run(events)
    return [m.operator for m in report.moves]


@given(st.integers(0, 500))
@settings(max_examples=40)
def test_what_a_change_does_not_touch_keeps_its_id_and_version(seed: int) -> None:
    catalog, engine = placed(seed, 4)
    deployment = deploy(placed_in(catalog))
    assert not redeploy(placed_in(catalog), deployment, catalog.plan.operators)
    before = dict(deployment.fragments)
    old = next(link for link in catalog.topology.links() if link.source == "s0")
    moved = move(catalog, engine, "s0", next(e for e in ("e0", "e1", "e2", "e3") if e != old.target))
    change = redeploy(placed_in(catalog), deployment, moved)
    deployment.apply(change)
    near = {n for o in moved for n in (o, *catalog.plan.neighbours(o))}
    for fragment in before.values():
        if not near & set(fragment.operators):
            gained = set(deployment.fragments[fragment.id].operators) - set(fragment.operators)
            assert gained <= set(moved)
            if not gained:
                assert deployment.fragments[fragment.id] == fragment
    for fragment_id in change.fragments_after:
        assert deployment.fragments[fragment_id] != before.get(fragment_id)


@given(st.integers(0, 500), st.lists(st.integers(0, 60), max_size=8))
@settings(max_examples=60)
def test_many_small_changes_lead_where_starting_from_nothing_leads(seed: int, steps: list[int]) -> None:
    catalog, engine = placed(seed, 3)
    deployment = deploy(placed_in(catalog))
    waiting: set[OperatorId] = set()
    for number, step in enumerate(steps):
        if step < 30:
            moved = move(catalog, engine, f"s{step % 3}", f"e{step % 4}")
        elif step < 45:
            moved = [m.operator for m in engine.run([QueryAdded(0, query(step, f"new{number}"))]).moves]
        else:
            gone = sorted(catalog.plan.queries)
            moved = [m.operator for m in engine.run([QueryRemoved(0, gone[step % len(gone)])]).moves] if gone else []
        waiting |= set(moved)
        change = redeploy(placed_in(catalog), deployment, moved)
        for part in parts(change):
            deployment.apply(part)
        deployment.reroute(rerouted(placed_in(catalog), deployment, edges_of(catalog)))
        check(catalog, deployment)
        fresh = deploy(placed_in(catalog))
        if set(fresh.owner) == set(deployment.owner):
            assert shape(fresh) == shape(deployment)


@given(st.integers(0, 500), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), max_size=8))
@settings(max_examples=100)
def test_operators_anywhere_never_make_fragments_that_read_each_other(
    seed: int, queries: int, moves: list[tuple[int, int]]
) -> None:
    catalog, _ = placed(seed, queries)
    nodes = catalog.placement.nodes
    free = [o for o in nodes if not isinstance(catalog.plan[o].spec, Source | Sink)]
    rng = np.random.default_rng(seed)
    nodes.update((o, catalog.topology.known_id(f"e{rng.integers(3)}")) for o in free)
    deployment = deploy(placed_in(catalog))
    check(catalog, deployment)
    for operator, node in moves if free else ():
        moved = free[operator % len(free)]
        nodes[moved] = catalog.topology.known_id(f"e{node}")
        for part in independent(redeploy(placed_in(catalog), deployment, [moved]), deployment, ()):
            deployment.apply(part)
            assert not cycles_of(deployment, {f: f for f in deployment.fragments})
        check(catalog, deployment)
        assert shape(deploy(placed_in(catalog))) == shape(deployment)


def edges_of(catalog: Catalog) -> list[tuple[OperatorId, OperatorId]]:
    return [(u, o) for o, record in catalog.plan.operators.items() for u in record.inputs]


def shape(deployment: Deployment) -> tuple[object, ...]:
    """A deployment without its numbers."""
    fragments = {(f.node, frozenset(f.operators), f.outputs) for f in deployment.fragments.values()}
    members = {f.id: frozenset(f.operators) for f in deployment.fragments.values()}
    return fragments, {(u, members[f], c.path, c.is_cut) for (u, f), c in deployment.channels.items()}


@given(st.integers(0, 500))
@settings(max_examples=40)
def test_a_change_taken_back_leaves_everything_as_it_was(seed: int) -> None:
    catalog, engine = placed(seed, 4)
    deployment = deploy(placed_in(catalog))
    fragments, channels, owner = dict(deployment.fragments), dict(deployment.channels), dict(deployment.owner)
    moved = move(catalog, engine, "s1", "e2")
    for part in parts(redeploy(placed_in(catalog), deployment, moved)):
        deployment.apply(part)
        deployment.apply(part.reversed())
    assert (deployment.fragments, deployment.channels, deployment.owner) == (fragments, channels, owner)


def test_nothing_is_left_when_everything_is_removed() -> None:
    catalog, engine = placed(1, 3)
    deployment = deploy(placed_in(catalog))
    report = engine.run([QueryRemoved(0, QueryId(f"q{i}")) for i in range(3)])
    deployment.apply(redeploy(placed_in(catalog), deployment, [m.operator for m in report.moves]))
    assert (deployment.fragments, deployment.channels, deployment.owner) == ({}, {}, {})
