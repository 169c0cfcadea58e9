"""Phase III: a node with room for every cell of every join, compiled, joins in bulk or one at a time.

A rectangle of cells goes whole to the node where it costs least among those with room. Where no node has room (or the
bandwidth threshold forbids it), it is cut in two across the side that brings more, so that the side that brings less is
the one that is sent twice. Nodes that take in an input already compete with only the rest of the need.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.search import Ends, Taste, cheapest, cost_of, nearest
from meander.place.nova.index.tree import NOWHERE, ROOM, Tree
from meander.place.nova.running.columns import (
    LEFT,
    RIGHT,
    PlacedColumns,
    attach,
    demand,
    detach,
    extra,
    latency,
    rows_left,
    shares,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

REFUSE, SPREAD, EXPAND = 0, 1, 2
PLACED, NO_ROOM, NO_ROWS = 0, 1, 2
RECTANGLES = 4096
SIBLINGS = 16
"""So many replicas that share an input are tried as hosts."""
TINY = 1e-9


class Rules(NamedTuple):
    """The constraints of a placement, and its order of preference."""

    least_free: float
    """A node with less free than this takes nothing more (Eq. 3)."""
    bandwidth: float
    """The most that one replica may take in (Eq. 4)."""
    overload: int
    by_distance: bool
    """Choose the node nearest to the virtual place instead of the cheapest one."""


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
    if board.matrix.shape[0] > 0:
        return _scan(board, tree, join, wanted, taste, best, found)
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
    node, cost = cheapest(tree, ends_of(board, join, taste), wanted, taste, best)
    if node != NOWHERE:
        return node, cost
    return found, best


@njit(cache=True, nogil=True)
def _scan(
    board: PlacedColumns, tree: Tree, join: int, wanted: float, taste: Taste, best: float, found: int
) -> tuple[int, float]:
    """With measured latencies there is nothing to prune by: all nodes are looked at."""
    left, right = board.sources[board.joins[join].ends[LEFT]].node, board.sources[board.joins[join].ends[RIGHT]].node
    sink = board.joins[join].sink
    for node in range(board.matrix.shape[0]):
        if board.nodes[node].capacity - board.nodes[node].load >= wanted and tree.slot_of[node] != NOWHERE:
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
def cut_side(board: PlacedColumns, join: int, cells: Ints32) -> int:
    """The side to cut: the one that brings more, if it has more than one part; NOWHERE for a single cell."""
    brings = np.empty(2)
    for side in range(2):
        count = cells[2 * side + 1] - cells[2 * side]
        rate = board.sources[board.joins[join].ends[side]].rate / board.joins[join].parts[side]
        brings[side] = count * rate if count > 1 else -1.0
    if brings[LEFT] < 0 and brings[RIGHT] < 0:
        return NOWHERE
    return LEFT if brings[LEFT] >= brings[RIGHT] else RIGHT


@njit(cache=True, nogil=True)
def _refine(board: PlacedColumns, join: int, waiting: Ints32, count: int) -> bool:
    """Twice as many parts of each side that has parts above one tuple per second; whether there was such a side."""
    finer = False
    for side in range(2):
        if board.sources[board.joins[join].ends[side]].rate / board.joins[join].parts[side] > 1.0:
            finer = True
            board.joins[join].parts[side] *= 2
            for i in range(count):
                waiting[i, 2 * side] *= 2
                waiting[i, 2 * side + 1] *= 2
            replica = board.joins[join].first
            while replica != NOWHERE:
                board.replicas[replica].cells[2 * side] *= 2
                board.replicas[replica].cells[2 * side + 1] *= 2
                replica = board.replicas[replica].in_next
    return finer


@njit(cache=True, nogil=True)
def place_cells(
    board: PlacedColumns, tree: Tree, join: int, cells: Ints32, taste: Taste, rules: Rules, virtual: Floats, added: Ints
) -> int:
    """Places a rectangle of cells, cut where it must be. `added` takes the new replicas, its first entry their number.

    If a part fits nowhere, the replicas made so far are removed, unless overload is to be spread.
    """
    waiting = np.empty((RECTANGLES, 4), dtype=np.int32)
    waiting[0], count = cells, 1
    added[0] = 0
    while count > 0:
        count -= 1
        rectangle = waiting[count].copy()
        node = NOWHERE
        if added[0] + 2 >= added.shape[0] or rows_left(board) < 2:
            _take_back(board, tree, added)
            return NO_ROWS
        if demand(board, join, rectangle) <= rules.bandwidth:
            node, _ = choose(board, tree, join, rectangle, taste, rules, np.inf, virtual)
        if node == NOWHERE:
            side = cut_side(board, join, rectangle)
            if side == NOWHERE and rules.overload == EXPAND and count + 2 < RECTANGLES:
                waiting[count] = rectangle
                if _refine(board, join, waiting, count + 1):
                    count += 1
                    continue
            if side != NOWHERE and count + 2 < RECTANGLES:
                low, high = rectangle[2 * side], rectangle[2 * side + 1]
                middle = (low + high) // 2
                waiting[count] = rectangle
                waiting[count, 2 * side] = middle
                waiting[count + 1] = rectangle
                waiting[count + 1, 2 * side + 1] = middle
                count += 2
                continue
            if rules.overload != SPREAD or demand(board, join, rectangle) > rules.bandwidth:
                _take_back(board, tree, added)
                return NO_ROOM
            node = _least_overloaded(board, tree, join, rectangle, virtual)
            if node == NOWHERE:
                _take_back(board, tree, added)
                return NO_ROOM
        added[0] += 1
        added[added[0]] = attach(board, tree, join, rectangle, node, shares(board, join))
    return PLACED


@njit(cache=True, nogil=True)
def _least_overloaded(board: PlacedColumns, tree: Tree, join: int, cells: Ints32, virtual: Floats) -> int:
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


@njit(cache=True, nogil=True)
def _take_back(board: PlacedColumns, tree: Tree, added: Ints) -> None:
    for i in range(1, added[0] + 1):
        detach(board, tree, added[i])
    added[0] = 0


@njit(cache=True, nogil=True)
def place_all(
    board: PlacedColumns,
    tree: Tree,
    order: Ints,
    begin: int,
    taste: Taste,
    rules: Rules,
    virtual: Floats,
    status: NDArray[np.int8],
) -> int:
    """Places whole joins in the given order; returns how many were dealt with before rows ran out."""
    added = np.empty(RECTANGLES, dtype=np.int64)
    cells = np.zeros(4, dtype=np.int32)
    for i in range(begin, order.shape[0]):
        join = order[i]
        cells[1], cells[3] = board.joins[join].parts[LEFT], board.joins[join].parts[RIGHT]
        point = virtual[join] if virtual.shape[0] > 0 else board.points[board.joins[join].sink]
        status[join] = place_cells(board, tree, join, cells, taste, rules, point, added)
        if status[join] == NO_ROWS:
            return i
    return int(order.shape[0])
