"""The choice of a node for a rectangle of cells: where it costs least among those with room, compiled.

Nodes that take in an input already compete with only the rest of the need.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.search import ALL, Ends, Taste, cheapest, cost_of, nearest
from meander.place.nova.index.tree import NOWHERE, ROOM, Tree
from meander.place.nova.running.columns import LEFT, RIGHT, PlacedColumns, demand, extra, latency, shares

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

REFUSE, SPREAD, EXPAND = 0, 1, 2
SIBLINGS = 16
"""So many replicas that share an input are tried as hosts."""
TINY = 1e-9
WINDOWS = (1.05, 1.5)
"""Rooms of up to so many times the need are preferred, one after the other, where room is tight."""
WINDOW_SLOTS = 192
"""Nodes that are looked at for each of them."""


class Rules(NamedTuple):
    """The constraints of a placement, and its order of preference."""

    least_free: float
    """A node with less free than this takes nothing more (Eq. 3)."""
    bandwidth: float
    """The most that one replica may take in (Eq. 4)."""
    overload: int
    by_distance: bool
    """Choose the node nearest to the virtual place instead of the cheapest one."""
    largest: float
    """The capacity of the largest node: a join that needs more has to be cut."""
    tight: bool
    """Prefer nodes that are nearly filled, so that large rooms are left for large needs."""


@njit(cache=True, nogil=True)
def ends_of(board: PlacedColumns, join: int, taste: Taste) -> Ends:
    left, right = board.sources[board.joins[join].ends[LEFT]].node, board.sources[board.joins[join].ends[RIGHT]].node
    sink = board.joins[join].sink
    onward = taste.sink_weight * board.nodes[sink].height
    return Ends(
        board.points[left], board.points[right], board.points[sink],
        board.nodes[left].height + onward, board.nodes[right].height + onward,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def cost_at(board: PlacedColumns, join: int, node: int, taste: Taste) -> float:
    """The cost of a join at a node."""
    left, right = board.sources[board.joins[join].ends[LEFT]].node, board.sources[board.joins[join].ends[RIGHT]].node
    onward = taste.sink_weight * latency(board, node, board.joins[join].sink)
    return float(
        cost_of(taste, latency(board, left, node) + onward) + cost_of(taste, latency(board, right, node) + onward)
    )


@njit(cache=True, nogil=True)
def _try(board: PlacedColumns, tree: Tree, join: int, cells: Ints32, node: int, taste: Taste, rules: Rules) -> float:
    """A join's cost at one node if it fits there, else infinity."""
    if tree.slot_of[node] == NOWHERE:
        return np.inf
    free = board.nodes[node].capacity - board.nodes[node].load
    if free < rules.least_free or extra(board, join, cells, node) > free + TINY:
        return np.inf
    return cost_at(board, join, node, taste)


@njit(cache=True, nogil=True)
def choose(
    board: PlacedColumns,
    tree: Tree,
    join: int,
    cells: Ints32,
    taste: Taste,
    rules: Rules,
    limit: float,
    virtual: Floats,
) -> tuple[int, float]:
    """The best node for a rectangle of cells, cheaper than the limit, or NOWHERE."""
    best, found = limit, NOWHERE
    need = demand(board, join, cells)
    if shares(board, join):
        found, best = _siblings(board, tree, join, cells, taste, rules, best)
    wanted = max(need, rules.least_free)
    if rules.tight and not rules.by_distance:
        for window in WINDOWS:
            node, cost = _within(board, tree, join, wanted, wanted * window, taste, best)
            if node != NOWHERE:
                return node, cost
    if board.matrix.shape[0] > 0:
        node, cost = _scan(board, tree, join, wanted, np.inf, taste, best)
        return (node, cost) if node != NOWHERE else (found, best)
    if rules.by_distance:
        node, _ = nearest(tree, virtual, wanted)
        if node != NOWHERE:
            cost = cost_at(board, join, node, taste)
            if cost < best:
                return node, cost
        return found, best
    for side in range(3):
        node = board.joins[join].sink if side == 2 else board.sources[board.joins[join].ends[side]].node
        if tree.slot_of[node] != NOWHERE and board.nodes[node].capacity - board.nodes[node].load >= wanted:
            cost = cost_at(board, join, node, taste)
            if cost < best:
                best, found = cost, node
    node, cost = cheapest(tree, ends_of(board, join, taste), wanted, np.inf, ALL, taste, best)
    if node != NOWHERE:
        return node, cost
    return found, best


@njit(cache=True, nogil=True)
def _within(
    board: PlacedColumns, tree: Tree, join: int, wanted: float, most: float, taste: Taste, limit: float
) -> tuple[int, float]:
    """The cheapest node whose room lies between the two."""
    if board.matrix.shape[0] > 0:
        return _scan(board, tree, join, wanted, most, taste, limit)
    node, cost = cheapest(tree, ends_of(board, join, taste), wanted, most, WINDOW_SLOTS, taste, limit)
    return int(node), float(cost)


@njit(cache=True, nogil=True)
def _scan(
    board: PlacedColumns, tree: Tree, join: int, wanted: float, most: float, taste: Taste, best: float
) -> tuple[int, float]:
    """With measured latencies there is nothing to prune by: all nodes are looked at."""
    left, right = board.sources[board.joins[join].ends[LEFT]].node, board.sources[board.joins[join].ends[RIGHT]].node
    sink, found = board.joins[join].sink, NOWHERE
    for node in range(board.matrix.shape[0]):
        if wanted <= board.nodes[node].capacity - board.nodes[node].load <= most and tree.slot_of[node] != NOWHERE:
            onward = taste.sink_weight * board.matrix[node, sink]
            cost = cost_of(taste, board.matrix[left, node] + onward) + cost_of(
                taste, board.matrix[right, node] + onward
            )
            if cost < best:
                best, found = cost, node
    return found, best


@njit(cache=True, nogil=True)
def _siblings(
    board: PlacedColumns, tree: Tree, join: int, cells: Ints32, taste: Taste, rules: Rules, best: float
) -> tuple[int, float]:
    """Nodes that run replicas of the same join, or of joins of the same sources."""
    found, tried = NOWHERE, 0
    replica = board.joins[join].first
    while replica != NOWHERE and tried < SIBLINGS:
        cost = _try(board, tree, join, cells, board.replicas[replica].node, taste, rules)
        if cost < best:
            best, found = cost, board.replicas[replica].node
        tried += 1
        replica = board.replicas[replica].in_next
    for side in range(2):
        tried = 0
        use = board.sources[board.joins[join].ends[side]].first
        while use != NOWHERE and tried < SIBLINGS:
            replica = board.joins[use // 2].first
            if replica != NOWHERE and use // 2 != join:
                cost = _try(board, tree, join, cells, board.replicas[replica].node, taste, rules)
                if cost < best:
                    best, found = cost, board.replicas[replica].node
            tried += 1
            use = board.joins[use // 2].use_next[use % 2]
    return found, best


@njit(cache=True, nogil=True)
def least_overloaded(board: PlacedColumns, tree: Tree, join: int, cells: Ints32, virtual: Floats) -> int:
    """The least overloaded node: among the nearest nodes with free capacity, then among all."""
    need, wanted = demand(board, join, cells), tree.box[0, ROOM]
    for _ in range(6):
        wanted = max(wanted, 0.0) / 2
        node, _away = nearest(tree, virtual, wanted)
        if node != NOWHERE:
            return node
    best, found = np.inf, NOWHERE
    for node in range(board.nodes.shape[0]):
        if tree.slot_of[node] != NOWHERE and board.nodes[node].capacity > 0:
            share = (board.nodes[node].load + need) / board.nodes[node].capacity
            if share < best:
                best, found = share, node
    return found
