"""Nova: virtual places for all joins, then nodes with room, largest join first, then improvement if there is time."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from meander.place.nova import median
from meander.place.nova.improvement.improve import improve, tail_and_mean
from meander.place.nova.placing import place_all
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins, taste_of, with_more_rows
from meander.place.nova.settings import NovaSettings


def place(problem: JoinProblem, settings: NovaSettings | None = None) -> Joins:
    """Places, replicates and partitions all joins of a problem."""
    settings = settings or NovaSettings()
    joins = _placed(problem, settings)
    return _improved(joins, problem, settings) if settings.improve_s > 0 else joins


def _placed(problem: JoinProblem, settings: NovaSettings) -> Joins:
    """Phases II and III."""
    start = time.perf_counter()
    virtual = median.of_joins(
        problem.points,
        problem.source_node[problem.join_left],
        problem.source_node[problem.join_right],
        problem.join_sink,
        2 * taste_of(problem, settings).sink_weight,
    )
    phase_2 = time.perf_counter() - start
    joins = Joins.none_placed(problem, settings, virtual)
    order = np.argsort(-problem.demand_tps, kind="stable")
    done = 0
    while done < len(order):
        done = place_all(joins.board, joins.tree, order, done, joins.taste, joins.rules, joins.virtual, joins.status)
        if done < len(order):
            joins.board = with_more_rows(joins.board)
    joins.seconds = {"phase II": phase_2, "phase III": time.perf_counter() - start - phase_2}
    return joins


def _improved(joins: Joins, problem: JoinProblem, settings: NovaSettings) -> Joins:
    """Improves the better of two starts: the sink's weight as chosen, and 1, which is the plain greedy."""
    start = time.perf_counter()
    seconds = dict(joins.seconds)
    greedy = joins if joins.taste.sink_weight == 1 else _placed(problem, replace(settings, sink_weight=1.0))
    rival = tail_and_mean(greedy)
    if not len(greedy.unplaced) and sum(rival) < sum(tail_and_mean(joins)):
        joins = greedy
    improve(joins, settings.improve_s, rival=rival if not len(greedy.unplaced) else (np.inf, np.inf))
    joins.seconds = seconds | {"improvement": time.perf_counter() - start}
    return joins
