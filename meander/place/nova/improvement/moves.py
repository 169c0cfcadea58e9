"""The moves of local improvement, compiled: move a replica, push one aside, cut one in two, place some anew.

Every move keeps capacities, except placing anew, which says so when it could not.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.displacement import few_hosts
from meander.place.nova.index.search import Taste
from meander.place.nova.index.tree import NOWHERE, Tree
from meander.place.nova.node_choice import Rules, choose, cost_at
from meander.place.nova.partitioning import cut_side
from meander.place.nova.running.columns import PlacedColumns, attach, demand, detach, extra, latency, rows_left, shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

GAIN = 1e-6
MOST_SLOTS = 512
"""Nodes that are looked at to find a few that could hold a replica."""
MARGIN = 0.02
"""A split must gain this share of a join's cost: it also costs traffic."""


@njit(cache=True, nogil=True)
def _weight(board: PlacedColumns, join: int) -> float:
    """A join's replicas share its weight."""
    count, replica = 0, board.joins[join].first
    while replica != NOWHERE:
        count += 1
        replica = board.replicas[replica].in_next
    return 1.0 / max(count, 1)


@njit(cache=True, nogil=True)
def improve_one(
    board: PlacedColumns, tree: Tree, row: int, taste: Taste, rules: Rules, nodes: Ints, costs: Floats, virtual: Floats
) -> float:
    """Moves one replica if that pays, alone or with one that it pushes aside. Returns the gain."""
    join, home = board.replicas[row].join, board.replicas[row].node
    cells, other = board.replicas[row].cells.copy(), np.empty(4, dtype=np.int32)
    before, own = cost_at(board, join, home, taste), _weight(board, join)
    detach(board, tree, row)
    need = demand(board, join, cells)
    node, cost = choose(board, tree, join, cells, taste, rules, before - GAIN, virtual)
    best = own * (before - cost) if node != NOWHERE else 0.0
    pushed, to = NOWHERE, NOWHERE
    found = few_hosts(board, tree, join, need, taste, MOST_SLOTS, nodes, costs)
    for i in range(found):
        host = nodes[i]
        gain = own * (before - costs[i])
        if gain <= best + GAIN:
            break
        if host == home:
            continue
        k = board.nodes[host].first
        while k != NOWHERE:
            following, victim = board.replicas[k].on_next, board.replicas[k].join
            other[:] = board.replicas[k].cells
            room = board.nodes[host].capacity - board.nodes[host].load
            if victim != join and room + demand(board, victim, other) >= need:
                paid, weight = cost_at(board, victim, host, taste), _weight(board, victim)
                detach(board, tree, k)
                room = board.nodes[host].capacity - board.nodes[host].load
                if room >= rules.least_free and extra(board, join, cells, host) <= room:
                    tried = attach(board, tree, join, cells, host, shares(board, join))
                    limit = paid + (gain - best - GAIN) / weight
                    aside, price = choose(board, tree, victim, other, taste, rules, limit, virtual)
                    detach(board, tree, tried)
                    if aside != NOWHERE:
                        best, node, pushed, to = gain - weight * (price - paid), host, k, aside
                attach(board, tree, victim, other, host, shares(board, victim))
            k = following
    if pushed != NOWHERE:
        victim = board.replicas[pushed].join
        other[:] = board.replicas[pushed].cells
        detach(board, tree, pushed)
        attach(board, tree, join, cells, node, shares(board, join))
        attach(board, tree, victim, other, to, shares(board, victim))
    else:
        attach(board, tree, join, cells, home if node == NOWHERE else node, shares(board, join))
    return best


@njit(cache=True, nogil=True)
def latencies_of(board: PlacedColumns, rows: Ints, total: Floats, count: Ints, detour: Floats) -> None:
    """Per join and side the sum of its replicas' ways from source to sink, their number, and per row its detour."""
    for i in range(rows.shape[0]):
        join, node = board.replicas[rows[i]].join, board.replicas[rows[i]].node
        onward = latency(board, node, board.joins[join].sink)
        count[join] += 1
        for side in range(2):
            source = board.sources[board.joins[join].ends[side]].node
            way = latency(board, source, node) + onward
            total[join, side] += way
            detour[i] += way - latency(board, source, board.joins[join].sink)


@njit(cache=True, nogil=True)
def restore_rows(board: PlacedColumns, tree: Tree, rows: Ints, join: Ints32, node: Ints32, cells: Ints32) -> None:
    for i in range(rows.shape[0]):
        detach(board, tree, rows[i])
    for i in range(join.shape[0]):
        attach(board, tree, join[i], cells[i], node[i], shares(board, join[i]))


@njit(cache=True, nogil=True)
def split_one(board: PlacedColumns, tree: Tree, row: int, taste: Taste, rules: Rules, virtual: Floats) -> float:
    """Cuts one replica in two if both halves together fare better by a clear margin. Returns the gain."""
    join, home = board.replicas[row].join, board.replicas[row].node
    cells = board.replicas[row].cells.copy()
    side = cut_side(board, join, cells)
    if side == NOWHERE or rows_left(board) < 2:
        return 0.0
    others, count, replica = 0.0, 0, board.joins[join].first
    while replica != NOWHERE:
        others += cost_at(board, join, board.replicas[replica].node, taste) if replica != row else 0.0
        count += 1
        replica = board.replicas[replica].in_next
    before = (others + cost_at(board, join, home, taste)) / count
    limit = (before * (1 - MARGIN)) * (count + 1) - others
    detach(board, tree, row)
    half = cells.copy()
    half[2 * side + 1] = (cells[2 * side] + cells[2 * side + 1]) // 2
    node, cost = choose(board, tree, join, half, taste, rules, limit, virtual)
    if node != NOWHERE:
        one = attach(board, tree, join, half, node, shares(board, join))
        half[2 * side], half[2 * side + 1] = half[2 * side + 1], cells[2 * side + 1]
        node, price = choose(board, tree, join, half, taste, rules, limit - cost, virtual)
        if node != NOWHERE:
            attach(board, tree, join, half, node, shares(board, join))
            return before - (others + cost + price) / (count + 1)
        detach(board, tree, one)
    attach(board, tree, join, cells, home, shares(board, join))
    return 0.0


@njit(cache=True, nogil=True)
def place_again(board: PlacedColumns, tree: Tree, rows: Ints, taste: Taste, rules: Rules, virtual: Floats) -> bool:
    """Takes some replicas away and places them anew, in the given order; if one finds no room, False and a mess."""
    count = rows.shape[0]
    join, cells = np.empty(count, dtype=np.int32), np.empty((count, 4), dtype=np.int32)
    home = np.empty(count, dtype=np.int32)
    for i in range(count):
        join[i], home[i] = board.replicas[rows[i]].join, board.replicas[rows[i]].node
        cells[i] = board.replicas[rows[i]].cells
    for i in range(count):
        detach(board, tree, rows[i])
    complete = True
    for i in range(count):
        node, _ = choose(board, tree, join[i], cells[i], taste, rules, np.inf, virtual[join[i]])
        if node == NOWHERE:
            complete, node = False, home[i]
        attach(board, tree, join[i], cells[i], node, shares(board, join[i]))
    return complete


@njit(cache=True, nogil=True)
def improve_rows(
    board: PlacedColumns,
    tree: Tree,
    rows: Ints,
    taste: Taste,
    rules: Rules,
    nodes: Ints,
    costs: Floats,
    virtual: Floats,
) -> float:
    gained = 0.0
    for i in range(rows.shape[0]):
        join = board.replicas[rows[i]].join
        if join != NOWHERE:
            gained += improve_one(board, tree, rows[i], taste, rules, nodes, costs, virtual[join])
            if board.replicas[rows[i]].join != NOWHERE:
                owner = board.replicas[rows[i]].join
                gained += split_one(board, tree, rows[i], taste, rules, virtual[owner])
    return gained
