"""Problems in which capacity binds have the load they were asked for, and planted ones a solution."""

import numpy as np
import pytest

from lab.workloads.nova import clusters
from lab.workloads.nova_capacity import MOST_FULL, loaded, planted
from meander.place.nova.problem import JoinProblem


def load_of(problem: JoinProblem) -> float:
    return float(problem.demand_tps.sum() / problem.capacity_tps.sum())


@pytest.mark.parametrize("load", [0.4, 0.9])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_load_is_as_wanted(load: float, skewed: bool) -> None:
    points = clusters(300, 1)
    assert load_of(loaded(points, load, skewed=skewed)) == pytest.approx(load)
    known = planted(points, load, skewed=skewed)
    assert load_of(known.problem) == pytest.approx(load)
    assert 1 < known.broadcast <= MOST_FULL / load


def test_the_planted_solution_cuts_what_no_single_node_was_meant_to_hold() -> None:
    assert (
        planted(clusters(300, 1), 0.9, skewed=True).replicas_per_join > planted(clusters(300, 1), 0.9).replicas_per_join
    )


def test_a_skewed_problem_has_joins_that_exceed_every_node() -> None:
    for seed in range(3):
        problem = loaded(clusters(1000, 1), 0.9, seed, 0, skewed=True)
        assert np.any(problem.demand_tps > problem.capacity_tps.max())
