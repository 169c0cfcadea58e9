"""The sensor-edge-cloud graph, held as columns so that a million nodes fit in memory and change in place.

A node is a row; an arc is one direction of a link. Rows are never moved, so a `NodeId` stays valid for good; a removed
node is a dead row. Adding or removing a node or link costs its degree. Cheapest paths are computed on demand and
kept by a `PathCache` until a change touches them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError, unknown
from meander.model.ids import NodeId
from meander.model.topology.adjacency import Adjacency
from meander.model.topology.columns import ArcColumns, NodeColumns
from meander.model.topology.elements import UNLIMITED, Link, Node, NodeKind
from meander.model.topology.names import NodeNames
from meander.model.topology.path_cache import Path, PathCache


class Topology:
    """Nodes and links, with names at the edge and ids inside."""

    def __init__(self) -> None:
        self.nodes = NodeColumns(0)
        self.arcs = ArcColumns(0)
        self.adjacency = Adjacency(self.nodes, self.arcs)
        self.version = 0
        self.has_narrow_links = False
        """Whether some link has, or once had, limited bandwidth; if not, every path can carry everything."""
        self._names = NodeNames()
        self._paths = PathCache()

    # ---------------------------------------------------------------- building

    @staticmethod
    def of(nodes: Iterable[Node], links: Iterable[Link]) -> Topology:
        """A topology from descriptions, for sizes that people write down."""
        topology = Topology()
        for node in nodes:
            topology.add_node(node)
        for link in links:
            topology.add_link(link)
        return topology

    # ---------------------------------------------------------------- looking

    def __len__(self) -> int:
        """Number of live nodes."""
        return int(np.count_nonzero(self.nodes.alive))

    def name(self, node: NodeId) -> str:
        return self._names[node]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def find(self, name: str) -> NodeId | None:
        """The id of a live node, or None."""
        node = self._names.find(name)
        return node if node is not None and self.nodes.alive[node] else None

    def id(self, name: str) -> NodeId:
        """The id of a live node, or an error that names similar ones."""
        node = self._names.find(name)
        if node is None or not self.nodes.alive[node]:
            raise unknown("node", name, (self.name(n) for n in self.ids()))
        return node

    def known_id(self, name: str) -> NodeId:
        """The id of a node that exists or existed: a node that left keeps its id until it comes back."""
        node = self._names.find(name)
        return self.id(name) if node is None else node

    def ids(self) -> Iterator[NodeId]:
        """All live nodes."""
        return (NodeId(int(n)) for n in np.flatnonzero(self.nodes.alive))

    def is_alive(self, node: NodeId) -> bool:
        return bool(self.nodes.alive[node])

    def node(self, node: NodeId) -> Node:
        """A row as a description."""
        n = self.nodes
        lon, lat = float(n.lon[node]), float(n.lat[node])
        return Node(
            self.name(node), NodeKind(int(n.kind[node])), int(n.slots[node]), float(n.capacity_tps[node]),
            float(n.memory_mb[node]), None if lon != lon else lon, None if lat != lat else lat, bool(n.mobile[node]),
            round(float(n.power_w[node]), 6), round(float(n.price_per_h[node]), 6),
        )  # fmt: skip

    def neighbours(self, node: NodeId) -> list[NodeId]:
        """Nodes that one outgoing arc leads to."""
        return [NodeId(int(self.arcs.tip[a])) for a in self.adjacency.leaving(node)]

    def links(self) -> Iterator[Link]:
        """Every link once; two opposite arcs with equal properties are one link that goes both ways."""
        a = self.arcs
        for arc in map(int, np.flatnonzero(a.alive[: a.count])):
            tail, tip = NodeId(int(a.tail[arc])), NodeId(int(a.tip[arc]))
            latency, bandwidth = float(a.latency_ms[arc]), float(a.bandwidth_mbps[arc])
            back = self.adjacency.between(tip, tail)
            both_ways = back is not None and (float(a.latency_ms[back]), float(a.bandwidth_mbps[back])) == (
                latency,
                bandwidth,
            )
            if not both_ways or tail < tip:
                yield Link(self.name(tail), self.name(tip), latency, bandwidth, directed=not both_ways)

    def path(self, start: NodeId, goal: NodeId) -> Path | None:
        """The cheapest live path by latency, or None. The path from a node to itself is empty."""
        return self._paths.path(start, goal, self)

    def latency_ms(self, start: NodeId, goal: NodeId) -> float:
        """Latency of the cheapest path; infinite when there is none."""
        path = self.path(start, goal)
        return UNLIMITED if path is None else path.latency_ms

    def reachable(self, start: NodeId, goal: NodeId) -> bool:
        return self.path(start, goal) is not None

    # ---------------------------------------------------------------- changing

    def add_node(self, node: Node) -> NodeId:
        """Adds a node. A node that was removed comes back under its old id, without links."""
        known = self._names.find(node.name)
        if known is not None and self.nodes.alive[known]:
            raise InputError(f"node {node.name!r} exists already; remove it first or choose another name")
        if known is None:
            known = self._names.append(node.name)
            self.nodes.append()
        n = self.nodes
        n.alive[known], n.kind[known], n.slots[known], n.mobile[known] = True, node.kind, node.slots, node.mobile
        n.capacity_tps[known], n.memory_mb[known] = node.capacity_tps, node.memory_mb
        n.power_w[known], n.price_per_h[known] = node.power_w, node.price_per_h
        n.lon[known] = np.nan if node.lon is None else node.lon
        n.lat[known] = np.nan if node.lat is None else node.lat
        self.version += 1
        return known

    def remove_node(self, node: NodeId) -> list[NodeId]:
        """Removes a node with its links; returns the former neighbours."""
        if not self.nodes.alive[node]:
            raise unknown("node", self.name(node), (self.name(n) for n in self.ids()))
        touched: dict[NodeId, None] = {}
        for arc in (*self.adjacency.leaving(node), *self.adjacency.entering(node)):
            tail, tip = NodeId(int(self.arcs.tail[arc])), NodeId(int(self.arcs.tip[arc]))
            touched[tip if tail == node else tail] = None
            self._cut(arc)
        self.nodes.alive[node] = False
        self._paths.drop_node(node)
        self.version += 1
        return list(touched)

    def add_link(self, link: Link) -> None:
        """Connects two live nodes. A link that exists already is an error."""
        ends = self.id(link.source), self.id(link.target)
        arcs = [ends] if link.directed else [ends, ends[::-1]]
        if any(self.adjacency.between(*pair) is not None for pair in arcs):
            raise InputError(f"link {link.source!r} to {link.target!r} exists already; remove it first")
        self.connect(arcs, link)

    def connect(self, arcs: Iterable[tuple[NodeId, NodeId]], link: Link) -> None:
        """Adds arcs with the properties of a link, between nodes that are known to be alive and not linked yet."""
        self.has_narrow_links = self.has_narrow_links or link.bandwidth_mbps < UNLIMITED
        for tail, tip in arcs:
            self.adjacency.add(tail, tip, link.latency_ms, link.bandwidth_mbps)
            self._paths.added(tail, tip, link.latency_ms)
        self.version += 1

    def remove_link(self, source: str, target: str, *, directed: bool = False) -> None:
        """Cuts a link, both ways unless `directed`."""
        tail, tip = self.id(source), self.id(target)
        arcs = (
            [self.adjacency.between(tail, tip)]
            if directed
            else [self.adjacency.between(tail, tip), self.adjacency.between(tip, tail)]
        )
        live = [a for a in arcs if a is not None]
        if not live:
            near = sorted({self.name(n) for n in self.neighbours(tail)})
            raise InputError(
                f"no link {source!r} to {target!r}; {source!r} is linked to: {', '.join(near) or 'nothing'}"
            )
        self.disconnect(live)

    def disconnect(self, arcs: Iterable[int]) -> None:
        """Removes arcs that are known to be alive."""
        for arc in arcs:
            self._cut(arc)
        self.version += 1

    def set_capacity(
        self,
        node: NodeId,
        *,
        slots: int | None = None,
        capacity_tps: float | None = None,
        memory_mb: float | None = None,
    ) -> None:
        """Changes what a node can hold."""
        for what, value in (("slots", slots), ("capacity_tps", capacity_tps), ("memory_mb", memory_mb)):
            if value is not None:
                if not value >= 0:
                    raise InputError(f"node {self.name(node)!r}: {what} must not be negative, but is {value}")
                getattr(self.nodes, what)[node] = value
        self.version += 1

    def _cut(self, arc: int) -> None:
        self.adjacency.remove(arc)
        self._paths.drop_arc(arc)


def topology_of_columns(
    names: Sequence[str],
    kind: NDArray[np.uint8],
    slots: NDArray[np.int32],
    tails: NDArray[np.int32],
    tips: NDArray[np.int32],
    latency_ms: NDArray[np.float32],
    *,
    bandwidth_mbps: NDArray[np.float32] | float = UNLIMITED,
    capacity_tps: NDArray[np.float32] | float = UNLIMITED,
    memory_mb: NDArray[np.float32] | float = UNLIMITED,
    lon: NDArray[np.float32] | float = float("nan"),
    lat: NDArray[np.float32] | float = float("nan"),
    mobile: NDArray[np.bool_] | bool = False,
    power_w: NDArray[np.float32] | float = 0.0,
    price_per_h: NDArray[np.float32] | float = 0.0,
    directed: bool = False,
) -> Topology:
    """A topology from columns, for a million nodes. Links are given once and go both ways unless `directed`."""
    topology = Topology()
    count, links = len(names), len(tails)
    if links and not (int(min(tails.min(), tips.min())) >= 0 and int(max(tails.max(), tips.max())) < count):
        raise InputError(f"a link leads to a node outside 0..{count - 1}")
    nodes = topology.nodes = NodeColumns(count)
    for name, column in (
        ("alive", True), ("kind", kind), ("slots", slots), ("capacity_tps", capacity_tps),
        ("memory_mb", memory_mb), ("lon", lon), ("lat", lat), ("mobile", mobile),
        ("power_w", power_w), ("price_per_h", price_per_h),
    ):  # fmt: skip
        getattr(nodes, name)[:count] = column
    arcs = topology.arcs = ArcColumns(links if directed else 2 * links)
    for half in range(1 if directed else 2):
        part = slice(half * links, (half + 1) * links)
        arcs.tail[part], arcs.tip[part] = (tails, tips) if half == 0 else (tips, tails)
        arcs.latency_ms[part], arcs.bandwidth_mbps[part], arcs.alive[part] = latency_ms, bandwidth_mbps, True
    topology.has_narrow_links = bool(links) and bool(np.min(bandwidth_mbps) < UNLIMITED)
    topology.adjacency = Adjacency.of(nodes, arcs)
    topology._names = NodeNames(names)
    return topology
