"""The index of nodes: finds the best node for a join among those with enough room. A k-d tree with the most free
capacity below each box.

Every box of the tree keeps the most free capacity and the least height of the nodes in it. A search leaves out boxes
without room and boxes whose best corner cannot beat the best node so far. Taking or giving back capacity changes one
path to the root; a node that joins goes into the leaf around it, which is cut in two when full; a node that leaves
frees its slot. So the index is never stale, and nothing is built again.

A search is bound by memory, so boxes are short rows of single precision, rounded outwards, and siblings lie side by
side. All arrays live in `Tree`, a named tuple, so that compiled code elsewhere searches and updates without Python.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

LEAF = 32
"""Slots of a leaf."""
FILL = 20
"""Nodes in a leaf when the tree is built, at most."""
NOWHERE = -1
DEEPEST = 256
GONE = -1.0
"""The room of an empty slot or box; less than any need."""
ROUND = 1.2e-7
"""A little more than half the gap between neighbours in single precision, relative to them."""

BOXES, LEAVES = 0, 1
CHILD, ROOM, HEIGHT, LOW = 0, 1, 2, 3
ROW = 8
"""Boxes are rows of a multiple of this many numbers, so that two siblings share a cache line in the plane."""
LEAVES_ROW = np.dtype([("box", "i4"), ("count", "i4")])


class Tree(NamedTuple):
    """Boxes and leaves. A leaf has `LEAF` slots from `leaf * LEAF` on, of which the first `leaf_count` are taken."""

    box: Floats32
    """Per box (its child), the most free capacity and the least height in it, its lowest and its highest corner."""
    links: Ints32
    """The same memory as whole numbers: CHILD is the first child (the second follows), or -1 - a leaf's number."""
    parent: Ints32
    leaves: Any
    slot: Floats
    """Per slot the node's point, free capacity and height."""
    slot_node: Ints32
    slot_of: Ints32
    """Per node its slot, or NOWHERE."""
    used: Ints
    """The number of boxes and leaves."""


def build(points: Floats, heights: Floats, free: Floats, alive: NDArray[np.bool_]) -> Tree:
    """A balanced tree over all living nodes, with spare rows for half as many leaves again."""
    nodes = np.flatnonzero(alive & ~np.isnan(points[:, 0])).astype(np.int32)
    leaves = 1
    while leaves * FILL < len(nodes):
        leaves *= 2
    tree = _empty(leaves + leaves // 2 + 64, points.shape[1], len(points))
    _build(tree, nodes, np.column_stack((points[nodes], free[nodes], heights[nodes])))
    return tree


def grown(tree: Tree, nodes: int) -> Tree:
    """The same tree in larger arrays when spare rows run low or nodes are more than before; otherwise itself."""
    leaves = len(tree.leaves)
    if tree.used[LEAVES] + 2 >= leaves:
        leaves *= 2
    if leaves == len(tree.leaves) and nodes <= len(tree.slot_of):
        return tree
    room = len(tree.slot_of) if nodes <= len(tree.slot_of) else max(nodes, len(tree.slot_of) * 5 // 4)
    larger = _empty(leaves, tree.slot.shape[1] - 2, room)
    for name in ("box", "parent", "leaves", "slot", "slot_node", "slot_of", "used"):
        old = getattr(tree, name)
        getattr(larger, name)[: len(old)] = old
    return larger


def _empty(leaves: int, dimensions: int, nodes: int) -> Tree:
    boxes, slots = 2 * leaves + 2, LEAF * leaves
    width = -(-(LOW + 2 * dimensions) // ROW) * ROW
    memory = np.empty((boxes + 1) * width * 4 + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    box = memory[start : start + boxes * width * 4].view(np.float32).reshape(boxes, width)
    box[:] = np.inf
    box[:, LOW + dimensions :] = -np.inf
    box[:, ROOM] = GONE
    links = box.view(np.int32)
    links[:, CHILD] = NOWHERE
    return Tree(
        box, links, np.full(boxes, NOWHERE, dtype=np.int32), np.zeros(leaves, dtype=LEAVES_ROW),
        np.zeros((slots, dimensions + 2)), np.full(slots, NOWHERE, dtype=np.int32),
        np.full(nodes, NOWHERE, dtype=np.int32), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _down(x: float) -> np.float32:
    return np.float32(x - abs(x) * ROUND)


@njit(cache=True, nogil=True)
def _up(x: float) -> np.float32:
    return np.float32(x + abs(x) * ROUND)


@njit(cache=True, nogil=True)
def _build(tree: Tree, nodes: Ints32, rows: Floats) -> None:
    """Cuts at the median of the widest side until a leaf's worth is left. Rows are moved along with their nodes."""
    dimensions = rows.shape[1] - 2
    first = np.empty(DEEPEST, dtype=np.int64)
    last = np.empty(DEEPEST, dtype=np.int64)
    box_of = np.empty(DEEPEST, dtype=np.int64)
    low, high = np.empty(dimensions), np.empty(dimensions)
    first[0], last[0], box_of[0] = 0, len(nodes), 0
    tree.used[BOXES] = 2
    top = 1
    while top > 0:
        top -= 1
        a, b, box = first[top], last[top], box_of[top]
        low[:], high[:] = np.inf, -np.inf
        for i in range(a, b):
            for d in range(dimensions):
                x = rows[i, d]
                if x < low[d]:
                    low[d] = x
                if x > high[d]:
                    high[d] = x
        for d in range(dimensions):
            tree.box[box, LOW + d], tree.box[box, LOW + dimensions + d] = _down(low[d]), _up(high[d])
        if b - a <= FILL:
            leaf = tree.used[LEAVES]
            tree.used[LEAVES] += 1
            tree.links[box, CHILD], tree.leaves[leaf].box, tree.leaves[leaf].count = -1 - leaf, box, b - a
            for i in range(a, b):
                slot = leaf * LEAF + i - a
                tree.slot[slot], tree.slot_node[slot], tree.slot_of[nodes[i]] = rows[i], nodes[i], slot
            continue
        widest = 0
        for d in range(1, dimensions):
            if high[d] - low[d] > high[widest] - low[widest]:
                widest = d
        middle = (a + b) // 2
        _select(nodes, rows, a, b, middle, widest)
        child = tree.used[BOXES]
        tree.used[BOXES] += 2
        tree.links[box, CHILD], tree.parent[child], tree.parent[child + 1] = child, box, box
        first[top], last[top], box_of[top] = a, middle, child
        first[top + 1], last[top + 1], box_of[top + 1] = middle, b, child + 1
        top += 2
    for box in range(tree.used[BOXES] - 1, -1, -1):
        if box != 1:
            _summarise(tree, box)


@njit(cache=True, nogil=True)
def _select(nodes: Ints32, rows: Floats, a: int, b: int, middle: int, d: int) -> None:
    """Puts the row of middle rank in the middle, smaller ones before it."""
    low, high = a, b - 1
    while low < high:
        pivot = rows[(low + high) // 2, d]
        i, j = low, high
        while i <= j:
            while rows[i, d] < pivot:
                i += 1
            while rows[j, d] > pivot:
                j -= 1
            if i <= j:
                nodes[i], nodes[j] = nodes[j], nodes[i]
                for c in range(rows.shape[1]):
                    rows[i, c], rows[j, c] = rows[j, c], rows[i, c]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@njit(cache=True, nogil=True)
def _summarise(tree: Tree, box: int) -> bool:
    """Most free capacity and least height of a box from its children; whether that changed."""
    dimensions = tree.slot.shape[1] - 2
    most, least = np.float32(GONE), np.float32(np.inf)
    child = tree.links[box, CHILD]
    if child < 0:
        leaf = -1 - child
        for slot in range(leaf * LEAF, leaf * LEAF + tree.leaves[leaf].count):
            most = max(most, _up(tree.slot[slot, dimensions]))
            least = min(least, _down(tree.slot[slot, dimensions + 1]))
    else:
        most = max(tree.box[child, ROOM], tree.box[child + 1, ROOM])
        least = min(tree.box[child, HEIGHT], tree.box[child + 1, HEIGHT])
    changed = most != tree.box[box, ROOM] or least != tree.box[box, HEIGHT]
    tree.box[box, ROOM], tree.box[box, HEIGHT] = most, least
    return bool(changed)


@njit(cache=True, nogil=True)
def _climb(tree: Tree, box: int) -> None:
    while box != NOWHERE and _summarise(tree, box):
        box = tree.parent[box]


@njit(cache=True, nogil=True)
def set_free(tree: Tree, node: int, free: float) -> None:
    """A node's free capacity changed."""
    slot = tree.slot_of[node]
    if slot == NOWHERE:
        return
    dimensions = tree.slot.shape[1] - 2
    before = tree.slot[slot, dimensions]
    tree.slot[slot, dimensions] = free
    box = tree.leaves[slot // LEAF].box
    most = tree.box[box, ROOM]
    if _up(free) > most or _up(before) >= most:
        _climb(tree, box)


@njit(cache=True, nogil=True)
def remove(tree: Tree, node: int) -> None:
    """Takes a node out; the last slot of its leaf moves into the gap. Boxes keep their size, which is still right."""
    slot = tree.slot_of[node]
    if slot == NOWHERE:
        return
    leaf = slot // LEAF
    last = leaf * LEAF + tree.leaves[leaf].count - 1
    moved = tree.slot_node[last]
    tree.slot[slot], tree.slot_node[slot], tree.slot_of[moved] = tree.slot[last], moved, slot
    tree.slot_of[node], tree.slot_node[last] = NOWHERE, NOWHERE
    tree.leaves[leaf].count -= 1
    _climb(tree, tree.leaves[leaf].box)


@njit(cache=True, nogil=True)
def _stretch(tree: Tree, box: int, point: Floats) -> None:
    dimensions = point.shape[0]
    for d in range(dimensions):
        low, high = LOW + d, LOW + dimensions + d
        tree.box[box, low] = min(tree.box[box, low], _down(point[d]))
        tree.box[box, high] = max(tree.box[box, high], _up(point[d]))


@njit(cache=True, nogil=True)
def _outside(tree: Tree, box: int, point: Floats) -> float:
    """The growth of a box that would include a point."""
    dimensions, total = point.shape[0], 0.0
    for d in range(dimensions):
        total += max(tree.box[box, LOW + d] - point[d], 0.0) + max(point[d] - tree.box[box, LOW + dimensions + d], 0.0)
    return total


@njit(cache=True, nogil=True)
def insert(tree: Tree, node: int, point: Floats, height: float, free: float) -> None:
    """Puts a node into the leaf that grows least for it. There must be spare rows: see `grown`."""
    dimensions, box = point.shape[0], 0
    while True:
        _stretch(tree, box, point)
        child = tree.links[box, CHILD]
        if child < 0:
            if tree.leaves[-1 - child].count < LEAF:
                break
            _split(tree, box)
            child = tree.links[box, CHILD]
        box = child if _outside(tree, child, point) <= _outside(tree, child + 1, point) else child + 1
    leaf = -1 - tree.links[box, CHILD]
    slot = leaf * LEAF + tree.leaves[leaf].count
    tree.slot[slot, :dimensions] = point
    tree.slot[slot, dimensions], tree.slot[slot, dimensions + 1] = free, height
    tree.slot_node[slot], tree.slot_of[node] = node, slot
    tree.leaves[leaf].count += 1
    _climb(tree, box)


@njit(cache=True, nogil=True)
def _split(tree: Tree, box: int) -> None:
    """Cuts a full leaf in two at the median of its widest side."""
    dimensions = tree.slot.shape[1] - 2
    leaf, other = -1 - tree.links[box, CHILD], tree.used[LEAVES]
    widest, most = 0, -1.0
    for d in range(dimensions):
        width = tree.box[box, LOW + dimensions + d] - tree.box[box, LOW + d]
        if width > most:
            widest, most = d, width
    rows, nodes = (
        tree.slot[leaf * LEAF : (leaf + 1) * LEAF].copy(),
        tree.slot_node[leaf * LEAF : (leaf + 1) * LEAF].copy(),
    )
    order = np.argsort(rows[:, widest])
    child = tree.used[BOXES]
    tree.used[BOXES] += 2
    tree.used[LEAVES] += 1
    tree.links[box, CHILD] = child
    for half in range(2):
        own = leaf if half == 0 else other
        tree.parent[child + half], tree.links[child + half, CHILD] = box, -1 - own
        tree.leaves[own].box, tree.leaves[own].count = child + half, LEAF // 2
        for i in range(LEAF // 2):
            k, slot = order[half * (LEAF // 2) + i], own * LEAF + i
            tree.slot[slot], tree.slot_node[slot], tree.slot_of[nodes[k]] = rows[k], nodes[k], slot
            _stretch(tree, child + half, rows[k, :dimensions])
        _summarise(tree, child + half)
    for slot in range(leaf * LEAF + LEAF // 2, (leaf + 1) * LEAF):
        tree.slot_node[slot] = NOWHERE
