"""Nova: virtual places for all joins, then nodes with room, largest join first, then improvement if there is time."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meander.place.nova import median
from meander.place.nova.admissible_joins import affordable
from meander.place.nova.cell_placement import NO_ROOM, place_all
from meander.place.nova.improvement.improve import improve, tail_and_mean
from meander.place.nova.node_choice import Rules
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import LARGE, Joins, taste_of, with_more_rows
from meander.place.nova.settings import NovaSettings, Overload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEVER = 2**31
MOST_FAILURES = 64
"""Joins in a row that find no room, smallest first, after which larger ones are not tried."""


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
    share, refused = affordable(problem)
    best: Joins | None = None
    if not refused or settings.by_distance:
        best = _attempt(problem, settings, virtual, Overload.REFUSE, 1.0)
    if (best is None or len(best.unplaced)) and not settings.by_distance:
        best = _fewer_refused(best, _attempt(problem, settings, virtual, Overload.REFUSE, share, tight=True))
    assert best is not None
    if len(best.unplaced) and settings.overload is not Overload.REFUSE:
        retry(best, best.rules)
        finer = settings.overload is Overload.EXPAND and problem.nodes < LARGE and not settings.by_distance
        if finer and len(best.unplaced):
            best = _fewer_refused(best, _attempt(problem, settings, virtual, Overload.EXPAND, share, tight=True))
    best.seconds = {"phase II": phase_2, "phase III": time.perf_counter() - start - phase_2}
    return best


def _fewer_refused(one: Joins | None, other: Joins) -> Joins:
    return one if one is not None and len(one.unplaced) <= len(other.unplaced) else other


def _attempt(
    problem: JoinProblem,
    settings: NovaSettings,
    virtual: Floats,
    overload: Overload,
    share: float,
    *,
    tight: bool = False,
) -> Joins:
    """Places the given share of the joins, the largest of them first, and then what is left, the smallest first."""
    joins = Joins.none_placed(problem, settings, virtual)
    order = np.argsort(-problem.demand_tps, kind="stable")
    later = order[: len(order) - round(share * len(order))]
    joins.status[later] = NO_ROOM
    rules = joins.rules._replace(overload=overload.value, tight=tight)
    place_in_order(joins, order[len(later) :], rules)
    retry(joins, rules)
    return joins


def retry(joins: Joins, rules: Rules) -> None:
    """Tries joins without room again, the smallest first; others are pushed aside."""
    left = joins.unplaced
    if len(left):
        needs = joins.board.sources["rate"][joins.board.joins["ends"][left]].sum(axis=1)
        failures = len(left) if rules.overload == Overload.SPREAD.value else MOST_FAILURES
        place_in_order(joins, left[np.argsort(needs, kind="stable")], rules, pushes=True, most_failures=failures)


def place_in_order(
    joins: Joins, order: Ints, rules: Rules, *, pushes: bool = False, most_failures: int = NEVER
) -> None:
    """Places joins one after the other."""
    done = 0
    while done < len(order):
        done = place_all(
            joins.board, joins.tree, order, done, joins.taste, rules, joins.virtual, joins.status, pushes, most_failures
        )
        if done < len(order):
            joins.board = with_more_rows(joins.board)


def _improved(joins: Joins, problem: JoinProblem, settings: NovaSettings) -> Joins:
    """Improves the better of two starts: the sink's weight as chosen, and 1, which is the plain greedy."""
    start = time.perf_counter()
    seconds = dict(joins.seconds)
    greedy = joins if joins.taste.sink_weight == 1 else _placed(problem, replace(settings, sink_weight=1.0))
    rival = tail_and_mean(greedy)
    if (len(greedy.unplaced), sum(rival)) < (len(joins.unplaced), sum(tail_and_mean(joins))):
        joins = greedy
    improve(joins, settings.improve_s, rival=rival if not len(greedy.unplaced) else (np.inf, np.inf))
    joins.seconds = seconds | {"improvement": time.perf_counter() - start}
    return joins
