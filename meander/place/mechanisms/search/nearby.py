"""Nodes with room in order of latency from a start, found by a search that touches only what lies closer.

This is where mechanisms look when all the nodes they would rather use are full.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.place.free_capacity import Room
from meander.place.problem import Need

MOST_VISITED = 100_000
"""The search gives up after this many nodes, so that a crowded fleet does not make every change expensive."""


def nearby(room: Room, start: NodeId, need: Need, *, upstream: bool = False) -> Iterator[NodeId]:
    """Nodes with this much room, nearest first: as paths from the start go, or with `upstream` as they lead to it.

    The room is looked at when the search starts and again when a node is handed out.
    """
    yielded, wanted = 0, 8
    while True:
        found = _nearest(room, start, need, wanted, upstream)
        for node in found[yielded:]:
            if room.fits(node, need.slots, need.load_tps, need.memory_mb):
                yield node
        if len(found) < wanted:
            return
        yielded, wanted = len(found), wanted * 8


def _nearest(room: Room, start: NodeId, need: Need, wanted: int, upstream: bool) -> list[NodeId]:
    nodes, arcs = room.topology.nodes, room.topology.arcs
    changes = list(room.node_changes)
    touched = np.array([node for node, _, _, _ in changes], dtype=np.int64)
    slots = np.array([s for _, s, _, _ in changes], dtype=np.int64)
    load = np.array([tps for _, _, tps, _ in changes], dtype=np.float64)
    memory = np.array([mb for _, _, _, mb in changes], dtype=np.float64)
    far_end, head, following = (
        (arcs.tail, nodes.in_head, arcs.in_next) if upstream else (arcs.tip, nodes.out_head, arcs.out_next)
    )
    ledger = room.ledger
    found = _search(
        int(start), wanted, need.slots, need.load_tps, need.memory_mb, far_end, arcs.latency_ms, head, following,
        nodes.alive, nodes.slots, nodes.capacity_tps, nodes.memory_mb, ledger.slots, ledger.load_tps, ledger.memory_mb,
        touched, slots, load, memory, MOST_VISITED,
    )  # fmt: skip
    return [NodeId(int(n)) for n in found]


@njit(cache=True, nogil=True)
def _search(
    start: int,
    wanted: int,
    need_slots: int,
    need_tps: float,
    need_mb: float,
    far_end: NDArray[np.int32],
    latency: NDArray[np.float32],
    head: NDArray[np.int32],
    following: NDArray[np.int32],
    alive: NDArray[np.bool_],
    slots: NDArray[np.int32],
    capacity: NDArray[np.float32],
    memory: NDArray[np.float32],
    used_slots: NDArray[np.int32],
    used_tps: NDArray[np.float64],
    used_mb: NDArray[np.float64],
    touched: NDArray[np.int64],
    touched_slots: NDArray[np.int64],
    touched_tps: NDArray[np.float64],
    touched_mb: NDArray[np.float64],
    most_visited: int,
) -> NDArray[np.int64]:
    overlay = {np.int64(-1): np.int64(-1)}
    for i in range(len(touched)):
        overlay[touched[i]] = np.int64(i)
    found = [np.int64(0)][:0]
    if not alive[start]:
        return np.array(found, dtype=np.int64)
    best = {np.int64(start): 0.0}
    done = {np.int64(-1): True}
    queue: Any = [(0.0, np.int64(start))]
    while len(queue) and len(done) <= most_visited:
        distance, node = heapq.heappop(queue)
        if node in done:
            continue
        done[node] = True
        taken_slots, taken_tps, taken_mb = np.int64(used_slots[node]), used_tps[node], used_mb[node]
        if node in overlay:
            taken_slots += touched_slots[overlay[node]]
            taken_tps += touched_tps[overlay[node]]
            taken_mb += touched_mb[overlay[node]]
        if (
            taken_slots + need_slots <= slots[node]
            and taken_tps + need_tps <= capacity[node]
            and taken_mb + need_mb <= memory[node]
        ):
            found.append(node)
            if len(found) == wanted:
                break
        arc = head[node]
        while arc >= 0:
            other = np.int64(far_end[arc])
            reached = distance + latency[arc]
            if other not in best or reached < best[other]:
                best[other] = reached
                heapq.heappush(queue, (reached, other))
            arc = following[arc]
    return np.array(found, dtype=np.int64)
