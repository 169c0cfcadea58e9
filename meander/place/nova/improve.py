"""Local improvement of a finished placement: replicas move to better nodes, or push another one aside if both gain.

First what tuples experience from source to sink is lowered in total; then, with a penalty on everything slower than a
threshold that sinks step by step, the slowest tenth. The best placement seen is kept, so more time never hurts.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import time

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.place.nova.board import Board, attach, demand, detach, extra, latency, rows_left, shares
from meander.place.nova.joins import Joins
from meander.place.nova.placing import Rules, choose, cost_at, cut_side, ends_of
from meander.place.nova.search import Taste, few_cheapest
from meander.place.nova.tree import NOWHERE, Tree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

FEW = 64
"""So many nodes are looked at for somebody to push aside."""
CHUNK = 64
GAIN = 1e-6
MARGIN = 0.02
"""A split must gain this share of a join's cost: it also costs traffic."""
FIRST_STEP, LAST_STEP = 0.3, 0.02
PASSES = 8
WORSE = 10.0
"""How much it counts to be worse than a rival."""
SHAKEN = 0.03, 0.15
"""Between these shares of the replicas are placed anew when the search is stuck."""
SEED = 0
PATIENCE = 200
"""Shakes without success after which the search ends early."""
MEAN = 0.25
"""How much the mean counts against the 90th percentile."""


@njit(cache=True, nogil=True)
def _few(board: Board, tree: Tree, join: int, need: float, taste: Taste, nodes: Ints, costs: Floats) -> int:
    """The cheapest nodes that could hold the need if they were empty; how many were found."""
    if board.matrix.shape[0] == 0:
        return int(few_cheapest(tree, ends_of(board, join, taste), taste, nodes, costs))
    count, most = 0, nodes.shape[0]
    for node in range(board.nodes.shape[0]):
        if board.nodes[node].capacity >= need and tree.slot_of[node] != NOWHERE:
            cost = cost_at(board, join, node, taste)
            if count < most or cost < costs[count - 1]:
                i = count if count < most else most - 1
                while i > 0 and costs[i - 1] > cost:
                    nodes[i], costs[i] = nodes[i - 1], costs[i - 1]
                    i -= 1
                nodes[i], costs[i] = node, cost
                count = min(count + 1, most)
    return count


@njit(cache=True, nogil=True)
def _weight(board: Board, join: int) -> float:
    """A join's replicas share its weight."""
    count, replica = 0, board.joins[join].first
    while replica != NOWHERE:
        count += 1
        replica = board.replicas[replica].in_next
    return 1.0 / max(count, 1)


@njit(cache=True, nogil=True)
def _improve_one(
    board: Board, tree: Tree, row: int, taste: Taste, rules: Rules, nodes: Ints, costs: Floats, virtual: Floats
) -> float:
    """Moves one replica if that pays, alone or with one that it pushes aside. Returns what was gained."""
    join, home = board.replicas[row].join, board.replicas[row].node
    cells, other = board.replicas[row].cells.copy(), np.empty(4, dtype=np.int32)
    before, own = cost_at(board, join, home, taste), _weight(board, join)
    detach(board, tree, row)
    need = demand(board, join, cells)
    node, cost = choose(board, tree, join, cells, taste, rules, before - GAIN, virtual)
    best = own * (before - cost) if node != NOWHERE else 0.0
    pushed, to = NOWHERE, NOWHERE
    found = _few(board, tree, join, need, taste, nodes, costs)
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
def _improve(
    board: Board,
    tree: Tree,
    rows: Ints,
    taste: Taste,
    rules: Rules,
    nodes: Ints,
    costs: Floats,
    virtual: Floats,
    splitting: bool,
) -> float:
    gained = 0.0
    for i in range(rows.shape[0]):
        join = board.replicas[rows[i]].join
        if join != NOWHERE:
            gained += _improve_one(board, tree, rows[i], taste, rules, nodes, costs, virtual[join])
            if splitting and board.replicas[rows[i]].join != NOWHERE:
                owner = board.replicas[rows[i]].join
                gained += _split_one(board, tree, rows[i], taste, rules, virtual[owner])
    return gained


@njit(cache=True, nogil=True)
def _ways(board: Board, rows: Ints, total: Floats, count: Ints, detour: Floats) -> None:
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
def _restore(board: Board, tree: Tree, rows: Ints, join: Ints32, node: Ints32, cells: Ints32) -> None:
    for i in range(rows.shape[0]):
        detach(board, tree, rows[i])
    for i in range(join.shape[0]):
        attach(board, tree, join[i], cells[i], node[i], shares(board, join[i]))


@njit(cache=True, nogil=True)
def _split_one(board: Board, tree: Tree, row: int, taste: Taste, rules: Rules, virtual: Floats) -> float:
    """Cuts one replica in two if both halves together fare better by a clear margin. Returns what was gained."""
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
def _again(board: Board, tree: Tree, rows: Ints, taste: Taste, rules: Rules, virtual: Floats) -> bool:
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


class _Search:
    """One improvement: the placement, its deadline, and the best that was seen."""

    def __init__(self, joins: Joins, seconds: float, mean_weight: float, rival: tuple[float, float]) -> None:
        self.mean_weight, self.rival = mean_weight, rival
        self.joins, self.board, self.tree = joins, joins.board, joins.tree
        self.deadline = time.perf_counter() + seconds
        most = min(FEW, len(self.board.nodes))
        self.nodes, self.costs = np.empty(most, dtype=np.int64), np.empty(most)
        self.score, self.kept = np.inf, self.snapshot()

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    def snapshot(self) -> tuple[Ints32, Ints32, Ints32]:
        rows = self.joins.rows()
        replicas = self.board.replicas
        return replicas["join"][rows].copy(), replicas["node"][rows].copy(), replicas["cells"][rows].copy()

    def ways(self) -> tuple[Floats, Floats]:
        """Every source's latency, and each row's detour."""
        rows = self.joins.rows()
        count = np.zeros(len(self.board.joins), dtype=np.int64)
        total, detour = np.zeros((len(count), 2)), np.zeros(len(rows))
        _ways(self.board, rows, total, count, detour)
        some = count > 0
        return np.asarray(total[some] / count[some, None], dtype=np.float64).ravel(), detour

    def run(self, taste: Taste, passes: int, least: float) -> None:
        """Passes over all replicas, the largest detours first, until one gains little."""
        for _ in range(passes):
            order = self.joins.rows()[np.argsort(-self.ways()[1], kind="stable")]
            gained = 0.0
            for begin in range(0, len(order), CHUNK):
                if self.late:
                    return
                some = order[begin : begin + CHUNK]
                gained += _improve(
                    self.board,
                    self.tree,
                    some,
                    taste,
                    self.joins.rules,
                    self.nodes,
                    self.costs,
                    self.joins.virtual,
                    True,
                )
            if gained <= least:
                return

    def tail(self, step: float, direct: float) -> Taste:
        """A taste that punishes what is slower than a little less than the 90th percentile of now."""
        ways, _ = self.ways()
        if np.isinf(self.mean_weight):
            return Taste(1.0, np.inf, 0.0, 0.0)
        now = float(np.percentile(ways, 90))
        return Taste(1.0, now - step * max(now - direct, 0.05 * now), 2 * float(ways.mean()), 0.0)

    def shake(self, taste: Taste, rng: np.random.Generator) -> bool:
        """Places some replicas anew, so that the search can leave where it is stuck; False if that must be undone."""
        rows = self.joins.rows()
        count = min(len(rows), max(2, int(len(rows) * rng.uniform(*SHAKEN))))
        some = rng.choice(rows, count, replace=False)
        return bool(_again(self.board, self.tree, some, taste, self.joins.rules, self.joins.virtual))

    def keep_if_better(self) -> bool:
        """Judged by the 90th percentile and the mean alike."""
        ways, _ = self.ways()
        mean = float(ways.mean()) if len(ways) else 0.0
        tail = float(np.percentile(ways, 90)) if len(ways) else 0.0
        score = mean if np.isinf(self.mean_weight) else tail + self.mean_weight * mean
        score += WORSE * (max(tail - self.rival[0], 0.0) + max(mean - self.rival[1], 0.0))
        if score >= self.score:
            return False
        self.score, self.kept = score, self.snapshot()
        return True

    def restore(self) -> None:
        join, node, cells = self.kept
        _restore(self.board, self.tree, self.joins.rows(), join, node, cells)


def improve(
    joins: Joins, seconds: float, *, mean_weight: float = MEAN, rival: tuple[float, float] = (np.inf, np.inf)
) -> None:
    """Improves a placement for at most so many seconds; no node gets overloaded.

    Judged by the 90th percentile plus `mean_weight` times the mean; infinity judges by the mean alone. Above all, it
    should not be worse than a `rival` in either, where one is given by these two.
    """
    search = _Search(joins, seconds, mean_weight, rival)
    search.keep_if_better()
    if not len(search.kept[0]):
        return
    board = joins.board
    ends = board.sources["node"][board.joins["ends"][search.kept[0]]]
    sinks = board.joins["sink"][search.kept[0]]
    direct = np.percentile([latency(board, int(s), int(t)) for s, t in zip(ends[:, 0], sinks, strict=True)], 90)
    plain = Taste(1.0, np.inf, 0.0, 0.0)
    ways, _ = search.ways()
    search.run(plain, PASSES, 1e-4 * float(ways.sum()))
    search.keep_if_better()
    step = FIRST_STEP
    while step >= LAST_STEP and not search.late:
        search.run(search.tail(step, float(direct)), PASSES, 1e-4 * float(ways.sum()))
        if not search.keep_if_better():
            step /= 2
            search.restore()
    rng, stuck = np.random.default_rng(SEED), 0
    while not search.late and stuck < PATIENCE:
        taste = search.tail(float(rng.uniform(0, FIRST_STEP)), float(direct))
        stuck += 1
        if search.shake(taste, rng):
            search.run(taste, PASSES, 1e-4 * float(ways.sum()))
            if search.keep_if_better():
                stuck = 0
                continue
        search.restore()
    search.restore()


def tail_and_mean(joins: Joins) -> tuple[float, float]:
    """The 90th percentile and the mean of what sources experience."""
    ways, _ = _Search(joins, 0.0, MEAN, (np.inf, np.inf)).ways()
    return (float(np.percentile(ways, 90)), float(ways.mean())) if len(ways) else (0.0, 0.0)
