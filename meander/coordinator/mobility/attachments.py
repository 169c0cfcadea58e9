"""Attachments: the nodes to which mobile nodes are linked, and the events of a move from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded
from meander.model.ids import NodeId
from meander.model.topology.elements import Link
from meander.model.topology.graph import Topology


def attachment_of(topology: Topology, node: str) -> str | None:
    """The node at the other end of a mobile node's best link; None while it has no link."""
    found = _best_link(topology, node)
    return None if found is None else found[1]


def _best_link(topology: Topology, node: str) -> tuple[float, str, float] | None:
    number = topology.find(node)
    if number is None or not topology.is_alive(number):
        return None
    arcs = topology.arcs
    found = [
        (float(arcs.latency_ms[a]), topology.name(NodeId(int(arcs.tip[a]))), float(arcs.bandwidth_mbps[a]))
        for a in topology.adjacency.leaving(number)
    ]
    return min(found, default=None)


def mobile_nodes(topology: Topology) -> Iterator[str]:
    for number in topology.ids():
        if topology.is_alive(number) and topology.node(number).mobile:
            yield topology.name(number)


def touched(topology: Topology, events: Iterable[ChangeEvent]) -> list[str]:
    """Mobile nodes whose links events have changed."""
    names: dict[str, None] = {}
    for event in events:
        match event:
            case LinkAdded(link=link):
                names |= {link.source: None, link.target: None}
            case LinkRemoved(source=source, target=target):
                names |= {source: None, target: None}
            case NodeAdded(node=node):
                names[node.name] = None
    numbers = {name: topology.find(name) for name in names}
    alive = {name: n for name, n in numbers.items() if n is not None and topology.is_alive(n)}
    return [name for name, n in alive.items() if topology.node(n).mobile]


def move(topology: Topology, node: str, attachment: str, usual: Link | None) -> list[ChangeEvent]:
    """The events of a move to another attachment, over a link like the one there is, or else like the last one."""
    here = _best_link(topology, node)
    if here is not None:
        link = Link(node, attachment, here[0], here[2])
        return [LinkRemoved(0, node, here[1]), LinkAdded(0, link)]
    latency, mbps = (usual.latency_ms, usual.bandwidth_mbps) if usual is not None else (1.0, float("inf"))
    return [LinkAdded(0, Link(node, attachment, latency, mbps))]
