"""Small cases against the optimum, and the optimum against trying everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lab.bench.nova.exact import cost_of, solve
from meander.place.nova.improvement.improve import improve
from meander.place.nova.partition_count import parts
from meander.place.nova.place import place
from meander.place.nova.problem import JoinProblem
from meander.place.nova.settings import NovaSettings, Overload
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired, tiny

CELLS = 7
"""Cases with more cells take too long to try everything."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_never_below_the_optimum_and_near_it(seed: int, sigma: float) -> None:
    problem = paired(8, seed, heights=np.zeros(8))
    best = solve(problem, sigma, time_s=20.0)
    joins = place(problem, NovaSettings(sigma=sigma, overload=Overload.REFUSE))
    improve(joins, 0.2, mean_weight=float("inf"))
    assert best.cost_ms is not None
    assert len(joins.unplaced) == 0
    assert best.bound_ms * (1 - 1e-6) <= cost_of(joins) <= 1.15 * best.bound_ms


def test_what_cannot_fit_has_no_answer() -> None:
    problem = paired(8, 1, capacity_tps=np.concatenate(([300.0], np.zeros(7))), source_tps=np.full(4, 70.0))
    assert solve(problem, 1.0).cost_ms is not None
    tight = paired(8, 1, capacity_tps=np.full(8, 36.0), source_tps=np.full(4, 70.0))
    assert solve(tight, 1.0).cost_ms is None
    assert solve(tight, 1.0).bound_ms == float("inf")


def test_a_source_of_two_joins_was_counted_twice_where_both_run() -> None:
    """One node has room for three sources, not for four: both joins fit there because they share one."""
    ends, middle, elsewhere = [[0.0, 0.0]] * 4, [[10.0, 0.0]], [[500.0, 0.0]]
    problem = JoinProblem(
        points=np.array(ends + middle + elsewhere), heights=np.zeros(6),
        capacity_tps=np.array([0.0, 0.0, 0.0, 0.0, 30.0, 1000.0]), source_node=np.array([1, 2, 3], dtype=np.int32),
        source_tps=np.full(3, 10.0), join_left=np.array([0, 0], dtype=np.int32),
        join_right=np.array([1, 2], dtype=np.int32), join_sink=np.zeros(2, dtype=np.int32),
    )  # fmt: skip
    found = solve(problem, 1.0)
    assert found.cost_ms == pytest.approx(2 * 4 * 10.0)
    assert _by_trying(problem, 1.0) == pytest.approx(80.0)


def test_joins_that_part_a_source_differently_share_what_overlaps() -> None:
    """Source 0 is read in one part by one join and in three by the other: one copy of it arrives."""
    problem = JoinProblem(
        points=np.array([[0.0, 0.0], [5.0, 0.0], [500.0, 0.0]]), heights=np.zeros(3),
        capacity_tps=np.array([0.0, 30.0 + 30.0 + 2.0, 1000.0]), source_node=np.zeros(3, dtype=np.int32),
        source_tps=np.array([30.0, 30.0, 2.0]), join_left=np.array([0, 0], dtype=np.int32),
        join_right=np.array([1, 2], dtype=np.int32), join_sink=np.zeros(2, dtype=np.int32),
    )  # fmt: skip
    counts = parts(problem.source_tps[problem.join_left], problem.source_tps[problem.join_right], 0.7)
    assert counts[0, 0] != counts[1, 0]
    assert solve(problem, 0.7).cost_ms == pytest.approx(2 * 4 * 5.0)


@pytest.mark.parametrize("block", range(10))
def test_the_optimum_with_shared_sources_is_what_trying_everything_finds(block: int) -> None:
    tried, none = 0, 0
    for problem, sigma in _cases(block, 12):
        wanted, found = _by_trying(problem, sigma), solve(problem, sigma)
        if wanted is None:
            assert found.cost_ms is None
            assert found.bound_ms == float("inf")
            none += 1
        else:
            assert found.cost_ms == pytest.approx(wanted, rel=1e-5)
            assert found.bound_ms == pytest.approx(wanted, rel=1e-5)
        tried += 1
    assert tried == 12
    assert none < tried


@pytest.mark.parametrize("block", range(20, 24))
def test_nova_is_never_below_the_optimum_with_shared_sources(block: int) -> None:
    compared = 0
    for problem, sigma in _cases(block, 8):
        best = solve(problem, sigma)
        joins = place(problem, NovaSettings(sigma=sigma, overload=Overload.REFUSE))
        improve(joins, 0.02, mean_weight=float("inf"))
        assert violations(joins) == []
        if not len(joins.unplaced):
            assert best.cost_ms is not None
            assert cost_of(joins) >= best.bound_ms * (1 - 1e-6)
            compared += 1
    assert compared > 0


def test_nodes_without_a_place_or_with_too_little_free_run_nothing() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]])
    problem = JoinProblem(
        points, np.zeros(4), np.array([0.0, 20.0, 40.0, 1000.0]), np.zeros(2, dtype=np.int32), np.full(2, 10.0),
        np.array([0], dtype=np.int32), np.array([1], dtype=np.int32), np.array([0], dtype=np.int32),
    )  # fmt: skip
    assert solve(problem, 1.0).cost_ms == pytest.approx(4 * 10.0)
    assert solve(replace(problem, least_free_tps=30.0), 1.0).cost_ms == pytest.approx(4 * 20.0)
    lost = points.copy()
    lost[1] = np.nan
    assert solve(replace(problem, points=lost), 1.0).cost_ms == pytest.approx(4 * 20.0)


def test_a_cell_above_the_bandwidth_threshold_has_no_place() -> None:
    problem = tiny(3)
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    counts = parts(left, right, 0.4)
    largest = float((left / counts[:, 0] + right / counts[:, 1]).max())
    assert solve(replace(problem, bandwidth_tps=largest), 0.4).cost_ms is not None
    assert solve(replace(problem, bandwidth_tps=0.99 * largest), 0.4).cost_ms is None


def _cases(block: int, count: int) -> Iterator[tuple[JoinProblem, float]]:
    """Cases small enough to try everything, with few parts and with many."""
    seed = 1000 * block
    while count:
        problem, sigma = tiny(seed), (0.4, 0.7, 1.0)[seed % 3]
        left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
        seed += 1
        if int(parts(left, right, sigma).prod(axis=1).sum()) <= CELLS:
            count -= 1
            yield problem, sigma


def _by_trying(problem: JoinProblem, sigma: float) -> float | None:
    """The least cost over every assignment of cells to nodes; what arrives is counted in small steps of a source."""
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    counts = parts(left, right, sigma).tolist()
    cells = [(j, a, b) for j, (across, down) in enumerate(counts) for a in range(across) for b in range(down)]
    fine = int(np.lcm.reduce(np.array(counts).ravel()))
    costs, reads = [], []
    for j, a, b in cells:
        across, down = counts[j]
        ends = (int(problem.join_left[j]), int(problem.join_right[j]))
        routes = [_way(problem, end, v, int(problem.join_sink[j])) for end in ends for v in range(problem.nodes)]
        costs.append((np.array(routes[: problem.nodes]) + np.array(routes[problem.nodes :])) / (across * down))
        steps = np.zeros((len(problem.source_tps), fine), dtype=bool)
        steps[ends[0], a * fine // across : (a + 1) * fine // across] = True
        steps[ends[1], b * fine // down : (b + 1) * fine // down] = True
        reads.append(steps)
    best = None
    for where in product(range(problem.nodes), repeat=len(cells)):
        cost = float(sum(c[v] for c, v in zip(costs, where, strict=True)))
        if best is not None and cost >= best:
            continue
        for v in set(where):
            arrives = np.logical_or.reduce([r for r, at in zip(reads, where, strict=True) if at == v])
            if float((arrives.sum(axis=1) / fine * problem.source_tps).sum()) > problem.capacity_tps[v] + 1e-6:
                break
        else:
            best = cost
    return best


def _way(problem: JoinProblem, source: int, node: int, sink: int) -> float:
    return sum(
        0.0 if a == b else float(np.linalg.norm(problem.points[a] - problem.points[b]))
        for a, b in ((int(problem.source_node[source]), node), (node, sink))
    )
