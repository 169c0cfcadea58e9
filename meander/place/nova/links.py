"""What a placement sends over each link of a topology, and which links that is too much for.

Every stream that arrives at a node is counted once on each link of the cheapest path from its source, and results on
their way to the sink, at the selectivity given. Placing does not look at single links: it bounds what one replica takes
in (`bandwidth_tps`). This says where that was not enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.ids import NodeId
from meander.model.topology import Topology
from meander.place.nova.joins import Joins

BITS = 8e-6
"""Megabits of a byte."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """A link in one direction, and what flows over it."""

    tail: NodeId
    tip: NodeId
    mbps: float
    bandwidth_mbps: float

    @property
    def exceeded(self) -> bool:
        return self.mbps > self.bandwidth_mbps * (1 + 1e-9)


def link_loads(joins: Joins, topology: Topology, tuple_bytes: float, selectivity: float = 1.0) -> list[LinkLoad]:
    """Every link that carries something, the fullest first. Node rows are the topology's node ids."""
    arriving: dict[tuple[int, int], list[tuple[float, float]]] = {}
    flows: dict[tuple[int, int], float] = {}
    board = joins.board
    for r in joins.replicas():
        left, right = (int(s) for s in board.joins["ends"][r.join])
        for source, part, parts in ((left, r.left, r.left_parts), (right, r.right, r.right_parts)):
            arriving.setdefault((source, r.node), []).append((part.start / parts, part.stop / parts))
        share = len(r.left) * len(r.right) / (r.left_parts * r.right_parts)
        rate = share * selectivity * float(board.sources["rate"][left] + board.sources["rate"][right])
        way = r.node, int(board.joins["sink"][r.join])
        flows[way] = flows.get(way, 0.0) + rate
    for (source, node), ranges in arriving.items():
        way = int(board.sources["node"][source]), node
        flows[way] = flows.get(way, 0.0) + union(ranges) * float(board.sources["rate"][source])
    used: dict[int, float] = {}
    for (start, goal), rate in flows.items():
        path = topology.path(NodeId(start), NodeId(goal))
        for arc in path.arcs if path is not None else ():
            used[arc] = used.get(arc, 0.0) + rate * tuple_bytes * BITS
    arcs = topology.arcs
    found = [
        LinkLoad(NodeId(int(arcs.tail[a])), NodeId(int(arcs.tip[a])), mbps, float(arcs.bandwidth_mbps[a]))
        for a, mbps in used.items()
    ]
    return sorted(found, key=lambda link: -link.mbps / max(link.bandwidth_mbps, 1e-12))


def union(ranges: list[tuple[float, float]]) -> float:
    """How much of a stream some ranges cover together.

    >>> union([(0.0, 0.5), (0.25, 0.75)])
    0.75
    """
    total, reached = 0.0, 0.0
    for low, high in sorted(ranges):
        total += max(high - max(low, reached), 0.0)
        reached = max(reached, high)
    return total
