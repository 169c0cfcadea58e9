"""Placed joins: every pair of tuples meets once, nobody is overloaded, and too little room is dealt with as wanted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.place.nova.improvement.improve import improve
from meander.place.nova.judge import judge
from meander.place.nova.place import place
from meander.place.nova.settings import NovaSettings, Overload
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired, shared


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.4, 1.0]), st.sampled_from(list(Overload)), st.booleans())
def test_every_cell_is_in_one_replica_and_loads_add_up(seed: int, sigma: float, overload: Overload, near: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = paired(40, seed, capacity_tps=rng.exponential(60, 40) + 30)
    joins = place(problem, NovaSettings(sigma=sigma, overload=overload, by_distance=near))
    assert violations(joins) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.4, 1.0]))
def test_shared_sources_arrive_once(seed: int, sigma: float) -> None:
    joins = place(shared(seed), NovaSettings(sigma=sigma, improve_s=0.02))
    assert violations(joins) == []
    assert len(joins.unplaced) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 40), st.integers(2, 40))
def test_each_pair_of_tuples_meets_in_exactly_one_replica(seed: int, left: int, right: int) -> None:
    joins = place(
        paired(40, seed, capacity_tps=np.random.default_rng(seed).uniform(20, 60, 40)), NovaSettings(sigma=0.1)
    )
    rng = np.random.default_rng(seed)
    for join in np.flatnonzero(joins.placed)[:5]:
        replicas = list(joins.replicas(int(join)))
        for a, b in zip(rng.integers(0, 10**6, left), rng.integers(0, 10**6, right), strict=False):
            met = [r for r in replicas if a % r.left_parts in r.left and b % r.right_parts in r.right]
            assert len(met) == 1


@pytest.mark.parametrize("seed", range(5))
def test_bandwidth_bounds_every_replica(seed: int) -> None:
    problem = paired(60, seed, bandwidth_tps=20.0)
    joins = place(problem, NovaSettings(sigma=None))
    assert violations(joins) == []
    for r in joins.replicas():
        left, right = problem.source_tps[problem.join_left[r.join]], problem.source_tps[problem.join_right[r.join]]
        assert len(r.left) / r.left_parts * left + len(r.right) / r.right_parts * right <= 20 + 1e-9


def test_nodes_with_little_left_take_nothing_more() -> None:
    joins = place(paired(60, 1, least_free_tps=100.0))
    nodes = joins.board.nodes
    assert violations(joins) == []
    assert (nodes["capacity"][nodes["load"] > 0] >= 100).all()


def test_too_little_room_is_refused_spread_or_split_further() -> None:
    rates = np.full(24, 40.0)
    problem = paired(40, 3, capacity_tps=np.full(40, 40.0), source_tps=rates)
    refused = place(problem, NovaSettings(sigma=1.0, overload=Overload.REFUSE))
    assert len(refused.unplaced) == 12
    assert violations(refused) == []
    spread = place(problem, NovaSettings(sigma=1.0, overload=Overload.SPREAD))
    assert len(spread.unplaced) == 0
    assert len(spread.overloaded()) > 0
    expanded = place(problem, NovaSettings(sigma=1.0, overload=Overload.EXPAND))
    assert violations(expanded) == []
    assert len(expanded.placed.nonzero()[0]) > 0
    assert max(r.left_parts for r in expanded.replicas()) > 1


def test_unlimited_room_is_the_sink_and_no_detour() -> None:
    problem = paired(60, 2, capacity_tps=np.full(60, np.inf), heights=np.zeros(60))
    joins = place(problem)
    assert {r.node for r in joins.replicas()} == {0}
    assert judge(joins).p90_delta_ms == 0.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("measured", [False, True])
def test_improvement_never_hurts_and_keeps_everything_right(seed: int, measured: bool) -> None:
    problem = paired(80, seed)
    if measured:
        away = np.linalg.norm(problem.points[:, None] - problem.points[None], axis=2)
        noisy = away * np.exp(np.random.default_rng(seed).normal(0, 0.3, away.shape))
        problem = paired(80, seed, matrix_ms=np.triu(noisy, 1) + np.triu(noisy, 1).T)
    joins = place(problem)
    before = judge(joins)
    improve(joins, 0.3)
    after = judge(joins)
    assert violations(joins) == []
    assert after.p90_ms + 0.25 * after.mean_ms <= before.p90_ms + 0.25 * before.mean_ms + 1e-9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([10, 16, 30]), st.floats(0.3, 2.0))
def test_improvement_overloads_nobody_where_room_is_short(seed: int, nodes: int, room: float) -> None:
    capacity = np.random.default_rng(seed).exponential(60 * room, nodes) + 20
    try:
        problem = paired(nodes, seed, capacity_tps=capacity)
    except InputError:
        return
    joins = place(problem, NovaSettings(overload=Overload.REFUSE))
    unplaced = joins.unplaced.tolist()
    improve(joins, 0.1, mean_weight=float("inf") if seed % 2 else 0.25)
    assert violations(joins) == []
    assert set(joins.unplaced.tolist()) <= set(unplaced)


def test_the_same_problem_gives_the_same_placement() -> None:
    one, two = (place(paired(60, 5)) for _ in range(2))
    assert list(one.replicas()) == list(two.replicas())
