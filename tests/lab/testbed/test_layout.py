"""From a topology to hosts and wires, and from a seed to a schedule."""

from __future__ import annotations

import pytest

from lab.testbed import world
from lab.testbed.layout import HOME, Layout, LayoutLink, layout, read_sites, suggested
from lab.testbed.links import Can
from lab.testbed.schedule import CALM_S, Chances, TroubleKind, schedule
from meander.lang.topology.reader import read
from meander.model.errors import InputError
from meander.model.topology.graph import Topology

SITES = {site: list(nodes) for site, nodes in world.SITES.items()}


@pytest.fixture
def topology() -> Topology:
    return read(world.TOPOLOGY).topology


def test_wires_are_the_links_between_nodes_of_different_hosts(topology: Topology) -> None:
    found = layout(topology, SITES)
    assert dict(found.hosts) == {HOME: ("cloud",), "west": ("s0", "e0"), "east": ("s1", "e1")}
    assert found.links == (
        LayoutLink("east", "home", 5.0, 200.0),
        LayoutLink("east", "west", 3.0, 500.0),
        LayoutLink("home", "west", 5.0, 200.0),
    )


def test_a_wire_loses_what_the_best_of_its_links_loses(topology: Topology) -> None:
    across = [k for k in topology.links() if {k.source[0], k.target[0]} == {"c", "e"}]
    found = layout(topology, SITES, {(k.source, k.target): 3.0 for k in across})
    assert {link.ends: link.loss_percent for link in found.links} == {
        ("east", "home"): 3.0,
        ("east", "west"): None,
        ("home", "west"): 3.0,
    }


def test_the_way_around_a_cut_wire_leads_over_the_others(topology: Topology) -> None:
    found = layout(topology, SITES)
    assert found.next_hops()["west", HOME] == HOME
    around = found.next_hops([("west", HOME)])
    assert (around["west", HOME], around[HOME, "west"]) == ("east", "east")
    alone = found.next_hops([(HOME, "west"), ("east", "west")])
    assert ("west", HOME) not in alone
    assert alone["east", HOME] == HOME


def test_sites_are_suggested_as_edges_with_their_sensors(topology: Topology) -> None:
    assert suggested(topology, 2) == {"site-1": ["e0", "s0"], "site-2": ["e1", "s1"]}
    assert suggested(topology, 9).keys() == {"site-1", "site-2"}
    assert suggested(topology, 1) == {"site-1": ["e0", "e1", "s0", "s1"]}


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        ({"west": ["nowhere"]}, "no node 'nowhere'"),
        ({"west": ["s0"], "east": ["s0"]}, "cannot be at 'west' and at 'east'"),
        ({"home": ["s0"]}, "needs another name"),
        ({"west": ["e0", "e1", "cloud"]}, None),
        (
            {"west": ["s0"], "east": ["e0", "e1", "cloud", "s1"]},
            "has no way to the coordinator, which has no node",
        ),
    ],
)
def test_sites_that_cannot_be_are_refused(topology: Topology, sites: dict[str, list[str]], reason: str | None) -> None:
    if reason is None:
        assert len(layout(topology, sites).links) == 1
    else:
        with pytest.raises(InputError, match=reason):
            layout(topology, sites)


def test_sites_are_read_as_people_write_them() -> None:
    assert read_sites("west=s0, e0; east=s1") == {"west": ["s0", "e0"], "east": ["s1"]}
    with pytest.raises(InputError, match="is no site; write --sites"):
        read_sites("west")


# ---------------------------------------------------------------- schedules


@pytest.fixture
def places(topology: Topology) -> Layout:
    return layout(topology, SITES)


def test_a_seed_gives_one_schedule_and_another_seed_another(places: Layout) -> None:
    chances = Chances.of(
        places, Can.CUT | Can.BANDWIDTH, world.MOVABLE, world.RELINKED, disks=True, replicas=True, widely=True
    )
    assert schedule(1, 60, chances) == schedule(1, 60, chances) != schedule(2, 60, chances)
    many = [t for seed in range(40) for t in schedule(seed, 60, chances)]
    assert {t.kind for t in many} == set(TroubleKind)
    assert {t.target[0] for t in many if t.kind is TroubleKind.KILL} == {HOME, "west", "east"}
    assert all(t.at_s + t.lasts_s <= 60 - CALM_S + 1 for t in many)


def test_without_namespaces_nothing_is_cut(places: Layout) -> None:
    chances = Chances.of(places, Can.NOTHING, world.MOVABLE, world.RELINKED)
    kinds = {t.kind for seed in range(40) for t in schedule(seed, 60, chances)}
    assert kinds == {
        TroubleKind.KILL,
        TroubleKind.RESTART,
        TroubleKind.PAUSE,
        TroubleKind.SHIFT,
        TroubleKind.SLOW_DISK,
        TroubleKind.MOVE,
        TroubleKind.RELINK,
    }
