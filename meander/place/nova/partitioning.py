"""Cuts of rectangles of cells: only as fine as nodes have room, compiled.

A rectangle that brings x tuples of the left and y of the right, cut into a times b equal pieces, takes in b x + a y:
every piece of one side is sent to all pieces of the other. So the cheapest grid is looked for whose pieces fit into
the largest room there is, and one piece is cut off after the other, as the room left changes with every piece.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.tree import NOWHERE
from meander.place.nova.running.columns import LEFT, RIGHT, PlacedColumns

Ints32 = NDArray[np.int32]

MOST_CUTS = 256
"""Pieces of a side that are thought of."""
SLIVER = 1e-6


@njit(cache=True, nogil=True)
def grid(left: float, right: float, room: float, most_left: int, most_right: int) -> tuple[int, int]:
    """The pieces of each side that take in least altogether and fit into the room one by one; zeros if none do."""
    best, found_left, found_right = np.inf, 0, 0
    for a in range(1, min(most_left, MOST_CUTS) + 1):
        rest = room - left / a
        if rest <= 0:
            continue
        b = max(int(np.ceil(right / rest - SLIVER)), 1)
        if b <= min(most_right, MOST_CUTS) and b * left + a * right < best:
            best, found_left, found_right = b * left + a * right, a, b
        if b == 1:
            break
    return found_left, found_right


@njit(cache=True, nogil=True)
def least_extra(left: float, right: float, room: float) -> float:
    """The least that a join takes in beyond its need if no piece may be larger than the room; infinite if it cannot."""
    a, b = grid(left, right, room, MOST_CUTS, MOST_CUTS)
    return (b - 1) * left + (a - 1) * right if a else np.inf


@njit(cache=True, nogil=True)
def brought(board: PlacedColumns, join: int, cells: Ints32, side: int) -> float:
    """Tuples per second that one side of a rectangle brings."""
    rate = board.sources[board.joins[join].ends[side]].rate
    return float((cells[2 * side + 1] - cells[2 * side]) * rate / board.joins[join].parts[side])


@njit(cache=True, nogil=True)
def next_cut(board: PlacedColumns, join: int, cells: Ints32, room: float) -> tuple[int, int]:
    """The side to cut and the cells of the first piece; NOWHERE if even single cells are too large for the room."""
    left, right = cells[1] - cells[0], cells[3] - cells[2]
    a, b = grid(brought(board, join, cells, LEFT), brought(board, join, cells, RIGHT), room, left, right)
    if a == 0:
        return NOWHERE, 0
    if a == 1 and b == 1:  # it should fit and yet found no node
        side = cut_side(board, join, cells)
        return side, (cells[2 * side + 1] - cells[2 * side]) // 2 if side != NOWHERE else 0
    if a > 1 and (b == 1 or left / a >= right / b):
        return LEFT, max(left // a, 1)
    return RIGHT, max(right // b, 1)


@njit(cache=True, nogil=True)
def filling_cut(board: PlacedColumns, join: int, cells: Ints32, room: float) -> tuple[int, int]:
    """As `next_cut`, but the first piece fills the room, as far as there are cells."""
    side = LEFT if brought(board, join, cells, LEFT) >= brought(board, join, cells, RIGHT) else RIGHT
    count = cells[2 * side + 1] - cells[2 * side]
    first = int((room - brought(board, join, cells, 1 - side)) / brought(board, join, cells, side) * count + SLIVER)
    if 1 <= first < count:
        return side, first
    return next_cut(board, join, cells, room)


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
def refine(board: PlacedColumns, join: int, waiting: Ints32, count: int) -> bool:
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
