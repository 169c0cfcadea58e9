"""Takes placed joins off links that would carry too much: replicas go elsewhere, in halves if they must, or not at all.

Phase III bounds the input of one replica; where several share a link of a topology, that is not enough. The fullest
link is relieved first, by the replica that puts most on it, which goes to the cheapest node with room from where the
links altogether carry less too much. A replica that finds none is cut in two. What then still does not fit is refused:
its join is not placed, and named. So afterwards no link carries more than it can.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meander.model.topology.graph import Topology
from meander.place.nova.cell_placement import NO_ROOM
from meander.place.nova.improvement.links import LinkTraffic
from meander.place.nova.index.tree import NOWHERE
from meander.place.nova.running.columns import FREE_HEAD, attach, detach, extra, rows_left, shares
from meander.place.nova.running.joins import Joins, with_more_rows

CANDIDATES = 24
"""Nodes that are tried for a replica, cheapest first."""
ROWS = 8
"""Replicas of a link that are tried before one is cut."""
SMALLEST = 1 / 8
"""Replicas of a smaller share of their join are not cut any more."""
LEAST = 1e-6


@dataclass(slots=True)
class Relief:
    """The cost of respecting all links."""

    moved: int = 0
    cut: int = 0
    refused: list[int] = field(default_factory=list)
    """Joins that no link could be found for."""


def respect_links(joins: Joins, topology: Topology, tuple_bytes: float, selectivity: float = 1.0) -> Relief:
    """Changes a placement until no link carries more than its bandwidth. Joins are in the topology's node ids."""
    traffic, relief = LinkTraffic(joins, topology, tuple_bytes, selectivity), Relief()
    while exceeded := traffic.exceeded():
        rows = traffic.crossing(exceeded[0])
        if any(_move(joins, traffic, row) for row in rows[:ROWS]):
            relief.moved += 1
        elif (row := _largest(joins, rows)) is not None:
            _cut(joins, traffic, row)
            relief.cut += 1
        else:
            join = int(joins.board.replicas[rows[0]]["join"])
            _refuse(joins, traffic, join)
            relief.refused.append(join)
    return relief


def _move(joins: Joins, traffic: LinkTraffic, row: int) -> bool:
    """Puts a replica where links carry less too much; leaves it where it was if there is no such node."""
    board = joins.board
    join, here = int(board.replicas[row]["join"]), int(board.replicas[row]["node"])
    cells, before = board.replicas[row]["cells"].copy(), traffic.excess_mbps
    _take(joins, traffic, row)
    for node in _candidates(joins, join):
        if node == here or not _has_room(joins, join, cells, node):
            continue
        placed = _put(joins, traffic, join, cells, node)
        if traffic.excess_mbps < before - LEAST * max(before, 1.0):
            return True
        _take(joins, traffic, placed)
    _put(joins, traffic, join, cells, here)
    return False


def _candidates(joins: Joins, join: int) -> list[int]:
    """Nodes by the latency of the join's tuples there."""
    board = joins.board
    nodes = np.flatnonzero(joins.alive & (board.nodes["capacity"] > board.nodes["load"]))
    ends = [int(board.sources["node"][s]) for s in board.joins[join]["ends"]]
    cost = 2 * joins.latency_ms(nodes, np.full(len(nodes), int(board.joins[join]["sink"])))
    for end in ends:
        cost = cost + joins.latency_ms(np.full(len(nodes), end), nodes)
    best = np.argsort(cost, kind="stable")[:CANDIDATES]
    return [int(n) for n in nodes[best]]


def _has_room(joins: Joins, join: int, cells: np.ndarray, node: int) -> bool:
    row = joins.board.nodes[node]
    free = float(row["capacity"]) - float(row["load"])
    return free >= joins.rules.least_free and float(extra(joins.board, join, cells, node)) <= free


def _largest(joins: Joins, rows: list[int]) -> int | None:
    """The replica with the largest share of its join, if it can be cut."""
    board = joins.board
    shares_of: dict[int, float] = {}
    for row in rows:
        a, b, c, d = board.replicas[row]["cells"].tolist()
        if (b - a) * (d - c) > 1:
            left, right = board.joins[int(board.replicas[row]["join"])]["parts"].tolist()
            shares_of[row] = (b - a) * (d - c) / (left * right)
    best = max(shares_of, key=lambda row: shares_of[row], default=None)
    return best if best is not None and shares_of[best] > SMALLEST else None


def _cut(joins: Joins, traffic: LinkTraffic, row: int) -> None:
    """Two halves instead of one replica, on the same node."""
    join, node = int(joins.board.replicas[row]["join"]), int(joins.board.replicas[row]["node"])
    a, b, c, d = joins.board.replicas[row]["cells"].tolist()
    _take(joins, traffic, row)
    halves = (
        ((a, (a + b) // 2, c, d), ((a + b) // 2, b, c, d))
        if b - a >= d - c
        else ((a, b, c, (c + d) // 2), (a, b, (c + d) // 2, d))
    )
    for half in halves:
        _put(joins, traffic, join, np.array(half, dtype=np.int32), node)


def _refuse(joins: Joins, traffic: LinkTraffic, join: int) -> None:
    for row in joins.rows_of(join):
        _take(joins, traffic, row)
    joins.status[join] = NO_ROOM


def _take(joins: Joins, traffic: LinkTraffic, row: int) -> None:
    traffic.remove(row)
    detach(joins.board, joins.tree, row)


def _put(joins: Joins, traffic: LinkTraffic, join: int, cells: np.ndarray, node: int) -> int:
    if int(joins.board.counts[FREE_HEAD]) == NOWHERE and not rows_left(joins.board):
        joins.board = with_more_rows(joins.board)
    row = int(attach(joins.board, joins.tree, join, cells, node, bool(shares(joins.board, join))))
    traffic.add(row)
    return row
