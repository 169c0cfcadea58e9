"""Compiled kernels over the topology's columns: bulk linking and shortest paths.

Arcs are kept as doubly linked lists threaded through arrays, one list of outgoing and one of incoming arcs per node. So
a change is O(1) once the arc is known, and the cost of a search grows with the nodes it visits. Kernels release the
GIL.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
NONE = -1


@njit(cache=True, nogil=True)
def thread_lists(owner: Ints, head: Ints, following: Ints, preceding: Ints) -> None:
    """Builds all lists at once: arcs of one owner are chained in index order. Writes into the given arrays."""
    head[:] = NONE
    for arc in range(len(owner) - 1, -1, -1):
        first = head[owner[arc]]
        following[arc] = first
        preceding[arc] = NONE
        if first != NONE:
            preceding[first] = arc
        head[owner[arc]] = arc


@njit(cache=True, nogil=True)
def find_arc(first: int, following: Ints, far_end: Ints, wanted: int) -> int:
    """The arc in the list that leads to `wanted`, or NONE."""
    arc = first
    while arc != NONE and far_end[arc] != wanted:
        arc = following[arc]
    return arc


@njit(cache=True, nogil=True)
def _left(
    arc: int, limit: Floats, used: NDArray[np.float64], own_arcs: NDArray[np.int64], own: NDArray[np.float64]
) -> float:
    left = limit[arc] - used[arc]
    at = np.searchsorted(own_arcs, arc)
    if at < len(own_arcs) and own_arcs[at] == arc:
        left -= own[at]
    return float(left)


@njit(cache=True, nogil=True)
def _expand(
    node: int,
    distance: float,
    goal: int,
    head: Ints,
    following: Ints,
    far_end: Ints,
    weight: Floats,
    need: float,
    limit: Floats,
    used: NDArray[np.float64],
    own_arcs: NDArray[np.int64],
    own: NDArray[np.float64],
    best: Any,
    via: Any,
    queue: Any,
) -> None:
    arc = head[node]
    while arc != NONE:
        other = np.int64(far_end[arc])
        onward = head[other]
        # A node with no arc but the one back cannot lie on a path: skipping it keeps hubs cheap.
        dead_end = onward == NONE or (following[onward] == NONE and far_end[onward] == node)
        suffices = need == 0.0 or _left(arc, limit, used, own_arcs, own) >= need
        if suffices and (other == goal or not dead_end):
            reached = distance + weight[arc]
            if other not in best or reached < best[other]:
                best[other] = reached
                via[other] = np.int64(arc)
                heapq.heappush(queue, (reached, other))
        arc = following[arc]


@njit(cache=True, nogil=True)
def shortest_path(
    start: int,
    goal: int,
    tail: Ints,
    tip: Ints,
    weight: Floats,
    out_head: Ints,
    out_next: Ints,
    in_head: Ints,
    in_next: Ints,
    need: float,
    limit: Floats,
    used: NDArray[np.float64],
    own_arcs: NDArray[np.int64],
    own: NDArray[np.float64],
) -> tuple[float, Ints]:
    """Bidirectional Dijkstra over arcs that have at least `need` left of their `limit`; with no need, over all arcs.

    Beside the use of each arc in `used`, `own` has the additional use of a few, given with the arcs in ascending order.

    Returns the length and the arcs of a cheapest path; (inf, []) when there is none.

    Both ends search in turn, the smaller frontier first, so an isolated end is noticed at once.
    """
    forward = {start: 0.0}
    backward = {goal: 0.0}
    forward_via = {start: NONE}
    backward_via = {goal: NONE}
    forward_queue = [(0.0, start)]
    backward_queue = [(0.0, goal)]
    best, meeting = np.inf, NONE
    while len(forward_queue) and len(backward_queue):
        if forward_queue[0][0] + backward_queue[0][0] >= best:
            break
        if len(forward_queue) <= len(backward_queue):
            distance, node = heapq.heappop(forward_queue)
            if distance > forward[node]:
                continue
            if node in backward and distance + backward[node] < best:
                best, meeting = distance + backward[node], node
            _expand(
                node,
                distance,
                goal,
                out_head,
                out_next,
                tip,
                weight,
                need,
                limit,
                used,
                own_arcs,
                own,
                forward,
                forward_via,
                forward_queue,
            )
        else:
            distance, node = heapq.heappop(backward_queue)
            if distance > backward[node]:
                continue
            if node in forward and distance + forward[node] < best:
                best, meeting = distance + forward[node], node
            _expand(
                node,
                distance,
                start,
                in_head,
                in_next,
                tail,
                weight,
                need,
                limit,
                used,
                own_arcs,
                own,
                backward,
                backward_via,
                backward_queue,
            )
    if meeting == NONE:
        return np.inf, np.empty(0, dtype=np.int32)
    return best, _arcs_through(meeting, forward_via, backward_via, tail, tip)


@njit(cache=True, nogil=True)
def _arcs_through(
    meeting: int, forward_via: dict[int, int], backward_via: dict[int, int], tail: Ints, tip: Ints
) -> Ints:
    reversed_start = [NONE]
    node = meeting
    while forward_via[node] != NONE:
        reversed_start.append(forward_via[node])
        node = tail[forward_via[node]]
    arcs = reversed_start[:0:-1]
    node = meeting
    while backward_via[node] != NONE:
        arcs.append(backward_via[node])
        node = tip[backward_via[node]]
    return np.array(arcs, dtype=np.int32)


@njit(cache=True, nogil=True)
def distances_from(
    start: int, tip: Ints, weight: Floats, head: Ints, following: Ints, nodes: int
) -> NDArray[np.float64]:
    """Distances to every node (inf where there is no path)."""
    distance = np.full(nodes, np.inf)
    distance[start] = 0.0
    queue: Any = [(0.0, start)]
    while len(queue):
        reached, node = heapq.heappop(queue)
        if reached > distance[node]:
            continue
        arc = head[node]
        while arc != NONE:
            through = reached + weight[arc]
            if through < distance[tip[arc]]:
                distance[tip[arc]] = through
                heapq.heappush(queue, (through, np.int64(tip[arc])))
            arc = following[arc]
    return distance
