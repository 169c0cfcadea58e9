"""Room for a rectangle of cells where others are: those go elsewhere, if all of them find a place, compiled.

Large rectangles find no room although much is free in small pieces. The nodes that could hold one if they were empty
are tried, cheapest first: the smallest replica there that leaves enough goes elsewhere, or several small ones do.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.index.search import Taste, few_cheapest
from meander.place.nova.index.tree import NOWHERE, Tree
from meander.place.nova.node_choice import TINY, Rules, choose, cost_at, ends_of
from meander.place.nova.running.columns import PlacedColumns, attach, demand, detach, extra, shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

HOSTS = 24
"""Nodes that are tried."""
VICTIMS = 16
"""Replicas of a node that may be asked to leave."""
MOST_SLOTS = 20_000
"""Nodes that are looked at to find those."""


@njit(cache=True, nogil=True)
def few_hosts(
    board: PlacedColumns, tree: Tree, join: int, need: float, taste: Taste, most: int, nodes: Ints, costs: Floats
) -> int:
    """The cheapest nodes that could hold the need if they were empty; how many were found.

    `most` bounds the nodes that are looked at.
    """
    if board.matrix.shape[0] == 0:
        return int(few_cheapest(tree, ends_of(board, join, taste), board.nodes, need, taste, most, nodes, costs))
    count, space = 0, nodes.shape[0]
    for node in range(board.nodes.shape[0]):
        if board.nodes[node].capacity >= need and tree.slot_of[node] != NOWHERE:
            cost = cost_at(board, join, node, taste)
            if count < space or cost < costs[count - 1]:
                i = count if count < space else space - 1
                while i > 0 and costs[i - 1] > cost:
                    nodes[i], costs[i] = nodes[i - 1], costs[i - 1]
                    i -= 1
                nodes[i], costs[i] = node, cost
                count = min(count + 1, space)
    return count


@njit(cache=True, nogil=True)
def push_aside(
    board: PlacedColumns, tree: Tree, join: int, cells: Ints32, taste: Taste, rules: Rules, virtual: Floats,
    hosts: Ints, costs: Floats,
) -> int:  # fmt: skip
    """A node that has room for the rectangle now, as others have left it; NOWHERE, and nothing moved, if there is
    none."""
    found = few_hosts(
        board, tree, join, max(demand(board, join, cells), rules.least_free), taste, MOST_SLOTS, hosts, costs
    )
    for i in range(found):
        if _cleared(board, tree, join, cells, hosts[i], taste, rules, virtual):
            return int(hosts[i])
    return NOWHERE


@njit(cache=True, nogil=True)
def _cleared(
    board: PlacedColumns, tree: Tree, join: int, cells: Ints32, host: int, taste: Taste, rules: Rules, virtual: Floats
) -> bool:
    """Whether replicas could leave the node so that the rectangle fits."""
    rows, loads = np.empty(VICTIMS, dtype=np.int64), np.empty(VICTIMS)
    count, row = 0, board.nodes[host].first
    while row != NOWHERE and count < VICTIMS:
        if board.replicas[row].join != join:
            load = demand(board, board.replicas[row].join, board.replicas[row].cells)
            i = count
            while i > 0 and loads[i - 1] > load:
                rows[i], loads[i] = rows[i - 1], loads[i - 1]
                i -= 1
            rows[i], loads[i] = row, load
            count += 1
        row = board.replicas[row].on_next
    missing = extra(board, join, cells, host) - (board.nodes[host].capacity - board.nodes[host].load)
    for i in range(count):  # one alone: the smallest that suffices
        if loads[i] >= missing - TINY:
            if _leave(board, tree, join, cells, host, rows, i, i + 1, taste, rules, virtual):
                return True
            break
    total = 0.0
    for i in range(count):  # several: the smallest ones
        total += loads[i]
        if total >= missing - TINY:
            return i > 0 and _leave(board, tree, join, cells, host, rows, 0, i + 1, taste, rules, virtual)
    return False


@njit(cache=True, nogil=True)
def _leave(
    board: PlacedColumns, tree: Tree, join: int, cells: Ints32, host: int, rows: Ints, begin: int, end: int,
    taste: Taste, rules: Rules, virtual: Floats,
) -> bool:  # fmt: skip
    """Moves these replicas to other nodes, the largest first; if one finds none, all stay."""
    count = end - begin
    victims, pieces = np.empty(count, dtype=np.int64), np.empty((count, 4), dtype=np.int32)
    placed = np.empty(count, dtype=np.int64)
    for i in range(count):
        row = rows[begin + i]
        victims[i] = board.replicas[row].join
        pieces[i] = board.replicas[row].cells
        detach(board, tree, row)
    room = board.nodes[host].capacity - board.nodes[host].load
    done = room >= rules.least_free and extra(board, join, cells, host) <= room + TINY
    left = count
    if done:
        own = attach(board, tree, join, cells, host, shares(board, join))
        while left > 0 and done:
            victim = victims[left - 1]
            node, _ = choose(board, tree, victim, pieces[left - 1], taste, rules, np.inf, virtual)
            if node in (NOWHERE, host):
                done = False
            else:
                placed[left - 1] = attach(board, tree, victim, pieces[left - 1], node, shares(board, victim))
                left -= 1
        detach(board, tree, own)
    if not done:
        for i in range(left, count):
            detach(board, tree, placed[i])
        for i in range(count):
            attach(board, tree, victims[i], pieces[i], host, shares(board, victims[i]))
    return bool(done)
