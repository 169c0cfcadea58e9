"""What is remembered of links while sites come and go, one at a time and together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.membership.topology_projection import TopologyProjection, Value
from meander.lang.topology.reader import load
from meander.model.errors import InputError
from meander.model.events import LinkAdded, LinkRemoved
from meander.model.topology.elements import Link
from meander.model.topology.graph import Topology
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from tests.site.fleet import write_world

SITES = {"west": ["s0", "e0"], "east": ["s1", "e1"]}
OWN = {("e0", "s0"), ("cloud", "e0"), ("cloud", "e1")}
Step = tuple[str, str]


class Land:
    """A topology, and what the coordinator remembers of it."""

    def __init__(self, store: MembershipStore, path: Path) -> None:
        found = load(path)
        self.topology, self.store = found.topology, store
        catalog, log = Catalog(self.topology, found.streams, found.sinks), ChangeLog()
        self._applicator = Applicator(catalog, log)
        self._reader = ChangeReader(found.streams, found.sinks)
        for site, nodes in SITES.items():
            store.claim(site, nodes)
        store.drop_links([(k.source, k.target) for nodes in SITES.values() for n in nodes for k in store.kept_links(n)])

    def apply(self, values: Sequence[Value]) -> None:
        self._applicator.apply(self._reader.read(values).events)

    def relink(self) -> None:
        """A sensor's only link goes to the other site."""
        self.apply([LinkRemoved(0, "s1", "e1"), LinkAdded(0, Link("s1", "e0", 1))])

    def together(
        self, steps: Sequence[Step], *, refused: Sequence[Step] = (), given: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Sites come and go; what is refused does not happen, although it was looked at.

        `given` are the neighbours of nodes whose sites say so when they come.
        """
        projection = TopologyProjection(self.topology, self.store)
        decided = []
        for step in steps:
            did, site = step
            nodes = SITES[site]
            events = projection.come([described(n, given) for n in nodes]) if did == "come" else projection.go(nodes)
            decided += [events] if events and step not in refused else []
        projection.before()
        for events in decided:
            with suppress(InputError):  # such as a link to a node that is away: it does not come
                self.apply(events)
        projection.after()

    def links(self) -> set[tuple[str, ...]]:
        return links_of(self.topology)


def described(node: str, given: Mapping[str, Sequence[str]] | None) -> dict[str, Any]:
    links = (given or {}).get(node)
    return {"name": node} if links is None else {"name": node, "links": [{"target": t, "latency_ms": 3} for t in links]}


def links_of(topology: Topology) -> set[tuple[str, ...]]:
    return {tuple(sorted((k.source, k.target))) for k in topology.links()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MembershipStore]:
    found = MembershipStore(tmp_path_factory.mktemp("book") / "ledger.db")
    yield found
    found.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("world"), ["any"])


@pytest.mark.parametrize("away", [(), ("west",), ("east",), ("west", "east"), ("east", "west")], ids="-".join)
@pytest.mark.parametrize("sensor", ["e0", "e1"])
def test_all_links_are_there_when_all_sites_are_back_whatever_was_decided_on_together(
    store: MembershipStore, path: Path, away: Sequence[str], sensor: str
) -> None:
    """Every three comings and goings of two sites in one batch, one of them being the other's only neighbour."""
    every = list(itertools.product(("come", "go"), SITES))
    for steps in itertools.product(every, repeat=3):
        land = Land(store, path)
        if sensor == "e0":
            land.relink()
        for site in away:
            land.together([("go", site)])
        land.together(steps)
        for site in SITES:
            land.together([("come", site)])
        assert land.links() == OWN | {(sensor, "s1")}, steps
        assert not [k for nodes in SITES.values() for n in nodes for k in store.kept_links(n)], steps


def test_links_that_a_site_gives_are_there_and_no_others_whatever_was_decided_on_together(
    store: MembershipStore, path: Path
) -> None:
    """East says each time that its sensor is at the other site's edge, and that both edges are linked."""
    given = {"s1": ["e0"], "e1": ["cloud", "e0"]}
    for steps in itertools.product(itertools.product(("come", "go"), SITES), repeat=3):
        land = Land(store, path)
        land.together([("go", "east")])
        land.together([("come", "east")], given=given)
        land.together(steps, given=given)
        for site in SITES:
            land.together([("come", site)], given=given)
        assert land.links() == OWN | {("e0", "s1"), ("e0", "e1")}, steps
        for site in SITES:  # nothing that was replaced is remembered
            land.together([("go", site)])
            land.together([("come", site)])
        assert land.links() == OWN | {("e0", "s1"), ("e0", "e1")}, steps


def test_a_coming_that_is_refused_forgets_no_link(store: MembershipStore, path: Path) -> None:
    land = Land(store, path)
    land.together([("go", "east")])
    land.together([("come", "east")], refused=[("come", "east")])
    assert land.links() == {("cloud", "e0"), ("e0", "s0")}
    land.together([("come", "east")])
    assert land.links() == OWN | {("e1", "s1")}


def test_links_that_a_site_gives_are_remembered_when_it_goes_at_once(store: MembershipStore, path: Path) -> None:
    land = Land(store, path)
    land.together([("go", "east")])
    land.together([("come", "east"), ("go", "east")], given={"s1": ["cloud"], "e1": ["cloud"]})
    land.together([("come", "east")])
    assert {("cloud", "s1"), ("cloud", "e1")} <= land.links()


def test_links_that_a_site_gives_replace_those_it_had(store: MembershipStore, path: Path) -> None:
    land = Land(store, path)
    land.together([("go", "east")])
    land.together([("come", "east")], given={"s1": ["cloud"], "e1": ["cloud"]})
    land.together([("go", "east")])
    land.together([("come", "east")])
    assert land.links() == {("cloud", "e0"), ("e0", "s0"), ("cloud", "s1"), ("cloud", "e1")}


def test_a_node_that_is_played_has_one_link_and_no_room_and_its_own_links_when_its_site_is_back(
    store: MembershipStore, path: Path
) -> None:
    land = Land(store, path)
    land.together([("go", "east")])

    def change(act: Callable[[TopologyProjection], list[Value]], played: Sequence[str] = ()) -> None:
        projection = TopologyProjection(land.topology, store, played)
        events = act(projection)
        projection.before()
        land.apply(events)
        projection.after()

    change(lambda projection: projection.play(["s1"], "cloud"))
    assert land.links() == {("cloud", "e0"), ("e0", "s0"), ("cloud", "s1")}
    assert land.topology.node(land.topology.id("s1")).slots == 0
    change(lambda projection: projection.go(["s1"]), played=["s1"])
    assert land.links() == {("cloud", "e0"), ("e0", "s0")}
    land.together([("come", "east")])
    assert land.links() == OWN | {("e1", "s1")}
    assert land.topology.node(land.topology.id("s1")).slots == 2


def test_nodes_are_not_played_that_are_there_or_beside_one_that_is_not(store: MembershipStore, path: Path) -> None:
    land = Land(store, path)
    land.together([("go", "east")])
    projection = TopologyProjection(land.topology, store)
    assert projection.play(["s0", "unknown"], "cloud") == []
    assert projection.play(["s1"], "e1") == []
