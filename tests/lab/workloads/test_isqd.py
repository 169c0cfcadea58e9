"""Workloads for deployment: what a change moves, what state travels, and that unaffected sources do not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.experiments.local_dry_run import LocalDryRun
from lab.workloads.isqd import CLOUD, DATA, TOPOLOGIES, DeviceShape, generated, published, scenarios
from meander.local.placement_replay import batches_of
from meander.model.errors import InputError
from meander.model.operators import Map, Source, WindowJoin
from meander.model.topology.elements import NodeKind

SMALL = DeviceShape(queries=3, sources=4, changes=6, fogs=4)


def links_of(dry_run: LocalDryRun, device: str) -> list[str]:
    topology = dry_run.catalog.topology
    return [topology.name(n) for n in topology.neighbours(topology.id(device))]


def test_maps_follow_their_devices() -> None:
    dry_run = LocalDryRun(generated(SMALL))
    for change in dry_run.changes():
        assert len(change.moved) == SMALL.queries
        assert all(o in dry_run.operators(Map) for o in change.moved)
        for operator in dry_run.operators(Map):
            (source,) = dry_run.catalog.plan[operator].inputs
            spec = dry_run.catalog.plan[source].spec
            assert isinstance(spec, Source)
            assert spec.node is not None
            assert [dry_run.node_of(operator)] == links_of(dry_run, spec.node)


def test_joins_follow_their_pair_of_devices_with_their_state() -> None:
    dry_run = LocalDryRun(generated(replace(SMALL, stateful=True, mobile=2)))
    joins = dry_run.operators(WindowJoin)
    assert len(joins) == SMALL.queries * SMALL.sources // 2
    before = {o: dry_run.node_of(o) for o in joins}
    for change in dry_run.changes():
        assert change.states_moved == SMALL.queries
        after = {o: dry_run.node_of(o) for o in joins}
        assert sum(before[o] != after[o] for o in joins) == SMALL.queries
        before = after


@pytest.mark.parametrize("stateful", [False, True])
def test_fragments_touched_do_not_depend_on_sources_that_stay(stateful: bool) -> None:
    touched = set()
    for sources in (2, 4, 8, 16):
        shape = DeviceShape(sources=sources, mobile=2 if stateful else 1, stateful=stateful, changes=12)
        touched |= {change.fragments for change in LocalDryRun(generated(shape)).changes()}
    assert touched == {2 * DeviceShape().queries}


@pytest.mark.parametrize("mobile", [2, 4, 8, 16])
def test_fragments_touched_grow_with_sources_that_move(mobile: int) -> None:
    shape = DeviceShape(queries=2, sources=16, mobile=mobile, changes=3)
    assert {c.fragments for c in LocalDryRun(generated(shape)).changes()} == {2 * 2 * mobile}


@pytest.mark.parametrize("links", TOPOLOGIES)
@pytest.mark.parametrize("intermediates", [1, 16])
def test_every_topology_keeps_all_queries_placed(links: str, intermediates: int) -> None:
    shape = replace(SMALL, stateful=True, mobile=2, links=links, intermediates=intermediates)
    dry_run = LocalDryRun(generated(shape))
    assert len(dry_run.catalog.topology) == 1 + 4 * intermediates + 3 * 4
    for change in dry_run.changes():
        assert change.fragments or change.rerouted


def test_where_fog_nodes_are_linked_another_way_is_enough() -> None:
    """With links between fog nodes nothing has to move: tuples reach the old place over another node."""
    shape = replace(SMALL, stateful=True, mobile=2, links="full")
    for change in LocalDryRun(generated(shape)).changes():
        assert (change.moved, change.rerouted) == ((), 2 * SMALL.queries)


def test_changes_come_by_their_period_and_devices_do_not_compute() -> None:
    setting = generated(replace(SMALL, period_s=0.25))
    assert [batch[0].at_ms for batch in batches_of(setting.events, None)] == [250 * i for i in range(SMALL.changes)]
    topology = setting.topology
    devices = [topology.node(n) for n in topology.ids() if topology.node(n).kind is NodeKind.SENSOR]
    assert len(devices) == 12
    assert all(d.slots == 0 and d.mobile for d in devices)
    assert {q.id for q in setting.queries} == {"query_1", "query_2", "query_3"}
    assert setting.sinks["results"].node == CLOUD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"links": "star"}, "no topology 'star'; known topologies: circular, full, tree"),
        ({"stateful": True}, "devices are joined in pairs, but 4 devices with 1 mobile ones"),
        ({"mobile": 5}, "5 of 4 devices cannot be mobile"),
        ({"fogs": 1}, "a workload needs two fog nodes, a query, a device and an intermediate node"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        replace(SMALL, **change)  # type: ignore[arg-type]
    assert refused.value.message == message


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(InputError, match="there is no scenario 'nowhere'"):
        published("nowhere")


@pytest.mark.skipif(not scenarios(), reason=f"no scenarios in {DATA}; set MEANDER_DATA to the folder above isqd")
@pytest.mark.parametrize("name", scenarios())
def test_published_changes_touch_what_moves(name: str) -> None:
    dry_run = LocalDryRun(published(name, 0.25))
    for number, change in enumerate(dry_run.changes(12)):
        if name.endswith("full"):
            assert (change.fragments, change.rerouted) == (0, 20)
        else:
            # The first time the union moves to the cloud: its inputs come from two sides from then on.
            assert change.fragments == 20 or number == 0
            assert change.states_moved == (10 if "stateful" in name else 0), number
