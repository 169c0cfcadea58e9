"""Adjacency: which arcs leave and enter each node, as linked lists in columns, and cheapest paths along them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.model.topology.columns import ArcColumns, NodeColumns
from meander.model.topology.elements import UNLIMITED
from meander.model.topology.kernels import NONE, distances_from, find_arc, shortest_path, thread_lists
from meander.model.topology.path_cache import Path

NOTHING_USED = np.zeros(0, dtype=np.float64)
FEW_ARCS = 5_000
"""So many are listed in the time that it takes to load compiled code, by the same function as Python."""
NO_ARCS = np.zeros(0, dtype=np.int64)


class Adjacency:
    """Over the nodes and arcs of one topology. Adding or removing an arc costs the same whatever there is."""

    def __init__(self, nodes: NodeColumns, arcs: ArcColumns) -> None:
        self.nodes, self.arcs = nodes, arcs

    @staticmethod
    def of(nodes: NodeColumns, arcs: ArcColumns) -> Adjacency:
        """That of arcs whose ends are in their columns, all at once."""
        used = slice(0, arcs.count)
        threaded = thread_lists if arcs.count > FEW_ARCS else thread_lists.py_func
        threaded(arcs.tail[used], nodes.out_head, arcs.out_next, arcs.out_prev)
        threaded(arcs.tip[used], nodes.in_head, arcs.in_next, arcs.in_prev)
        nodes.out_degree[: nodes.count] = np.bincount(arcs.tail[used], minlength=nodes.count)
        nodes.in_degree[: nodes.count] = np.bincount(arcs.tip[used], minlength=nodes.count)
        return Adjacency(nodes, arcs)

    def __len__(self) -> int:
        """Number of live arcs; a link that goes both ways counts twice."""
        return int(np.count_nonzero(self.arcs.alive))

    def leaving(self, node: NodeId) -> list[int]:
        return _listed(int(self.nodes.out_head[node]), self.arcs.out_next)

    def entering(self, node: NodeId) -> list[int]:
        return _listed(int(self.nodes.in_head[node]), self.arcs.in_next)

    def between(self, tail: NodeId, tip: NodeId) -> int | None:
        """The arc between two neighbours, found from the end that has fewer arcs."""
        n, a = self.nodes, self.arcs
        if n.out_degree[tail] <= n.in_degree[tip]:
            count, first, following, ends, wanted = n.out_degree[tail], n.out_head[tail], a.out_next, a.tip, tip
        else:
            count, first, following, ends, wanted = n.in_degree[tip], n.in_head[tip], a.in_next, a.tail, tail
        if count == 1:  # as with most devices: quicker than a call of compiled code
            return int(first) if ends[first] == wanted else None
        arc = find_arc(first, following, ends, wanted)
        return None if arc == NONE else int(arc)

    def latencies_from(self, start: NodeId) -> NDArray[np.float64]:
        """Latency of the cheapest path to every node; infinite for unreachable and dead ones."""
        a, n = self.arcs, self.nodes
        return distances_from(start, a.tip, a.latency_ms, n.out_head, a.out_next, n.count)

    def search(
        self,
        start: NodeId,
        goal: NodeId,
        need_mbps: float = 0.0,
        used_mbps: NDArray[np.float64] = NOTHING_USED,
        own_mbps: Mapping[int, float] = MappingProxyType({}),
    ) -> Path | None:
        """A cheapest path, computed afresh; with a need, over arcs that have that much left.

        The use of an arc is in `used_mbps`, plus, for the few arcs in it, in `own_mbps`.
        """
        n, a = self.nodes, self.arcs
        if not (n.alive[start] and n.alive[goal]):
            return None
        if start == goal:
            return Path((start,), (), 0.0)
        latency, arcs = shortest_path(
            int(start), int(goal), a.tail, a.tip, a.latency_ms, n.out_head, a.out_next, n.in_head, a.in_next,
            need_mbps, a.bandwidth_mbps, used_mbps, *_sorted_columns(own_mbps),
        )  # fmt: skip
        if latency == UNLIMITED:
            return None
        nodes = (start, *(NodeId(int(a.tip[arc])) for arc in arcs))
        return Path(nodes, tuple(map(int, arcs)), float(latency))

    def add(self, tail: NodeId, tip: NodeId, latency_ms: float, bandwidth_mbps: float) -> None:
        arc = self.arcs.append()
        n, a = self.nodes, self.arcs
        a.tail[arc], a.tip[arc], a.alive[arc] = tail, tip, True
        a.latency_ms[arc], a.bandwidth_mbps[arc] = latency_ms, bandwidth_mbps
        _push(arc, tail, n.out_head, a.out_next, a.out_prev)
        _push(arc, tip, n.in_head, a.in_next, a.in_prev)
        n.out_degree[tail] += 1
        n.in_degree[tip] += 1

    def remove(self, arc: int) -> None:
        n, a = self.nodes, self.arcs
        tail, tip = int(a.tail[arc]), int(a.tip[arc])
        _unlink(arc, tail, n.out_head, a.out_next, a.out_prev)
        _unlink(arc, tip, n.in_head, a.in_next, a.in_prev)
        n.out_degree[tail] -= 1
        n.in_degree[tip] -= 1
        a.alive[arc] = False
        a.free.append(arc)


def _sorted_columns(by_arc: Mapping[int, float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if not by_arc:
        return NO_ARCS, NOTHING_USED
    arcs = sorted(by_arc)
    return np.array(arcs, dtype=np.int64), np.array([by_arc[arc] for arc in arcs], dtype=np.float64)


def _listed(arc: int, following: NDArray[np.int32]) -> list[int]:
    found: list[int] = []
    while arc != NONE:
        found.append(arc)
        arc = int(following[arc])
    return found


def _push(
    arc: int, owner: int, head: NDArray[np.int32], following: NDArray[np.int32], preceding: NDArray[np.int32]
) -> None:
    first = head[owner]
    following[arc], preceding[arc] = first, NONE
    if first != NONE:
        preceding[first] = arc
    head[owner] = arc


def _unlink(
    arc: int, owner: int, head: NDArray[np.int32], following: NDArray[np.int32], preceding: NDArray[np.int32]
) -> None:
    before, after = preceding[arc], following[arc]
    if before == NONE:
        head[owner] = after
    else:
        following[before] = after
    if after != NONE:
        preceding[after] = before
