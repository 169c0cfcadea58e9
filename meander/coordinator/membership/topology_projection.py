"""Arrivals and departures of nodes, as changes of the topology: from names of nodes to change events.

A node that goes leaves its links behind; when it comes back they are mended, as far as the other end is there. If both
ends are away, the one that comes back last brings the link. Changes that are decided on together are applied in turn: a
link that one brings and the next takes away again is kept like any other.

A node whose site is gone may be played by another site: it is there without room, with one link, to a node of that
site, and its own links stay remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meander.coordinator.membership.store import MembershipStore
from meander.model.errors import InputError, unknown
from meander.model.events import CapacityChanged, ChangeEvent, LinkAdded, NodeAdded, NodeRemoved
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node
from meander.model.topology.graph import Topology

Value = Mapping[str, Any] | ChangeEvent
Ends = tuple[str, str]
PLAYED_MS = 1.0
"""The latency between a node that is played and one of the site that plays it."""


class TopologyProjection:
    """The topology as it will be after the changes looked at so far; `before` and `after` write down what must be."""

    def __init__(self, topology: Topology, store: MembershipStore, played: Collection[str] = ()) -> None:
        """`played` are nodes that other sites play: their links are not remembered."""
        self._topology, self._store, self._played = topology, store, set(played)
        self._alive: dict[str, bool] = {}
        self._lost: dict[Ends, Link] = {}
        """Links that go with an end of theirs, in one direction each."""
        self._mended: dict[Ends, Link] = {}
        """Links that nodes bring, in one direction each."""
        self._forgotten: dict[Ends, str] = {}
        """Links that are remembered of a node that now gives others."""
        self._slots: dict[str, int | None] = {}

    def before(self) -> None:
        """Keeps links of nodes that leave, before the events happen."""
        if self._lost:
            self._store.keep_links(self._lost.values())
        draining = {n: s for n, s in self._slots.items() if s is not None}
        if draining:
            self._store.save_drained(draining)

    def after(self) -> None:
        """Drops kept links that are not needed any more, unless their nodes were refused."""
        there = [ends for ends in self._mended if self._exists(*ends)]
        there += [ends for ends, name in self._forgotten.items() if self._topology.find(name) is not None]
        if there:
            self._store.drop_links(there)
        ended = {n: s for n, s in self._slots.items() if s is None}
        if ended:
            self._store.save_drained(ended)

    # ---------------------------------------------------------------- coming

    def come(self, nodes: Sequence[Mapping[str, Any]]) -> list[Value]:
        """The events by which nodes are there, with their links and all their slots."""
        drained = self._store.drained(str(n["name"]) for n in nodes)
        events: list[Value] = []
        for described in nodes:
            name = str(described["name"])
            if not self._is_alive(name):
                events.append(self._added(described, drained.get(name)))
                self._alive[name] = True
            elif name in drained:
                events.append(CapacityChanged(0, name, slots=drained[name]))
            if name in drained:
                self._slots[name] = None
        for described in nodes:
            given = described.get("links")
            events += self._kept_events(str(described["name"])) if given is None else self._given(described)
        return events

    def _added(self, described: Mapping[str, Any], slots: int | None) -> Value:
        name = str(described["name"])
        if "kind" in described:
            return {"event": "node_added", **{k: v for k, v in described.items() if k != "links"}}
        known = self._known(name)
        if known is None:
            names = [self._topology.name(n) for n in self._topology.ids()]
            missing = unknown("node", name, names).message
            raise InputError(f"{missing}; add it to the topology, or let the site say its kind")
        return NodeAdded(0, known if slots is None else replace(known, slots=slots))

    def _given(self, described: Mapping[str, Any]) -> list[Value]:
        """The links that a site gives for a node instead of those it had; the rest of them is forgotten."""
        name = str(described["name"])
        self._forgotten |= {(k.source, k.target): name for k in self._store.kept_links(name)}
        self._forgotten |= {ends: name for ends in self._lost if name in ends}
        links = [Link(**{"source": name, **given}) for given in described["links"]]
        new = [link for link in links if not self._linked(link.source, link.target)]
        for link in new:
            self._mended |= {(k.source, k.target): k for k in _one_way(link)}
        return [LinkAdded(0, link) for link in new]

    def _kept_events(self, name: str) -> list[Value]:
        """The links that a node had, of those whose other end is there."""
        kept = {(k.source, k.target): k for k in self._store.kept_links(name)}
        kept |= {ends: k for ends, k in self._lost.items() if name in ends}
        events: list[Value] = []
        for (source, target), link in kept.items():
            if (source, target) in self._mended or not (self._is_alive(source) and self._is_alive(target)):
                continue
            reverse_arc = kept.get((target, source))
            both = reverse_arc is not None and (reverse_arc.latency_ms, reverse_arc.bandwidth_mbps) == (
                link.latency_ms,
                link.bandwidth_mbps,
            )
            whole = replace(link, directed=not both)
            if not self._linked(source, target):
                events.append(LinkAdded(0, whole))
            self._mended |= {(k.source, k.target): k for k in _one_way(whole)}
        return events

    # ---------------------------------------------------------------- going

    def go(self, nodes: Sequence[str]) -> list[Value]:
        """The events by which nodes are gone, of those that are there; one that drained will have its slots again."""
        gone = [n for n in nodes if self._is_alive(n)]
        drained = {**self._store.drained(gone), **{n: self._slots[n] for n in gone if n in self._slots}}
        events: list[Value] = []
        for name in gone:
            self._lose_links(name)
            self._alive[name] = False
            if (slots := drained.get(name)) is not None:
                events.append(CapacityChanged(0, name, slots=slots))
                self._slots[name] = None
            events.append(NodeRemoved(0, name))
        return events

    def _lose_links(self, name: str) -> None:
        """All links that a node has by now are remembered, but not those that went before and did not come back."""
        lost = {ends: self._mended.pop(ends) for ends in [e for e in self._mended if name in e]}
        if (node := self._topology.find(name)) is not None:
            links = (k for k in self._links_of(node) if self._played.isdisjoint((k.source, k.target)))
            real = {(k.source, k.target): k for k in links}
            lost |= {ends: link for ends, link in real.items() if ends not in self._lost}
        self._lost |= lost
        for ends in lost:
            self._forgotten.pop(ends, None)

    def drain(self, nodes: Sequence[str]) -> list[Value]:
        """The events by which nodes hold nothing that could be elsewhere."""
        before = self._store.drained(nodes)
        staying = [n for n in nodes if self._is_alive(n) and n not in before]
        for name in staying:
            self._slots[name] = self._topology.node(self._topology.id(name)).slots
        return [CapacityChanged(0, name, slots=0) for name in staying]

    # ---------------------------------------------------------------- played by others

    def play(self, nodes: Sequence[str], beside: str) -> list[Value]:
        """The events by which nodes that are gone are there, with a link to one of the site that plays them."""
        events: list[Value] = []
        for name in nodes:
            known = self._known(name)
            if known is None or self._is_alive(name) or not self._is_alive(beside):
                continue
            self._slots[name] = self._store.drained([name]).get(name, known.slots)
            self._alive[name] = True
            events += [NodeAdded(0, replace(known, slots=0)), LinkAdded(0, Link(name, beside, PLAYED_MS))]
        self._played.update(nodes)
        return events

    # ---------------------------------------------------------------- looking

    def _is_alive(self, name: str) -> bool:
        return self._alive.get(name, self._topology.find(name) is not None)

    def _known(self, name: str) -> Node | None:
        """The kept description of a node that is or was there."""
        try:
            return self._topology.node(self._topology.known_id(name))
        except InputError:
            return None

    def _links_of(self, node: NodeId) -> Iterable[Link]:
        topology, arcs = self._topology, self._topology.arcs
        for arc in (*topology.adjacency.leaving(node), *topology.adjacency.entering(node)):
            source, target = topology.name(NodeId(int(arcs.tail[arc]))), topology.name(NodeId(int(arcs.tip[arc])))
            yield Link(source, target, float(arcs.latency_ms[arc]), float(arcs.bandwidth_mbps[arc]), directed=True)

    def _exists(self, source: str, target: str) -> bool:
        a, b = self._topology.find(source), self._topology.find(target)
        return a is not None and b is not None and self._topology.adjacency.between(a, b) is not None

    def _linked(self, source: str, target: str) -> bool:
        """Whether there is a link now that will still be there, or one that comes."""
        went = any(self._alive.get(n) is False for n in (source, target)) or (source, target) in self._lost
        return (source, target) in self._mended or (not went and self._exists(source, target))


def _one_way(link: Link) -> list[Link]:
    """A link in one direction each."""
    there = replace(link, directed=True)
    return [there] if link.directed else [there, replace(there, source=link.target, target=link.source)]
