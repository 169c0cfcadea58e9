"""The state of a placement as arrays: nodes and their input, sources, joins, and the replicas of each join.

A join of a left and a right source is a grid: tuples of the left are numbered into `parts` partitions, those of the
right as well, and every cell of the grid must be at exactly one node. A replica is a rectangle of cells at a node. A
node takes in a partition once, however many of its replicas read it: what arrives is the union of their ranges.

Replicas hang in three lists each (of their node, of their join, and free rows), so taking one away costs nothing more
than itself.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.tree import NOWHERE, Tree, set_free

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Rows = Any
"""An array of records; their fields are read by name in compiled code."""

LEFT, RIGHT = 0, 1
REPLICAS, FREE_HEAD = 0, 1


NODE = np.dtype([("height", "f8"), ("capacity", "f8"), ("load", "f8"), ("first", "i4"), ("count", "i4")], align=True)
"""`load` is what arrives, tuples per second; `first` leads to the node's replicas, of which there are `count`."""
SOURCE = np.dtype([("rate", "f8"), ("node", "i4"), ("first", "i4"), ("uses", "i4")], align=True)
"""`first` leads to the source's uses: 2 x join + side."""
JOIN = np.dtype(
    [
        ("ends", "i4", (2,)), ("sink", "i4"), ("first", "i4"), ("parts", "i4", (2,)), ("use_next", "i4", (2,)),
        ("use_before", "i4", (2,)),
    ],
    align=True,
)  # fmt: skip
"""`ends` are the left and right source, `sink` is a node, `parts` the partitions of each side."""
REPLICA = np.dtype(
    [
        ("join", "i4"), ("node", "i4"), ("cells", "i4", (4,)), ("on_next", "i4"), ("on_before", "i4"),
        ("in_next", "i4"), ("in_before", "i4"),
    ],
    align=True,
)  # fmt: skip
"""`cells` are left from, left to, right from, right to. A free row has no join."""


class PlacedColumns(NamedTuple):
    """Rows of nodes, sources, joins and replicas: few arrays of wide rows, so that compiled calls are cheap."""

    points: Floats
    matrix: Floats
    """Measured latency between nodes; empty if the cost space is all there is."""
    nodes: Rows
    sources: Rows
    joins: Rows
    replicas: Rows
    counts: Ints
    """Rows of replicas ever used, and the first free one among them."""


@njit(cache=True, nogil=True)
def latency(board: PlacedColumns, a: int, b: int) -> float:
    """Measured if there is a matrix, else estimated."""
    if a == b:
        return 0.0
    if board.matrix.shape[0] > 0:
        return float(board.matrix[a, b])
    total = 0.0
    for d in range(board.points.shape[1]):
        gap = board.points[a, d] - board.points[b, d]
        total += gap * gap
    return float(np.sqrt(total) + board.nodes[a].height + board.nodes[b].height)


@njit(cache=True, nogil=True)
def use_source(board: PlacedColumns, join: int, side: int) -> None:
    """Puts a join into its source's list."""
    source, use = board.joins[join].ends[side], 2 * join + side
    first = board.sources[source].first
    board.joins[use // 2].use_next[use % 2], board.joins[use // 2].use_before[use % 2] = first, NOWHERE
    if first != NOWHERE:
        board.joins[first // 2].use_before[first % 2] = use
    board.sources[source].first = use
    board.sources[source].uses += 1


@njit(cache=True, nogil=True)
def leave_source(board: PlacedColumns, join: int, side: int) -> None:
    """Takes a join out of its source's list."""
    source, use = board.joins[join].ends[side], 2 * join + side
    before, after = board.joins[use // 2].use_before[use % 2], board.joins[use // 2].use_next[use % 2]
    if before == NOWHERE:
        board.sources[source].first = after
    else:
        board.joins[before // 2].use_next[before % 2] = after
    if after != NOWHERE:
        board.joins[after // 2].use_before[after % 2] = before
    board.sources[source].uses -= 1


@njit(cache=True, nogil=True)
def use_all(board: PlacedColumns, joins: int) -> None:
    """Puts all joins into their sources' lists."""
    for join in range(joins):
        use_source(board, join, LEFT)
        use_source(board, join, RIGHT)


@njit(cache=True, nogil=True)
def _onwards(
    board: PlacedColumns, replica: int, source: int, reached: float, end: float, start: float
) -> tuple[float, float]:
    """The end of the range of one replica that covers `reached`, or else the start of its next range; if not better."""
    join = board.replicas[replica].join
    for side in range(2):
        if board.joins[join].ends[side] == source:
            low = board.replicas[replica].cells[2 * side] / board.joins[join].parts[side]
            high = board.replicas[replica].cells[2 * side + 1] / board.joins[join].parts[side]
            if low <= reached:
                end = max(end, high)
            else:
                start = min(start, low)
    return end, start


@njit(cache=True, nogil=True)
def arriving(board: PlacedColumns, node: int, source: int, low: float, high: float) -> float:
    """The share of a source's range that a node does not take in yet, by a sweep over the replicas that read it."""
    missing, reached = 0.0, low
    while reached < high:
        end, start = reached, high
        if board.sources[source].uses < board.nodes[node].count:
            use = board.sources[source].first
            while use != NOWHERE:
                replica = board.joins[use // 2].first
                while replica != NOWHERE:
                    if board.replicas[replica].node == node:
                        end, start = _onwards(board, replica, source, reached, end, start)
                    replica = board.replicas[replica].in_next
                use = board.joins[use // 2].use_next[use % 2]
        else:
            replica = board.nodes[node].first
            while replica != NOWHERE:
                end, start = _onwards(board, replica, source, reached, end, start)
                replica = board.replicas[replica].on_next
        if end > reached:
            reached = end
        else:
            missing += start - reached
            reached = start
    return missing


@njit(cache=True, nogil=True)
def shares(board: PlacedColumns, join: int) -> bool:
    """Whether anything this join takes in may be taken in for another replica already."""
    if board.joins[join].first != NOWHERE:
        return True
    return bool(
        board.sources[board.joins[join].ends[LEFT]].uses > 1 or board.sources[board.joins[join].ends[RIGHT]].uses > 1
    )


@njit(cache=True, nogil=True)
def demand(board: PlacedColumns, join: int, cells: Ints32) -> float:
    """Tuples per second of a rectangle of cells, at a node that takes in nothing of it yet."""
    total = 0.0
    for side in range(2):
        part = (cells[2 * side + 1] - cells[2 * side]) / board.joins[join].parts[side]
        total += part * board.sources[board.joins[join].ends[side]].rate
    return total


@njit(cache=True, nogil=True)
def extra(board: PlacedColumns, join: int, cells: Ints32, node: int) -> float:
    """Tuples per second that a rectangle of cells adds to a node's input."""
    if board.nodes[node].first == NOWHERE:
        return demand(board, join, cells)
    total = 0.0
    for side in range(2):
        source, parts = board.joins[join].ends[side], board.joins[join].parts[side]
        new = arriving(board, node, source, cells[2 * side] / parts, cells[2 * side + 1] / parts)
        total += new * board.sources[source].rate
    return total


@njit(cache=True, nogil=True)
def attach(board: PlacedColumns, tree: Tree, join: int, cells: Ints32, node: int, shared: bool) -> int:
    """A new replica. There must be a free row."""
    added = extra(board, join, cells, node) if shared else demand(board, join, cells)
    replica = board.counts[FREE_HEAD]
    if replica != NOWHERE:
        board.counts[FREE_HEAD] = board.replicas[replica].in_next
    else:
        replica = board.counts[REPLICAS]
        board.counts[REPLICAS] += 1
    board.replicas[replica].join, board.replicas[replica].node = join, node
    for i in range(4):
        board.replicas[replica].cells[i] = cells[i]
    first = board.nodes[node].first
    board.replicas[replica].on_next, board.replicas[replica].on_before = first, NOWHERE
    if first != NOWHERE:
        board.replicas[first].on_before = replica
    board.nodes[node].first = replica
    board.nodes[node].count += 1
    first = board.joins[join].first
    board.replicas[replica].in_next, board.replicas[replica].in_before = first, NOWHERE
    if first != NOWHERE:
        board.replicas[first].in_before = replica
    board.joins[join].first = replica
    board.nodes[node].load += added
    set_free(tree, node, board.nodes[node].capacity - board.nodes[node].load)
    return int(replica)


@njit(cache=True, nogil=True)
def detach(board: PlacedColumns, tree: Tree, replica: int) -> None:
    """Takes a replica away and gives back what arrived for it alone."""
    join, node = board.replicas[replica].join, board.replicas[replica].node
    board.nodes[node].count -= 1
    before, after = board.replicas[replica].on_before, board.replicas[replica].on_next
    if before == NOWHERE:
        board.nodes[node].first = after
    else:
        board.replicas[before].on_next = after
    if after != NOWHERE:
        board.replicas[after].on_before = before
    before, after = board.replicas[replica].in_before, board.replicas[replica].in_next
    if before == NOWHERE:
        board.joins[join].first = after
    else:
        board.replicas[before].in_next = after
    if after != NOWHERE:
        board.replicas[after].in_before = before
    if board.nodes[node].first == NOWHERE:
        board.nodes[node].load = 0.0
    else:
        cells = board.replicas[replica].cells
        gone = extra(board, join, cells, node) if shares(board, join) else demand(board, join, cells)
        board.nodes[node].load = max(board.nodes[node].load - gone, 0.0)
    set_free(tree, node, board.nodes[node].capacity - board.nodes[node].load)
    board.replicas[replica].join = NOWHERE
    board.replicas[replica].in_next = board.counts[FREE_HEAD]
    board.counts[FREE_HEAD] = replica


@njit(cache=True, nogil=True)
def rows_left(board: PlacedColumns) -> int:
    """Free rows at the end; free ones in between are not counted."""
    return int(board.replicas.shape[0] - board.counts[REPLICAS])
