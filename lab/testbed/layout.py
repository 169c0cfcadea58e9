"""The layout of a test bed: the nodes of each process, and its neighbours: from a topology to hosts and the links
between them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from meander.model.errors import InputError, unknown
from meander.model.topology.graph import Topology

HOME = "home"
"""The host of the coordinator, with every node that no site has."""


@dataclass(frozen=True, slots=True)
class LayoutLink:
    """A connection between two hosts, with the best of the links that lead over it."""

    a: str
    b: str
    latency_ms: float
    bandwidth_mbps: float = math.inf
    loss_percent: float | None = None
    """None when no link over it says anything about that."""

    @property
    def ends(self) -> tuple[str, str]:
        return self.a, self.b


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts with their nodes, and links. The first host is the coordinator's."""

    hosts: Mapping[str, tuple[str, ...]]
    links: tuple[LayoutLink, ...]

    @property
    def sites(self) -> list[str]:
        return [host for host in self.hosts if host != HOME]

    def next_hops(self, cut: Collection[tuple[str, str]] = ()) -> dict[tuple[str, str], str]:
        """By (host, goal): the neighbour to go to, along the path of least latency over links that are not cut."""
        gone = {frozenset(ends) for ends in cut}
        near: dict[str, list[tuple[str, float]]] = {host: [] for host in self.hosts}
        for link in self.links:
            if frozenset(link.ends) not in gone:
                near[link.a].append((link.b, link.latency_ms))
                near[link.b].append((link.a, link.latency_ms))
        return {(host, goal): hop for goal in self.hosts for host, hop in _towards(goal, near).items()}


def _towards(goal: str, near: Mapping[str, Sequence[tuple[str, float]]]) -> dict[str, str]:
    """The next hop of every host that can reach the goal."""
    best, hops = {goal: 0.0}, dict[str, str]()
    waiting = [(0.0, goal)]
    while waiting:
        far, host = heapq.heappop(waiting)
        if far > best[host]:
            continue
        for other, latency_ms in near[host]:
            if far + latency_ms < best.get(other, math.inf):
                best[other], hops[other] = far + latency_ms, host
                heapq.heappush(waiting, (best[other], other))
    return hops


def layout(
    topology: Topology,
    sites: Mapping[str, Sequence[str]],
    losses: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> Layout:
    """The hosts of these sites and of the coordinator. Every site must have a way to the coordinator.

    `losses` are the packets that links lose, in percent, of those that say so.
    """
    names = [topology.name(n) for n in topology.ids()]
    owner: dict[str, str] = {}
    for site, nodes in sites.items():
        if site == HOME or not nodes:
            raise InputError(f"site {site!r} needs another name, and at least one node")
        for node in nodes:
            if node not in names:
                raise unknown("node", node, names)
            if node in owner:
                raise InputError(f"node {node!r} cannot be at {owner[node]!r} and at {site!r}; name it once")
            owner[node] = site
    hosts = {HOME: tuple(n for n in names if n not in owner), **{s: tuple(nodes) for s, nodes in sites.items()}}
    found = Layout(hosts, _links(topology, owner, losses))
    hops = found.next_hops()
    for site in found.sites:
        if (site, HOME) not in hops:
            raise InputError(
                f"site {site!r} has no way to the coordinator, which has {_listed(hosts[HOME])}; "
                "leave a node between them at the coordinator, or add a link"
            )
    return found


def _links(
    topology: Topology, owner: Mapping[str, str], losses: Mapping[tuple[str, str], float]
) -> tuple[LayoutLink, ...]:
    best: dict[tuple[str, str], LayoutLink] = {}
    for link in topology.links():
        a, b = sorted((owner.get(link.source, HOME), owner.get(link.target, HOME)))
        if a != b:
            known = best.get((a, b), LayoutLink(a, b, math.inf, 0.0))
            latency = min(known.latency_ms, link.latency_ms)
            bandwidth = max(known.bandwidth_mbps, link.bandwidth_mbps)
            said = (losses.get((link.source, link.target)), losses.get((link.target, link.source)), known.loss_percent)
            best[a, b] = LayoutLink(a, b, latency, bandwidth, min((s for s in said if s is not None), default=None))
    return tuple(best[pair] for pair in sorted(best))


def suggested(topology: Topology, count: int) -> dict[str, list[str]]:
    """Sites by themselves: edge nodes, each with the sensors that are nearest to it, spread over `count` processes."""
    ids = list(topology.ids())
    edges = [n for n in ids if topology.node(n).kind.name == "EDGE"]
    if not edges:
        raise InputError("the topology has no edge nodes; say with --sites which nodes are at which site")
    found: dict[str, list[str]] = {f"site-{k + 1}": [] for k in range(min(count, len(edges)))}
    place = {node: f"site-{k % len(found) + 1}" for k, node in enumerate(edges)}
    for node in ids:
        if topology.node(node).kind.name == "SENSOR":
            near = [(topology.latency_ms(node, edge), edge) for edge in edges]
            latency, edge = min(near)
            if math.isfinite(latency):
                place[node] = place[edge]
    for node, site in place.items():
        found[site].append(topology.name(node))
    return found


def read_sites(text: str) -> dict[str, list[str]]:
    """Sites as people write them: `west=s0,e0;east=s1,e1`."""
    found: dict[str, list[str]] = {}
    for part in text.split(";"):
        name, separator, nodes = part.partition("=")
        if not separator or not name.strip():
            raise InputError(f"{part.strip()!r} is no site; write --sites 'west=s0,e0;east=s1,e1', or how many")
        found[name.strip()] = [n.strip() for n in nodes.split(",") if n.strip()]
    return found


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(nodes) or "no node at all"
