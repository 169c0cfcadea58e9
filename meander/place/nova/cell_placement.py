"""Phase III: a node with room for every cell of every join, compiled, joins in bulk or one at a time.

A rectangle of cells goes whole to the node where it costs least among those with room. Where no node has room (or the
bandwidth threshold forbids it), others may be pushed aside, or it is cut, only as fine as it must be: what cutting
sends twice counts against a budget, because that capacity is lost to all other joins.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.displacement import HOSTS, push_aside
from meander.place.nova.index.search import Taste
from meander.place.nova.index.tree import NOWHERE, ROOM, Tree
from meander.place.nova.node_choice import EXPAND, SPREAD, Rules, choose, least_overloaded
from meander.place.nova.partitioning import brought, filling_cut, least_extra, next_cut, refine
from meander.place.nova.running.columns import LEFT, RIGHT, PlacedColumns, attach, demand, detach, rows_left, shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

PLACED, NO_ROOM, NO_ROWS = 0, 1, 2
RECTANGLES = 4096
MOST_BROADCAST = 3.0
"""The most that a join takes in beyond its need for being cut, as a multiple of it; more where it cannot be less."""
TIGHT_BROADCAST = 0.5
"""As much where room is tight: two pieces, if both sides bring the same."""
MOST_REFUSED = 3
"""Pieces of a join for which others were not pushed aside, after which that is not tried for more of them."""
FINE = 16
"""Cells of a side from which a piece is taken that fills a room."""
GREED = 4.0
"""A join may take this many times its share of the capacity that all joins together do not need."""


@njit(cache=True, nogil=True)
def place_cells(
    board: PlacedColumns,
    tree: Tree,
    join: int,
    cells: Ints32,
    taste: Taste,
    rules: Rules,
    virtual: Floats,
    added: Ints,
    broadcast: float,
    pushes: bool,
) -> int:
    """Places a rectangle of cells, cut where it must be. `added` takes the new replicas, its first entry their number.

    All pieces together take in at most `broadcast` times the join's need more than that. With `pushes`, replicas of
    other joins are moved out of the way. If a part fits nowhere, the replicas made so far are removed, unless overload
    is to be spread.
    """
    waiting = np.empty((RECTANGLES, 4), dtype=np.int32)
    hosts, costs = np.empty(HOSTS if pushes else 0, dtype=np.int64), np.empty(HOSTS if pushes else 0)
    waiting[0], count = cells, 1
    added[0] = 0
    left, right = brought(board, join, cells, LEFT), brought(board, join, cells, RIGHT)
    need, budget = left + right, broadcast * (left + right)
    if need > min(rules.largest, rules.bandwidth):
        budget += (1 + broadcast) * least_extra(left, right, min(rules.largest, rules.bandwidth))
    refused = 0
    while count > 0:
        count -= 1
        rectangle = waiting[count].copy()
        node, need = NOWHERE, demand(board, join, rectangle)
        if added[0] + 2 >= added.shape[0] or rows_left(board) < 2:
            _take_back(board, tree, added)
            return NO_ROWS
        if need <= rules.bandwidth:
            node, _ = choose(board, tree, join, rectangle, taste, rules, np.inf, virtual)
            if node == NOWHERE and pushes and refused < MOST_REFUSED:
                node = push_aside(board, tree, join, rectangle, taste, rules, virtual, hosts, costs)
                refused += node == NOWHERE
        if node == NOWHERE:
            room = min(tree.box[0, ROOM], rules.bandwidth)
            if rules.tight and rules.overload == EXPAND:
                waiting[count] = rectangle
                while max(rectangle[1] - rectangle[0], rectangle[3] - rectangle[2]) < FINE:
                    if not refine(board, join, waiting, count + 1):
                        break
                    rectangle = waiting[count].copy()
            if rules.tight:
                side, first = filling_cut(board, join, rectangle, room)
            else:
                side, first = next_cut(board, join, rectangle, room)
            if side == NOWHERE and rules.overload == EXPAND and tree.box[0, ROOM] > 0:
                waiting[count] = rectangle
                if refine(board, join, waiting, count + 1):
                    count += 1
                    continue
            if side == NOWHERE and rules.overload == SPREAD and need > rules.bandwidth:
                room = rules.bandwidth
                side, first = next_cut(board, join, rectangle, room)
            if side != NOWHERE and count + 2 < RECTANGLES and _least(board, join, rectangle, room) <= budget:
                twice = brought(board, join, rectangle, 1 - side)
                if twice <= budget:
                    budget -= twice
                    low = rectangle[2 * side]
                    waiting[count] = rectangle
                    waiting[count, 2 * side] = low + first
                    waiting[count + 1] = rectangle
                    waiting[count + 1, 2 * side + 1] = low + first
                    count += 2
                    continue
            if rules.overload == SPREAD and need <= rules.bandwidth:
                node = least_overloaded(board, tree, join, rectangle, virtual)
            if node == NOWHERE:
                _take_back(board, tree, added)
                return NO_ROOM
        added[0] += 1
        added[added[0]] = attach(board, tree, join, rectangle, node, shares(board, join))
    return PLACED


@njit(cache=True, nogil=True)
def _least(board: PlacedColumns, join: int, cells: Ints32, room: float) -> float:
    """The least that cutting a rectangle so that its pieces fit into the room takes in beyond its need."""
    return least_extra(brought(board, join, cells, LEFT), brought(board, join, cells, RIGHT), room)


@njit(cache=True, nogil=True)
def _take_back(board: PlacedColumns, tree: Tree, added: Ints) -> None:
    for i in range(1, added[0] + 1):
        detach(board, tree, added[i])
    added[0] = 0


@njit(cache=True, nogil=True)
def _spare(board: PlacedColumns, tree: Tree) -> float:
    """Free capacity of all nodes."""
    total = 0.0
    for node in range(board.nodes.shape[0]):
        if tree.slot_of[node] != NOWHERE:
            total += max(board.nodes[node].capacity - board.nodes[node].load, 0.0)
    return total


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
    pushes: bool,
    most_failures: int,
) -> int:
    """Places whole joins in the given order; returns how many were dealt with before rows ran out.

    A join may be cut as far as the capacity allows that the joins still to be placed do not need; where room is tight,
    up to `TIGHT_BROADCAST`; with `pushes`, up to `MOST_BROADCAST`. After so many failures in a row the rest stays as it
    is.
    """
    added = np.empty(RECTANGLES, dtype=np.int64)
    cells = np.zeros(4, dtype=np.int32)
    free, needed, failures = _spare(board, tree), 0.0, 0
    for i in range(begin, order.shape[0]):
        cells[1], cells[3] = board.joins[order[i]].parts[LEFT], board.joins[order[i]].parts[RIGHT]
        needed += demand(board, order[i], cells)
    for i in range(begin, order.shape[0]):
        join = order[i]
        cells[1], cells[3] = board.joins[join].parts[LEFT], board.joins[join].parts[RIGHT]
        point = virtual[join] if virtual.shape[0] > 0 else board.points[board.joins[join].sink]
        own = demand(board, join, cells)
        broadcast = MOST_BROADCAST
        if rules.tight and not pushes:
            broadcast = TIGHT_BROADCAST
        elif not pushes:
            broadcast = min(max(GREED * (free - needed) / max(needed, own), 0.0), MOST_BROADCAST)
        found = place_cells(board, tree, join, cells, taste, rules, point, added, broadcast, pushes)
        if found == NO_ROWS:
            return i
        status[join] = found
        needed -= own
        if found == PLACED:
            failures = 0
            for k in range(1, added[0] + 1):
                free -= demand(board, join, board.replicas[added[k]].cells)
        else:
            failures += 1
            if failures >= most_failures:
                return int(order.shape[0])
    return int(order.shape[0])
