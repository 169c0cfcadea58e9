"""Few measurements where they count.

A placement by coordinates looks for pairs that seem fast, and so finds estimates that are too low. Therefore latencies
of some candidates per join are measured before joins are placed: from all nodes to every sink, and from the sources of
a join to the nodes that it might get. Those are not the nearest ones, which all joins want: nodes have prices, which
rise until none is wanted by more than it can take, and a join's candidates are those with the least latency and price
together. Latencies that were not measured count as worse than estimated, as far as estimates have been too low.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Measure = Callable[[NDArray[np.integer[Any]], NDArray[np.integer[Any]]], Floats]
"""Latency between pairs of nodes in ms, measured now or looked up."""

MOST_NODES = 5_000
"""Latencies are kept as a table of all pairs."""
ROUNDS = 4
"""Candidates are chosen in so many rounds, each by the measures so far."""
STEPS = 300
WARMTH = 0.05
"""The width of a join's preferences around the best candidate, as a share of the spread of all costs."""
CAUTION = 0.9
"""The quantile of measured errors by which unmeasured latencies are raised."""
LEAST_SHARE = 0.15
"""Nodes that could not take this share of a join are no candidates for it, while there are others."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A problem by measured latencies, as far as they were measured."""

    problem: JoinProblem
    measured: int
    """Pairs of nodes that were measured."""
    pairs: int
    """All pairs of nodes."""


def probe(problem: JoinProblem, measure: Measure, candidates: int) -> Probed:
    """Measures so many candidates per join; the problem that comes back has a matrix to place by."""
    if problem.nodes > MOST_NODES:
        raise InputError(f"latencies are measured for up to {MOST_NODES:,} nodes, not {problem.nodes:,}; leave it out")
    if candidates < 1:
        raise InputError(f"at least one candidate per join must be measured, not {candidates}")
    table = _Table(_estimates(problem), measure)
    sinks = np.unique(problem.join_sink).astype(np.intp)
    everywhere = np.arange(problem.nodes)
    for sink in sinks:
        table.look(np.full(problem.nodes, sink), everywhere)
    ends = [problem.source_node[side].astype(np.intp) for side in (problem.join_left, problem.join_right)]
    for left in _shares(min(candidates, problem.nodes), ROUNDS):
        chosen = _candidates(problem, table, ends, left)
        for end in ends:
            table.look(np.repeat(end, left), chosen.ravel())
    return Probed(replace(problem, matrix_ms=table.cautious()), table.count, problem.nodes * (problem.nodes - 1) // 2)


def _estimates(problem: JoinProblem) -> Floats:
    """All latencies by coordinates; a node without a place seems as far away as any."""
    rows = np.arange(problem.nodes)
    plain = replace(problem, matrix_ms=np.zeros((0, 0)))
    found = np.stack([plain.latency_ms(np.full(problem.nodes, row), rows) for row in rows])
    known = found[np.isfinite(found)]
    return np.where(np.isfinite(found), found, known.max() if known.size else 0.0)


def _shares(whole: int, rounds: int) -> list[int]:
    """A number in rounds that differ by one at most.

    >>> _shares(10, 4)
    [3, 3, 2, 2]
    """
    rounds = min(whole, rounds)
    return [whole // rounds + (r < whole % rounds) for r in range(rounds)]


class _Table:
    """Estimated latencies, replaced by measured ones where there are any."""

    def __init__(self, estimated: Floats, measure: Measure) -> None:
        self.estimated, self._measure = estimated, measure
        self.latency_ms = estimated.copy()
        self.known = np.eye(len(estimated), dtype=np.bool_)
        self.count = 0

    def look(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> None:
        """Measures pairs, each once."""
        pairs = np.unique(np.column_stack((np.minimum(a, b), np.maximum(a, b))), axis=0)
        pairs = pairs[~self.known[pairs[:, 0], pairs[:, 1]]]
        a, b = pairs[:, 0], pairs[:, 1]
        self.latency_ms[a, b] = self.latency_ms[b, a] = self._measure(a, b)
        self.known[a, b] = self.known[b, a] = True
        self.count += len(pairs)

    def cautious(self) -> Floats:
        """The table with unmeasured latencies taken to be rather worse than estimated."""
        seen = np.triu(self.known, 1)
        slower = (self.latency_ms - self.estimated)[seen]
        margin = max(0.0, float(np.quantile(slower, CAUTION))) if slower.size else 0.0
        return np.where(self.known, self.latency_ms, self.estimated + margin)


def _candidates(problem: JoinProblem, table: _Table, ends: list[Ints], count: int) -> Ints:
    """Per join the nodes to measure next: the cheapest, price included, that are not measured from both its sources."""
    demand, capacity = problem.demand_tps, problem.capacity_tps
    cost = table.latency_ms[ends[0]] + table.latency_ms[ends[1]] + 2 * table.latency_ms[problem.join_sink]
    spread = float(cost.std()) or 1.0
    too_small = capacity[None, :] < LEAST_SHARE * demand[:, None]
    cost = cost + np.where(too_small, 10 * spread, 0.0)
    priced = cost + _prices(cost, demand, capacity, WARMTH * spread)[None, :]
    priced[table.known[ends[0]] & table.known[ends[1]]] = np.inf
    return np.argpartition(priced, count - 1, axis=1)[:, :count]


def _prices(cost: Floats, demand: Floats, capacity: Floats, warmth: float) -> Floats:
    """Prices of nodes at which none is wanted by much more than it can take."""
    prices = np.zeros(cost.shape[1])
    scale = np.maximum(capacity, demand.min(initial=np.inf))
    for _ in range(STEPS):
        preference = cost + prices
        preference = np.exp((preference.min(axis=1, keepdims=True) - preference) / warmth)
        preference *= (demand / preference.sum(axis=1))[:, None]
        over = np.clip((preference.sum(axis=0) - capacity) / scale, -1.0, 3.0)
        prices = np.maximum(0.0, prices + 0.5 * warmth * over)
    return prices
