"""Nova: virtual places for all joins, then nodes with room, largest join first, then improvement if there is time."""

from __future__ import annotations

import time

import numpy as np

from meander.place.nova import median
from meander.place.nova.joins import Joins, taste_of, with_more_rows
from meander.place.nova.placing import place_all
from meander.place.nova.problem import JoinProblem
from meander.place.nova.settings import Settings


def place(problem: JoinProblem, settings: Settings | None = None) -> Joins:
    """Places, replicates and partitions all joins of a problem."""
    settings = settings or Settings()
    taste = taste_of(problem, settings)
    start = time.perf_counter()
    virtual = median.of_joins(
        problem.points, problem.source_node[problem.join_left], problem.source_node[problem.join_right],
        problem.join_sink, 2 * taste.sink_weight,
    )  # fmt: skip
    phase_2 = time.perf_counter() - start
    joins = Joins.none_placed(problem, settings, virtual)
    order = np.argsort(-problem.demand_tps, kind="stable")
    done = 0
    while done < len(order):
        done = place_all(joins.board, joins.tree, order, done, taste, joins.rules, joins.virtual, joins.status)
        if done < len(order):
            joins.board = with_more_rows(joins.board)
    joins.seconds = {"phase II": phase_2, "phase III": time.perf_counter() - start - phase_2}
    if settings.improve_s > 0:
        from meander.place.nova.improve import improve

        improve(joins, settings.improve_s)
        joins.seconds["improvement"] = time.perf_counter() - start - phase_2 - joins.seconds["phase III"]
    return joins
