"""Placed joins as they were recorded, without placing anything anew: for a process that starts again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.place.nova import median
from meander.place.nova.cell_placement import NO_ROOM, PLACED
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.columns import attach, shares
from meander.place.nova.running.joins import Joins, taste_of, with_more_rows
from meander.place.nova.settings import NovaSettings


def restored(problem: JoinProblem, settings: NovaSettings, replicas: Sequence[Sequence[int]]) -> Joins:
    """Joins whose replicas are these: join, node, cells, and the parts that the cells count in. Others have no room."""
    weight = 2 * taste_of(problem, settings).sink_weight
    ends = problem.source_node[problem.join_left], problem.source_node[problem.join_right]
    joins = Joins.none_placed(problem, settings, median.of_joins(problem.points, *ends, problem.join_sink, weight))
    joins.status[: problem.joins] = NO_ROOM
    while len(joins.board.replicas) < len(replicas):
        joins.board = with_more_rows(joins.board)
    for join, *_, left, right in replicas:
        joins.board.joins["parts"][join] = (left, right)
        joins.status[join] = PLACED
    for join, node, *cells, _, _ in replicas:
        shared = bool(shares(joins.board, join))
        attach(joins.board, joins.tree, join, np.array(cells, dtype=np.int32), node, shared)
    return joins
