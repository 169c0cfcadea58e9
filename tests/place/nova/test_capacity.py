"""When capacity binds: what has a solution is placed, refusing comes last, and cutting does not eat capacity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.workloads.nova import clusters
from lab.workloads.nova_capacity import loaded, planted
from meander.place.nova.admissible_joins import affordable
from meander.place.nova.cell_placement import MOST_BROADCAST
from meander.place.nova.improvement.improve import improve
from meander.place.nova.node_choice import Rules
from meander.place.nova.place import place, place_in_order, retry
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins
from meander.place.nova.settings import NovaSettings, Overload
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired

REFUSED = 0.02


def named(capacity_tps: list[float], pairs: list[tuple[float, float]]) -> JoinProblem:
    """Workers in a row with these capacities; sources of these rates, and the sink, at nodes that take nothing.

    The sink is next to the first worker, and the sources are beyond the last one.
    """
    rates = np.array(pairs, dtype=float).ravel()
    nodes, rows = len(capacity_tps) + 1 + len(rates), np.arange(len(rates), dtype=np.int32)
    capacity = np.zeros(nodes)
    capacity[1 : len(capacity_tps) + 1] = capacity_tps
    return JoinProblem(
        np.column_stack((np.arange(nodes, dtype=float), np.zeros(nodes))), np.zeros(nodes), capacity,
        rows + len(capacity_tps) + 1, rates, rows[::2].copy(), rows[1::2].copy(), np.zeros(len(pairs), dtype=np.int32),
    )  # fmt: skip


def in_order(problem: JoinProblem, order: list[int]) -> tuple[Joins, Rules]:
    joins = Joins.none_placed(problem, NovaSettings(sigma=1.0), np.zeros((problem.joins, 2)))
    rules = joins.rules._replace(overload=Overload.REFUSE.value)
    place_in_order(joins, np.array(order), rules)
    return joins, rules


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_has_a_solution_is_placed(seed: int, skewed: bool) -> None:
    for load in (0.6, 0.9):
        for hosts in (0.25, 0.5):
            known = planted(clusters(400, seed), load, seed, skewed=skewed, hosts=hosts)
            joins = place(known.problem)
            assert violations(joins) == []
            assert len(joins.unplaced) <= REFUSED * known.problem.joins


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 10]), st.sampled_from([0.6, 0.75, 0.9]), st.booleans())
def test_splitting_finer_never_refuses_more(seed: int, level: int, load: float, skewed: bool) -> None:
    problem = loaded(clusters(120, seed), load, seed, level, skewed=skewed)
    refused = place(problem, NovaSettings(overload=Overload.REFUSE))
    expanded = place(problem, NovaSettings(overload=Overload.EXPAND))
    assert violations(refused) == violations(expanded) == []
    assert len(expanded.unplaced) <= len(refused.unplaced)


def test_cutting_takes_in_a_bounded_multiple_of_what_a_join_needs() -> None:
    for seed in range(3):
        problem = loaded(clusters(300, seed), 0.9, seed)
        joins, need = place(problem), problem.demand_tps
        assert len(joins.unplaced)
        taken = np.zeros(problem.joins)
        for r in joins.replicas():
            left, right = problem.source_tps[problem.join_left[r.join]], problem.source_tps[problem.join_right[r.join]]
            taken[r.join] += len(r.left) / r.left_parts * left + len(r.right) / r.right_parts * right
        light = need <= problem.capacity_tps.max()
        assert (taken[light] <= (1 + MOST_BROADCAST) * need[light] * (1 + 1e-9)).all()


def test_a_join_that_exceeds_every_node_is_cut_as_little_as_that_takes() -> None:
    joins = place(named([60.0, 60.0, 60.0], [(100.0, 10.0)]), NovaSettings(sigma=0.0))
    assert len(joins.unplaced) == 0
    assert [len(r.left) / r.left_parts for r in joins.replicas()] == [0.5, 0.5]
    assert joins.traffic_tps() == pytest.approx(120.0)


def test_others_are_pushed_aside_for_what_fits_nowhere_else() -> None:
    joins, rules = in_order(named([20.0, 50.0], [(5.0, 5.0), (25.0, 25.0)]), [0, 1])
    assert joins.unplaced.tolist() == [1]
    retry(joins, rules)
    assert violations(joins) == []
    assert {r.join: r.node for r in joins.replicas()} == {0: 1, 1: 2}


def test_several_small_joins_make_room_together_or_all_stay() -> None:
    small = [(10.0, 10.0), (10.0, 10.0)]
    joins, rules = in_order(named([20.0, 20.0, 50.0], [*small, (25.0, 25.0)]), [0, 1, 2])
    before = {r.join: r.node for r in joins.replicas()}
    assert before == {0: 3, 1: 3}
    retry(joins, rules)
    assert {r.join: r.node for r in joins.replicas()}[2] == 3
    assert violations(joins) == []
    stuck, rules = in_order(named([20.0, 50.0, 10.0, 10.0], [*small, (25.0, 25.0)]), [0, 1, 2])
    retry(stuck, rules)
    assert {r.join: r.node for r in stuck.replicas()} == {0: 2, 1: 2}
    assert violations(stuck) == []


@pytest.mark.parametrize("seed", range(3))
def test_improvement_tries_refused_joins_again(seed: int) -> None:
    problem = paired(40, seed, capacity_tps=np.random.default_rng(seed).exponential(35, 40) + 5)
    joins, _ = in_order(problem, np.argsort(problem.demand_tps).tolist())
    before = len(joins.unplaced)
    assert before
    improve(joins, 0.1)
    assert violations(joins) == []
    assert len(joins.unplaced) < before


def test_the_outlook_says_how_many_joins_have_room() -> None:
    assert affordable(named([100.0, 100.0], [(40.0, 40.0), (50.0, 50.0)])) == (1.0, 0.0)
    share, refused = affordable(named([60.0, *[8.0] * 8], [(20.0, 10.0), (20.0, 10.0), (30.0, 30.0)]))
    assert share < 1
    assert refused == pytest.approx(1 / 3)
