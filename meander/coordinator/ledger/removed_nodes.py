"""The records of removed nodes: their links are kept until the nodes are restored or forgotten.

An arc is kept while at least one of its ends is away. It comes back when both are there, whichever was restored last. A
node that a user adds again by hand comes with the links that are given, and only those to nodes that are still away
stay kept. A mobile node that was left without a link and found another one has moved on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meander.coordinator.ledger.absent_node_links import AwayLinks
from meander.coordinator.problems import conflict, not_found
from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node
from meander.model.topology.graph import Topology

Ends = tuple[str, str]


@dataclass(slots=True)
class Departure:
    """The effect of a batch of events on these records. Made before the events are applied, written afterwards."""

    topology: Topology
    memory: AwayLinks
    lost: dict[Ends, Link] = field(default_factory=dict)
    """Arcs that went with one of their ends."""
    linked: set[Ends] = field(default_factory=set)
    """Arcs that the batch adds."""
    came: set[str] = field(default_factory=set)
    """Nodes that were added."""
    moved_on: set[str] = field(default_factory=set)
    """Mobile nodes that have other links now."""
    _added: dict[Ends, Link] = field(default_factory=dict)
    _cut: set[Ends] = field(default_factory=set)
    _emptied: set[str] = field(default_factory=set)
    _mobile: dict[str, bool] = field(default_factory=dict)

    @staticmethod
    def of(topology: Topology, memory: AwayLinks, events: Iterable[ChangeEvent]) -> Departure:
        """Follows events in their order: a link that one adds may go with a node that the next one removes."""
        found = Departure(topology, memory)
        for event in events:
            match event:
                case NodeAdded(node=node):
                    found.came.add(node.name)
                    found._mobile[node.name] = node.mobile
                case NodeRemoved(node=name):
                    found._remove(name)
                case LinkAdded(link=link):
                    found._link(link)
                case LinkRemoved(source=a, target=b, directed=directed):
                    found._unlink([(a, b)] if directed else [(a, b), (b, a)])
        return found

    def _remove(self, name: str) -> None:
        self.lost |= self._present(name)
        self.linked -= self.lost.keys()
        self._added = {ends: link for ends, link in self._added.items() if name not in ends}
        self._emptied.add(name)

    def _link(self, link: Link) -> None:
        for end in (link.source, link.target):
            if self._is_mobile(end) and not self._present(end) and not self._is_kept(end, link):
                self.moved_on.add(end)
                self.lost = {ends: arc for ends, arc in self.lost.items() if end not in ends}
        for arc in one_way(link):
            ends = arc.source, arc.target
            self._added[ends] = arc
            self.linked.add(ends)
            self.lost.pop(ends, None)

    def _unlink(self, arcs: Sequence[Ends]) -> None:
        self._cut.update(arcs)
        for ends in arcs:
            self._added.pop(ends, None)
            self.lost.pop(ends, None)

    def _present(self, name: str) -> dict[Ends, Link]:
        """The arcs that a node has after the events followed so far."""
        found = {ends: link for ends, link in self._added.items() if name in ends}
        node = self.topology.find(name)
        if node is not None:
            for arc in arcs_of(self.topology, node):
                ends = arc.source, arc.target
                if ends not in self._cut and self._emptied.isdisjoint(ends):
                    found.setdefault(ends, arc)
        return found

    def _is_mobile(self, name: str) -> bool:
        if name not in self._mobile:
            node = self.topology.find(name)
            self._mobile[name] = node is not None and bool(self.topology.nodes.mobile[node])
        return self._mobile[name]

    def _is_kept(self, name: str, link: Link) -> bool:
        """Whether a node had this link before, or one in the other direction."""
        pair = {link.source, link.target}
        return any({k.source, k.target} == pair for k in (*self.memory.arcs_of(name), *self.lost.values()))

    def note(self) -> set[str]:
        """Writes down its effect, after the events were applied; gives nodes of which something else is known."""
        topology, memory = self.topology, self.memory
        kept = {ends: link for ends, link in self.lost.items() if any(topology.find(end) is None for end in ends)}
        if kept:
            memory.keep_arcs(kept.values())
        dropped = {e for e in self.linked if e not in kept}
        dropped |= {e for e in self.lost if e not in kept}
        for name in self.came:
            known = [(k.source, k.target) for k in memory.arcs_of(name)]
            dropped |= {ends for ends in known if all(topology.find(end) is not None for end in ends)}
        for name in self.moved_on:
            if topology.find(name) is not None:
                dropped |= {(k.source, k.target) for k in memory.arcs_of(name)} - kept.keys()
        if dropped:
            memory.drop_arcs(dropped)
        there = {name for name in self.came if topology.find(name) is not None}
        if there:
            memory.recall_nodes(there)
        return {end for ends in (*kept, *dropped) for end in ends}


def restoring(topology: Topology, memory: AwayLinks, names: Collection[str]) -> list[ChangeEvent]:
    """The events by which nodes are as they were, with the links whose other end is there by then."""
    wanted = list(dict.fromkeys(names))
    forgotten = memory.forgotten_nodes()
    nodes = [_departed(topology, name, forgotten) for name in wanted]
    here = {*wanted}
    links: dict[Ends, Link] = {}
    for name in wanted:
        for arc in memory.arcs_of(name):
            if all(end in here or topology.find(end) is not None for end in (arc.source, arc.target)):
                links[arc.source, arc.target] = arc
    return [*(NodeAdded(0, node) for node in nodes), *(LinkAdded(0, link) for link in merged(links))]


def forgetting(topology: Topology, memory: AwayLinks, names: Collection[str]) -> set[str]:
    """Nodes that are not wanted back are forgotten with their links; gives nodes of which less is known now."""
    forgotten = memory.forgotten_nodes()
    for name in names:
        _departed(topology, name, forgotten)
    ends = {(k.source, k.target) for name in names for k in memory.arcs_of(name)}
    memory.drop_arcs(ends)
    memory.forget_nodes(names)
    return {end for pair in ends for end in pair} | set(names)


def _departed(topology: Topology, name: str, forgotten: Collection[str]) -> Node:
    """The record of a removed node; raises when it was not removed, or is forgotten."""
    if topology.find(name) is not None:
        raise conflict(f"node {name!r} is there; only a node that was removed can be restored or forgotten")
    try:
        number = topology.known_id(name)
    except InputError:
        gone = (NodeId(n) for n in range(topology.nodes.count) if not topology.nodes.alive[n])
        names = {topology.name(n) for n in gone} - set(forgotten)
        raise not_found(unknown("removed node", name, names)) from None
    if name in forgotten:
        raise not_found(InputError(f"node {name!r} was forgotten; add it with a node_added event and its links"))
    return topology.node(number)


def arcs_of(topology: Topology, node: NodeId) -> Iterator[Link]:
    """The arcs from and to a node, each a directed link."""
    arcs = topology.arcs
    for arc in (*topology.adjacency.leaving(node), *topology.adjacency.entering(node)):
        tail, tip = topology.name(NodeId(int(arcs.tail[arc]))), topology.name(NodeId(int(arcs.tip[arc])))
        yield Link(tail, tip, float(arcs.latency_ms[arc]), float(arcs.bandwidth_mbps[arc]), directed=True)


def one_way(link: Link) -> list[Link]:
    """A link in one direction each."""
    there = replace(link, directed=True)
    return [there] if link.directed else [there, replace(there, source=link.target, target=link.source)]


def merged(arcs: Mapping[Ends, Link]) -> list[Link]:
    """Every link once: two opposite arcs that are alike are one link that goes both ways."""
    found: list[Link] = []
    seen: set[Ends] = set()
    for (source, target), arc in arcs.items():
        if (source, target) in seen:
            continue
        reverse_arc = arcs.get((target, source))
        both = reverse_arc is not None and (reverse_arc.latency_ms, reverse_arc.bandwidth_mbps) == (
            arc.latency_ms,
            arc.bandwidth_mbps,
        )
        found.append(replace(arc, directed=not both))
        seen |= {(source, target), (target, source)} if both else {(source, target)}
    return found
