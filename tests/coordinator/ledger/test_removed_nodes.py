"""Killing and restoring nodes is a round trip, in any order, whatever else happens to links in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.ledger.migrations import MIGRATIONS
from meander.coordinator.ledger.removed_nodes import Departure, Ends, arcs_of, forgetting, one_way, restoring
from meander.model.errors import InputError
from meander.model.events import CapacityChanged, ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog

NODES = ("a", "b", "c", "d", "m")
MOBILE = "m"
Arcs = dict[Ends, tuple[float, float]]


class Land:
    """A topology and the ledger that remembers what its removed nodes had, as the decision core keeps them."""

    def __init__(self, topology: Topology, ledger: Ledger) -> None:
        self.ledger = ledger
        with ledger.transaction():
            ledger.topology.save(topology)
        self._take_up(topology)

    def _take_up(self, topology: Topology) -> None:
        self.topology = topology
        catalog, log = Catalog(topology, {}, {}), ChangeLog()
        self._applicator = Applicator(catalog, log)

    def restart(self) -> None:
        """Everything but the ledger is gone."""
        self._take_up(self.ledger.topology.load())

    def apply(self, *events: ChangeEvent) -> None:
        topology, count = self.topology, self.topology.nodes.count
        departure = Departure.of(topology, self.ledger.away_links, events)
        self._applicator.apply(list(events))
        with self.ledger.transaction():
            everyone = [NodeId(n) for n in range(count)]
            self.ledger.topology.save_nodes(topology, everyone)
            self.ledger.topology.save_links(topology, [(a, b) for a in everyone for b in everyone if a < b])
            departure.note()

    def kill(self, *names: str) -> None:
        self.apply(*(NodeRemoved(0, name) for name in names))

    def restore(self, *names: str) -> None:
        self.apply(*restoring(self.topology, self.ledger.away_links, names))

    def forget(self, *names: str) -> set[str]:
        with self.ledger.transaction():
            return forgetting(self.topology, self.ledger.away_links, names)

    def arcs(self) -> Arcs:
        found = (arc for n in self.topology.ids() for arc in arcs_of(self.topology, n))
        return {(k.source, k.target): (k.latency_ms, k.bandwidth_mbps) for k in found}

    def nodes(self) -> dict[str, Node]:
        return {self.topology.name(n): self.topology.node(n) for n in self.topology.ids()}

    def remembered(self) -> set[Ends]:
        names = [self.topology.name(NodeId(n)) for n in range(self.topology.nodes.count)]
        return {(k.source, k.target) for name in names for k in self.ledger.away_links.arcs_of(name)}


def land(path: Path, links: Iterable[Link], nodes: Sequence[str] = NODES) -> Land:
    made = [
        Node(name, NodeKind.EDGE, 3 + i, 100.0 * i + 50, 64.0 * i + 1, 13.5, 52.25, name == MOBILE)
        for i, name in enumerate(nodes)
    ]
    return Land(Topology.of(made, links), Ledger(path))


GATEWAY = [Link("hub", f"base-{i}", 2.0 + i, 100.0 * (i + 1), directed=i == 6) for i in range(7)]


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_a_gateway_comes_back_with_its_seven_links(tmp_path: Path, restarted: bool) -> None:
    found = land(tmp_path / "ledger.db", GATEWAY, ["hub", *(f"base-{i}" for i in range(7))])
    before = found.arcs(), found.nodes()
    found.kill("hub")
    assert found.arcs() == {}
    if restarted:
        found.restart()
    found.restore("hub")
    assert (found.arcs(), found.nodes()) == before
    assert found.remembered() == set()


def test_a_link_whose_other_end_is_away_too_comes_back_with_the_last_of_them(tmp_path: Path) -> None:
    found = land(tmp_path / "ledger.db", [Link("a", "b", 5.0, 10.0), Link("b", "c", 1.0)])
    before = found.arcs()
    found.kill("a", "b")
    found.restore("b")
    assert ("a", "b") not in found.arcs()
    found.restart()
    found.restore("a")
    assert found.arcs() == before


def test_a_train_that_found_another_base_does_not_come_back_to_the_one_that_failed(tmp_path: Path) -> None:
    found = land(tmp_path / "ledger.db", [Link("m", "a"), Link("a", "b"), Link("b", "c")])
    found.kill("a")
    found.apply(LinkAdded(0, Link("m", "c")))
    found.restore("a")
    assert {ends for ends in found.arcs() if "m" in ends} == {("m", "c"), ("c", "m")}


def test_what_a_node_could_hold_when_it_went_is_what_it_can_hold_again(tmp_path: Path) -> None:
    found = land(tmp_path / "ledger.db", [Link("a", "b")])
    found.apply(CapacityChanged(0, "a", slots=17, capacity_tps=2_000.0))
    before = found.nodes()
    found.kill("a")
    found.restart()
    found.restore("a")
    assert found.nodes() == before


def test_a_node_that_was_forgotten_cannot_be_restored_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = land(tmp_path / "ledger.db", [Link("a", "b"), Link("a", "c"), Link("b", "c")])
    found.kill("a", "b")
    assert found.forget("a") == {"a", "b", "c"}
    with pytest.raises(InputError, match="was forgotten"):
        found.restore("a")
    found.restore("b")
    assert set(found.arcs()) == {("b", "c"), ("c", "b")}
    found.apply(NodeAdded(0, Node("a", NodeKind.EDGE, 1)))
    found.kill("a")
    found.restore("a")  # somebody added it again, so it can be restored again
    assert found.nodes()["a"].slots == 1


@pytest.mark.parametrize(("name", "reason"), [("c", "is there"), ("nobody", "no removed node 'nobody'")])
def test_only_a_node_that_went_can_be_restored_or_forgotten(tmp_path: Path, name: str, reason: str) -> None:
    found = land(tmp_path / "ledger.db", [Link("a", "b")])
    found.kill("a")
    for act in (found.restore, found.forget):
        with pytest.raises(InputError, match=reason):
            act(name)


def test_a_ledger_from_before_knows_the_links_of_sites_that_are_away(tmp_path: Path) -> None:
    import sqlite3

    old = sqlite3.connect(tmp_path / "ledger.db")
    for number, migration in enumerate(MIGRATIONS[:4], 1):
        old.executescript(f"{migration}\nPRAGMA user_version = {number};")
    old.execute("INSERT INTO away_links VALUES ('a', 'b', 4.0, NULL)")
    old.commit()
    old.close()
    assert Ledger(tmp_path / "ledger.db").away_links.arcs_of("b") == [Link("a", "b", 4.0, directed=True)]


latencies = st.integers(0, 50).map(float)
bandwidths = st.sampled_from([1.0, 12.5, float("inf")])
pairs = st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda p: p[0] != p[1])
links = st.builds(lambda p, ms, mbps, one: Link(p[0], p[1], ms, mbps, one), pairs, latencies, bandwidths, st.booleans())


def distinct(found: Sequence[Link]) -> list[Link]:
    """Without those that would be there twice."""
    taken: set[Ends] = set()
    kept: list[Link] = []
    for link in found:
        arcs = {(k.source, k.target) for k in one_way(link)}
        if arcs.isdisjoint(taken):
            kept.append(link)
            taken |= arcs
    return kept


class Schedules(RuleBasedStateMachine):
    """Any nodes are killed and restored in any order, while links come and go. The oracle is a graph of what is meant:
    an arc is there when it is meant and both its ends are."""

    @initialize(found=st.lists(links, max_size=12))
    def begin(self, found: list[Link]) -> None:
        first = distinct(found)
        self.land = land(Path(":memory:"), first)
        self.meant: Arcs = {}
        self.away: set[str] = set()
        self.described = self.land.nodes()
        self._mean(first)

    def _mean(self, found: Iterable[Link]) -> None:
        for link in found:
            self.meant |= {(k.source, k.target): (k.latency_ms, k.bandwidth_mbps) for k in one_way(link)}

    def _there(self) -> Arcs:
        return {ends: about for ends, about in self.meant.items() if self.away.isdisjoint(ends)}

    @rule(names=st.sets(st.sampled_from(NODES), min_size=1))
    def kill(self, names: set[str]) -> None:
        going = sorted(names - self.away)
        if going:
            self.land.kill(*going)
            self.away |= names

    @rule(names=st.sets(st.sampled_from(NODES), min_size=1))
    def restore(self, names: set[str]) -> None:
        coming = sorted(names & self.away)
        if coming:
            self.land.restore(*coming)
            self.away -= names

    @rule(link=links)
    def link(self, link: Link) -> None:
        arcs = {(k.source, k.target) for k in one_way(link)}
        if {link.source, link.target} & self.away or arcs & self.meant.keys():
            return
        others = {e for e in self.meant if MOBILE in e}
        if MOBILE in (link.source, link.target) and not any(self.away.isdisjoint(e) for e in others):
            for ends in others:  # it was left alone and goes on elsewhere
                del self.meant[ends]
        self.land.apply(LinkAdded(0, link))
        self._mean([link])

    @rule(pair=pairs, directed=st.booleans())
    def unlink(self, pair: Ends, directed: bool) -> None:
        arcs = [pair] if directed else [pair, pair[::-1]]
        if set(pair) & self.away or not any(a in self.meant for a in arcs):
            return
        self.land.apply(LinkRemoved(0, *pair, directed))
        for arc in arcs:
            self.meant.pop(arc, None)

    @rule(name=st.sampled_from(NODES), slots=st.integers(0, 9))
    def resize(self, name: str, slots: int) -> None:
        if name not in self.away:
            self.land.apply(CapacityChanged(0, name, slots=slots))
            self.described[name] = self.land.nodes()[name]

    @rule(name=st.sampled_from(NODES))
    def add_by_hand(self, name: str) -> None:
        """Without a link: those to nodes that are there are not wanted."""
        if name in self.away:
            self.land.apply(NodeAdded(0, self.described[name]))
            self.away.discard(name)
            here = [e for e in self.meant if name in e and self.away.isdisjoint(e)]
            for ends in here:
                del self.meant[ends]

    @rule(link=links, name=st.sampled_from(NODES))
    def link_and_kill_at_once(self, link: Link, name: str) -> None:
        """A link that comes with the batch that removes one of its ends is remembered like any other."""
        arcs = {(k.source, k.target) for k in one_way(link)}
        if {link.source, link.target, name} & self.away or arcs & self.meant.keys() or MOBILE in next(iter(arcs)):
            return
        self.land.apply(LinkAdded(0, link), NodeRemoved(0, name))
        self._mean([link])
        self.away.add(name)

    @rule(pair=pairs, last=st.integers(0, 1))
    def unlink_and_kill_at_once(self, pair: Ends, last: int) -> None:
        """A link that was removed before its end went, in the same batch, is not wanted back."""
        if set(pair) & self.away or pair not in self.meant:
            return
        self.land.apply(LinkRemoved(0, *pair, directed=True), NodeRemoved(0, pair[last]))
        del self.meant[pair]
        self.away.add(pair[last])

    @rule(name=st.sampled_from(NODES[:4]), other=st.sampled_from(NODES[:4]), ms=latencies)
    def kill_and_come_with_one_link_at_once(self, name: str, other: str, ms: float) -> None:
        """As a node that starts anew does: what it says is what it has."""
        if {name, other} & self.away or name == other:
            return
        self.land.apply(
            NodeRemoved(0, name), NodeAdded(0, self.described[name]), LinkAdded(0, Link(name, other, ms, directed=True))
        )
        for ends in [e for e in self.meant if name in e and self.away.isdisjoint(e)]:
            del self.meant[ends]
        self._mean([Link(name, other, ms, directed=True)])

    @rule()
    @precondition(lambda self: self.away)
    def restart(self) -> None:
        self.land.restart()

    @invariant()
    def what_is_meant_is_there(self) -> None:
        if hasattr(self, "land"):
            assert self.land.arcs() == self._there()
            assert self.land.nodes() == {n: about for n, about in self.described.items() if n not in self.away}

    def teardown(self) -> None:
        if hasattr(self, "land"):
            if self.away:
                self.land.restore(*sorted(self.away))
            self.away = set()
            self.what_is_meant_is_there()
            assert self.land.remembered() == set()
            self.land.ledger.close()


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
