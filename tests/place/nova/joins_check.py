"""The invariants of placed joins. Tests check them after every step."""

from __future__ import annotations

import numpy as np

from meander.place.nova.cell_placement import PLACED
from meander.place.nova.improvement.links import union
from meander.place.nova.index.tree import CHILD, LEAF, NOWHERE, ROOM
from meander.place.nova.running.joins import Joins

CLOSE = 1e-6


def violations(joins: Joins) -> list[str]:
    """Violations, in sentences; empty if all is well. Looks at everything: for tests, not for hot paths."""
    return [*_cover(joins), *_loads(joins), *_index(joins)]


def _cover(joins: Joins) -> list[str]:
    """Every cell of every placed join is in exactly one replica, on a living node."""
    found = []
    grids = {
        int(j): np.zeros(tuple(joins.board.joins["parts"][j]), dtype=np.int32) for j in np.flatnonzero(joins.active)
    }
    for replica in joins.replicas():
        if replica.join not in grids:
            found.append(f"join {replica.join} has ended but runs at node {replica.node}")
            continue
        if not joins.alive[replica.node]:
            found.append(f"join {replica.join} runs at node {replica.node}, which has left")
        grids[replica.join][replica.left.start : replica.left.stop, replica.right.start : replica.right.stop] += 1
    for join, grid in grids.items():
        wanted = 1 if joins.status[join] == PLACED else 0
        if not (grid == wanted).all():
            found.append(f"join {join}: cells are in {sorted(set(grid.ravel().tolist()))} replicas, not in {wanted}")
    return found


def _loads(joins: Joins) -> list[str]:
    """Yields nodes whose load differs from the union of their replicas' input, or is too high unless that was
    allowed."""
    arriving: dict[int, dict[int, list[tuple[float, float]]]] = {}
    board = joins.board
    for r in joins.replicas():
        left, right = (int(s) for s in board.joins["ends"][r.join])
        at = arriving.setdefault(r.node, {})
        at.setdefault(left, []).append((r.left.start / r.left_parts, r.left.stop / r.left_parts))
        at.setdefault(right, []).append((r.right.start / r.right_parts, r.right.stop / r.right_parts))
    found = []
    load = np.zeros(len(board.nodes))
    for node, streams in arriving.items():
        load[node] = sum(union(ranges) * float(board.sources["rate"][s]) for s, ranges in streams.items())
    off = np.flatnonzero(np.abs(load - board.nodes["load"]) > CLOSE * np.maximum(load, 1))
    found += [f"node {n} takes in {load[n]:g}, but {board.nodes['load'][n]:g} is booked" for n in off]
    if joins.settings.overload.name != "SPREAD":
        found += [f"node {n} is overloaded" for n in joins.overloaded()]
    return found


def _index(joins: Joins) -> list[str]:
    """The index knows every living node, with its place and free capacity, and each box bounds its content."""
    tree, board, found = joins.tree, joins.board, []
    dimensions = board.points.shape[1]
    for node in np.flatnonzero(joins.alive):
        slot = int(tree.slot_of[node])
        free = board.nodes["capacity"][node] - board.nodes["load"][node]
        if slot == NOWHERE or int(tree.slot_node[slot]) != node:
            found.append(f"node {node} is not in the index")
        elif not (
            np.array_equal(tree.slot[slot, :dimensions], board.points[node]) and tree.slot[slot, dimensions] == free
        ):
            found.append(f"node {node} is in the index with another place or capacity")
    for box in (0, *range(2, int(tree.used[0]))):
        child = int(tree.links[box, CHILD])
        if child >= 0:
            if not (tree.box[[child, child + 1], ROOM] <= tree.box[box, ROOM]).all():
                found.append(f"box {box} does not know the most free capacity below")
        else:
            leaf = -1 - child
            slots = slice(leaf * LEAF, leaf * LEAF + int(tree.leaves[leaf]["count"]))
            if (tree.slot[slots, dimensions] > tree.box[box, ROOM]).any():
                found.append(f"leaf {leaf} does not know its most free capacity")
    return found
