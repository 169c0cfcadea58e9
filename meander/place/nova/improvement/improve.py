"""Local improvement of a finished placement: replicas move to better nodes, or push another one aside if both gain.

First what tuples experience from source to sink is lowered in total; then, with a penalty on everything slower than a
threshold that sinks step by step, the slowest tenth. The best placement seen is kept, so more time never hurts. Joins
that found no room are tried again whenever things have moved.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.cell_placement import place_all
from meander.place.nova.improvement.moves import improve_rows, latencies_of, place_again, restore_rows
from meander.place.nova.index.search import Taste
from meander.place.nova.running.joins import Joins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

FEW = 64
"""Nodes that are examined for a rival to push aside."""
CHUNK = 64
FIRST_STEP, LAST_STEP = 0.3, 0.02
PASSES = 8
WORSE = 10.0
"""The weight of being worse than a rival."""
SHAKEN = 0.03, 0.15
"""Between these shares of the replicas are placed anew when the search is stuck."""
SEED = 0
MOST_REFUSED = 8
"""Joins in a row that still find no room, after which larger ones are not tried."""
MOST_STUCK = 200
"""Shakes without success after which the search ends early."""
MEAN = 0.25
"""The weight of the mean against the 90th percentile."""


class _Search:
    """One improvement: the placement, its deadline, and the best that was seen."""

    def __init__(self, joins: Joins, seconds: float, mean_weight: float, rival: tuple[float, float]) -> None:
        self.mean_weight, self.rival = mean_weight, rival
        self.joins, self.board, self.tree = joins, joins.board, joins.tree
        most = min(FEW, len(self.board.nodes))
        self.nodes, self.costs = np.empty(most, dtype=np.int64), np.empty(most)
        self.score, self.kept = np.inf, self.snapshot()
        self._load()
        self.deadline = time.perf_counter() + seconds

    def _load(self) -> None:
        """Compiles or loads the moves by moving nothing, so that this does not count as time for improvement."""
        nobody = np.empty(0, dtype=np.int64)
        plain, rules, virtual = Taste(1.0, np.inf, 0.0, 0.0), self.joins.rules, self.joins.virtual
        improve_rows(self.board, self.tree, nobody, plain, rules, self.nodes, self.costs, virtual)
        place_again(self.board, self.tree, nobody, plain, rules, virtual)
        restore_rows(self.board, self.tree, nobody, *(column[:0] for column in self.kept))

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    def snapshot(self) -> tuple[Ints32, Ints32, Ints32]:
        rows = self.joins.rows()
        replicas = self.board.replicas
        return replicas["join"][rows].copy(), replicas["node"][rows].copy(), replicas["cells"][rows].copy()

    def latencies(self) -> tuple[Floats, Floats]:
        """Every source's latency, and each row's detour."""
        rows = self.joins.rows()
        count = np.zeros(len(self.board.joins), dtype=np.int64)
        total, detour = np.zeros((len(count), 2)), np.zeros(len(rows))
        latencies_of(self.board, rows, total, count, detour)
        some = count > 0
        return np.asarray(total[some] / count[some, None], dtype=np.float64).ravel(), detour

    def run(self, taste: Taste, passes: int, least: float) -> None:
        """Passes over all replicas, the largest detours first, until one gains little."""
        for _ in range(passes):
            order = self.joins.rows()[np.argsort(-self.latencies()[1], kind="stable")]
            gained = 0.0
            for begin in range(0, len(order), CHUNK):
                if self.late:
                    return
                some = order[begin : begin + CHUNK]
                gained += improve_rows(
                    self.board,
                    self.tree,
                    some,
                    taste,
                    self.joins.rules,
                    self.nodes,
                    self.costs,
                    self.joins.virtual,
                )
            if gained <= least:
                return

    def tail(self, step: float, direct: float) -> Taste:
        """A taste that punishes latencies above a little less than the present 90th percentile."""
        latencies, _ = self.latencies()
        if np.isinf(self.mean_weight):
            return Taste(1.0, np.inf, 0.0, 0.0)
        now = float(np.percentile(latencies, 90))
        return Taste(1.0, now - step * max(now - direct, 0.05 * now), 2 * float(latencies.mean()), 0.0)

    def shake(self, taste: Taste, rng: np.random.Generator) -> bool:
        """Places some replicas anew, so that the search can leave where it is stuck; False if that must be undone."""
        rows = self.joins.rows()
        count = min(len(rows), max(2, int(len(rows) * rng.uniform(*SHAKEN))))
        some = rng.choice(rows, count, replace=False)
        return bool(place_again(self.board, self.tree, some, taste, self.joins.rules, self.joins.virtual))

    def keep_if_better(self) -> bool:
        """Judged by the 90th percentile and the mean alike."""
        latencies, _ = self.latencies()
        mean = float(latencies.mean()) if len(latencies) else 0.0
        tail = float(np.percentile(latencies, 90)) if len(latencies) else 0.0
        score = mean if np.isinf(self.mean_weight) else tail + self.mean_weight * mean
        score += WORSE * (max(tail - self.rival[0], 0.0) + max(mean - self.rival[1], 0.0))
        if score >= self.score:
            return False
        self.score, self.kept = score, self.snapshot()
        return True

    def admit(self) -> bool:
        """Tries joins without room again, the smallest first; whether one found some. Then that counts most, and the
        score begins anew."""
        joins = self.joins
        left = joins.unplaced
        if not len(left):
            return False
        order = left[np.argsort(self.board.sources["rate"][self.board.joins["ends"][left]].sum(axis=1), kind="stable")]
        place_all(
            self.board, self.tree, order, 0, joins.taste, joins.rules, joins.virtual, joins.status, True, MOST_REFUSED
        )
        if len(joins.unplaced) == len(left):
            return False
        self.score = np.inf
        return self.keep_if_better()

    def restore(self) -> None:
        join, node, cells = self.kept
        restore_rows(self.board, self.tree, self.joins.rows(), join, node, cells)


def improve(
    joins: Joins, seconds: float, *, mean_weight: float = MEAN, rival: tuple[float, float] = (np.inf, np.inf)
) -> None:
    """Improves a placement for at most so many seconds; no node gets overloaded.

    Judged by the 90th percentile plus `mean_weight` times the mean; infinity judges by the mean alone. Above all, it
    should not be worse than a `rival` in either, where one is given by these two.
    """
    search = _Search(joins, seconds, mean_weight, rival)
    search.keep_if_better()
    search.admit()
    if not len(search.kept[0]):
        return
    board = joins.board
    ends = board.sources["node"][board.joins["ends"][search.kept[0]]]
    sinks = board.joins["sink"][search.kept[0]]
    direct = np.percentile(np.concatenate([joins.latency_ms(ends[:, side], sinks) for side in range(2)]), 90)
    plain = Taste(1.0, np.inf, 0.0, 0.0)
    latencies, _ = search.latencies()
    search.run(plain, PASSES, 1e-4 * float(latencies.sum()))
    search.keep_if_better()
    step = FIRST_STEP
    while step >= LAST_STEP and not search.late:
        search.run(search.tail(step, float(direct)), PASSES, 1e-4 * float(latencies.sum()))
        if not search.keep_if_better():
            step /= 2
            search.restore()
    rng, stuck = np.random.default_rng(SEED), 0
    while not search.late and stuck < MOST_STUCK:
        taste = search.tail(float(rng.uniform(0, FIRST_STEP)), float(direct))
        stuck += 1
        if search.shake(taste, rng):
            search.run(taste, PASSES, 1e-4 * float(latencies.sum()))
            if search.admit() or search.keep_if_better():
                stuck = 0
                continue
        search.restore()
    search.restore()


def tail_and_mean(joins: Joins) -> tuple[float, float]:
    """The 90th percentile and the mean of the sources' latencies."""
    latencies, _ = _Search(joins, 0.0, MEAN, (np.inf, np.inf)).latencies()
    return (float(np.percentile(latencies, 90)), float(latencies.mean())) if len(latencies) else (0.0, 0.0)
