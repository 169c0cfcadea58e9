"""The problem that placed joins answer by now, after all events: to place everything anew and compare."""

from __future__ import annotations

import numpy as np

from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins


def problem_of(joins: Joins) -> JoinProblem:
    """Living nodes, sources and joins as of now. Nodes that have left stay as rows without place and capacity."""
    board = joins.board
    points = board.points[: joins.node_count].copy()
    points[~joins.alive[: joins.node_count]] = np.nan
    active = np.flatnonzero(joins.active[: joins.join_count])
    ends = board.joins["ends"][active]
    used, compact = np.unique(ends, return_inverse=True)
    pairs = compact.reshape(ends.shape).astype(np.int32)
    return JoinProblem(
        points, board.nodes["height"][: joins.node_count].copy(), board.nodes["capacity"][: joins.node_count].copy(),
        board.sources["node"][used].copy(), board.sources["rate"][used].copy(), pairs[:, 0].copy(), pairs[:, 1].copy(),
        board.joins["sink"][active].copy(), board.matrix, joins.rules.least_free, joins.rules.bandwidth,
    )  # fmt: skip
