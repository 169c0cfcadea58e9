"""More rows for a board that runs: spare ones are used up first, then columns are copied into larger ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.index import tree as trees
from meander.place.nova.running.columns import LEFT, RIGHT, use_source
from meander.place.nova.running.joins import Joins, join_rows, node_rows, source_rows

Floats = NDArray[np.float64]


def ready(joins: Joins) -> None:
    """Makes sure that one more node fits into the index."""
    joins.tree = trees.grown(joins.tree, len(joins.board.nodes))


def add_node_row(joins: Joins, point: Floats, capacity: float, height: float) -> int:
    """A row for a new node, not in the index yet."""
    board = joins.board
    if board.matrix.size:
        raise InputError("a node cannot be added to measured latencies; place by coordinates to follow such changes")
    node = joins.node_count
    if node == len(board.nodes):
        more = len(board.nodes) // 4 + 64
        points = np.full((more, board.points.shape[1]), np.nan)
        joins.board = board = board._replace(
            nodes=_longer(board.nodes, node_rows(more)), points=np.concatenate((board.points, points))
        )
        joins.alive = np.concatenate((joins.alive, np.zeros(more, dtype=bool)))
    board.points[node] = point
    board.nodes["capacity"][node], board.nodes["height"][node] = capacity, height
    joins.alive[node] = True
    joins.node_count += 1
    ready(joins)
    return node


def add_source_row(joins: Joins, node: int, rate: float) -> int:
    """A row for a new source."""
    source = joins.source_count
    if source == len(joins.board.sources):
        joins.board = joins.board._replace(sources=_longer(joins.board.sources, source_rows(source // 4 + 64)))
    joins.board.sources["node"][source], joins.board.sources["rate"][source] = node, rate
    joins.source_count += 1
    return source


def add_join_row(joins: Joins, left: int, right: int, sink: int) -> int:
    """A row for a new join, known to its sources."""
    join = joins.join_count
    if join == len(joins.board.joins):
        more = join // 4 + 64
        joins.board = joins.board._replace(joins=_longer(joins.board.joins, join_rows(more)))
        joins.active = np.concatenate((joins.active, np.zeros(more, dtype=bool)))
        joins.status = np.concatenate((joins.status, np.zeros(more, dtype=np.int8)))
        joins.virtual = np.concatenate((joins.virtual, np.full((more, joins.virtual.shape[1]), np.nan)))
    joins.board.joins["ends"][join], joins.board.joins["sink"][join] = (left, right), sink
    joins.active[join] = True
    joins.join_count += 1
    for side in (LEFT, RIGHT):
        use_source(joins.board, join, side)
    return join


def _longer(rows: Any, more: Any) -> Any:
    return np.concatenate((rows, more))
