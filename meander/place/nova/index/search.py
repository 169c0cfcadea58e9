"""Searches of the tree: the nearest node with room, and the node with room that costs a join least.

A join's cost at a node is what its two sources' tuples experience: f(way of the left) + f(way of the right), where a
way is source to node plus `sink_weight` times node to sink, and f grows steadily. Growth is all that pruning needs: no
node in a box can be cheaper than f of the shortest ways to the box.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.tree import CHILD, HEIGHT, LEAF, LOW, NOWHERE, ROOM, Tree

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]

STACK = 256
ALL = 2**62
"""As many nodes as there are."""


class Taste(NamedTuple):
    """The cost of a latency in ms: itself, and beyond `tail_ms` a penalty that keeps the slowest few in check."""

    sink_weight: float
    tail_ms: float
    penalty: float
    slack: float
    """A box is left out when it cannot beat the best by more than this share; 0 finds the optimum."""


class Ends(NamedTuple):
    """The origins and the goal of a join's tuples: points, and the heights that are paid wherever the join runs."""

    left: Floats
    right: Floats
    sink: Floats
    left_height: float
    """Of the left source, and of the sink as often as it counts."""
    right_height: float


@njit(cache=True, nogil=True, inline="always")
def cost_of(taste: Taste, way: float) -> float:
    """f: grows with the way."""
    if way <= taste.tail_ms:
        return way
    return way + taste.penalty + (way - taste.tail_ms)


@njit(cache=True, nogil=True, inline="always")
def _to_box(box: Floats32, row: int, point: Floats) -> float:
    total, dimensions = 0.0, point.shape[0]
    for d in range(dimensions):
        x = point[d]
        gap = max(box[row, LOW + d] - x, x - box[row, LOW + dimensions + d], 0.0)
        total += gap * gap
    return math.sqrt(total)


@njit(cache=True, nogil=True, inline="always")
def _to_slot(slots: Floats, slot: int, point: Floats) -> float:
    total = 0.0
    for d in range(point.shape[0]):
        gap = slots[slot, d] - point[d]
        total += gap * gap
    return math.sqrt(total)


@njit(cache=True, nogil=True, inline="always")
def _push(boxes: Ints, bounds: Floats, top: int, one: int, first: float, two: int, second: float, best: float) -> int:
    """Puts two boxes on the stack, the better one on top, unless they cannot hold anything better; its height then."""
    if first < second:
        one, two, first, second = two, one, second, first
    if first < best:
        boxes[top], bounds[top] = one, first
        top += 1
    if second < best:
        boxes[top], bounds[top] = two, second
        top += 1
    return top


@njit(cache=True, nogil=True)
def nearest(tree: Tree, point: Floats, need: float) -> tuple[int, float]:
    """The node nearest to a point (distance plus height) with at least this much free, or NOWHERE."""
    boxes = np.empty(STACK, dtype=np.int64)
    bounds = np.empty(STACK)
    dimensions = point.shape[0]
    best, found = np.inf, NOWHERE
    boxes[0], bounds[0], top = 0, 0.0, 1
    while top > 0:
        top -= 1
        if bounds[top] >= best:
            continue
        child = tree.links[boxes[top], CHILD]
        if child < 0:
            leaf = -1 - child
            for slot in range(leaf * LEAF, leaf * LEAF + tree.leaves[leaf].count):
                if tree.slot[slot, dimensions] >= need:
                    away = _to_slot(tree.slot, slot, point) + tree.slot[slot, dimensions + 1]
                    if away < best:
                        best, found = away, tree.slot_node[slot]
            continue
        one, two = child, child + 1
        first = _to_box(tree.box, one, point) + tree.box[one, HEIGHT] if tree.box[one, ROOM] >= need else np.inf
        second = _to_box(tree.box, two, point) + tree.box[two, HEIGHT] if tree.box[two, ROOM] >= need else np.inf
        top = _push(boxes, bounds, top, one, first, two, second, best)
    return found, best


@njit(cache=True, nogil=True, inline="always")
def _bound(box: Floats32, row: int, ends: Ends, taste: Taste) -> float:
    height = box[row, HEIGHT]
    onward = height + taste.sink_weight * (_to_box(box, row, ends.sink) + height)
    cost = cost_of(taste, _to_box(box, row, ends.left) + ends.left_height + onward)
    return cost + cost_of(taste, _to_box(box, row, ends.right) + ends.right_height + onward)


@njit(cache=True, nogil=True)
def cheapest(
    tree: Tree, ends: Ends, need: float, most: float, most_slots: int, taste: Taste, limit: float
) -> tuple[int, float]:
    """The node with room, but with no more than the most, where a join costs least, and less than the limit; NOWHERE if
    there is none. After `most_slots` nodes the search ends with what it has."""
    boxes = np.empty(STACK, dtype=np.int64)
    bounds = np.empty(STACK)
    box, links, slots = tree.box, tree.links, tree.slot
    dimensions = ends.left.shape[0]
    best, found, seen = limit, NOWHERE, 0
    keen = 1.0 + taste.slack
    boxes[0], bounds[0], top = 0, 0.0, 1
    while top > 0 and seen < most_slots:
        top -= 1
        if bounds[top] >= best:
            continue
        child = links[boxes[top], CHILD]
        if child < 0:
            leaf = -1 - child
            seen += tree.leaves[leaf].count
            for slot in range(leaf * LEAF, leaf * LEAF + tree.leaves[leaf].count):
                if need <= slots[slot, dimensions] <= most:
                    height = slots[slot, dimensions + 1]
                    onward = height + taste.sink_weight * (_to_slot(slots, slot, ends.sink) + height)
                    cost = cost_of(taste, _to_slot(slots, slot, ends.left) + ends.left_height + onward)
                    cost += cost_of(taste, _to_slot(slots, slot, ends.right) + ends.right_height + onward)
                    if cost < best:
                        best, found = cost, tree.slot_node[slot]
            continue
        one, two, first, second = child, child + 1, np.inf, np.inf
        if box[one, ROOM] >= need:
            first = _bound(box, one, ends, taste) * keen
        if box[two, ROOM] >= need:
            second = _bound(box, two, ends, taste) * keen
        top = _push(boxes, bounds, top, one, first, two, second, best)
    return found, best


@njit(cache=True, nogil=True)
def few_cheapest(
    tree: Tree, ends: Ends, rows: Any, need: float, taste: Taste, most_slots: int, nodes: Ints, costs: Floats
) -> int:
    """The nodes where a join costs least of those that could hold the need if they were empty, cheapest first, as many
    as there is space for; how many. After `most_slots` nodes the search ends with what it has."""
    boxes = np.empty(STACK, dtype=np.int64)
    bounds = np.empty(STACK)
    box, links, slots = tree.box, tree.links, tree.slot
    dimensions, most = ends.left.shape[0], nodes.shape[0]
    count, worst, seen = 0, np.inf, 0
    boxes[0], bounds[0], top = 0, 0.0, 1
    while top > 0 and seen < most_slots:
        top -= 1
        if bounds[top] >= worst:
            continue
        child = links[boxes[top], CHILD]
        if child >= 0:
            first, second = _bound(box, child, ends, taste), _bound(box, child + 1, ends, taste)
            near = child if first <= second else child + 1
            boxes[top], bounds[top] = 2 * child + 1 - near, max(first, second)
            boxes[top + 1], bounds[top + 1] = near, min(first, second)
            top += 2
            continue
        leaf = -1 - child
        seen += tree.leaves[leaf].count
        for slot in range(leaf * LEAF, leaf * LEAF + tree.leaves[leaf].count):
            if rows[tree.slot_node[slot]].capacity < need:
                continue
            height = slots[slot, dimensions + 1]
            onward = height + taste.sink_weight * (_to_slot(slots, slot, ends.sink) + height)
            cost = cost_of(taste, _to_slot(slots, slot, ends.left) + ends.left_height + onward)
            cost += cost_of(taste, _to_slot(slots, slot, ends.right) + ends.right_height + onward)
            if cost < worst:
                i = count if count < most else most - 1
                while i > 0 and costs[i - 1] > cost:
                    nodes[i], costs[i] = nodes[i - 1], costs[i - 1]
                    i -= 1
                nodes[i], costs[i] = tree.slot_node[slot], cost
                count = min(count + 1, most)
                if count == most:
                    worst = costs[most - 1]
    return count
