"""Small cases against the optimum."""

import numpy as np
import pytest

from meander.place.nova.exact import cost_of, solve
from meander.place.nova.improve import improve
from meander.place.nova.place import place
from meander.place.nova.settings import Overload, Settings
from tests.place.nova.problems import paired


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_never_below_the_optimum_and_near_it(seed: int, sigma: float) -> None:
    problem = paired(8, seed, heights=np.zeros(8))
    best = solve(problem, sigma, time_s=20.0)
    joins = place(problem, Settings(sigma=sigma, overload=Overload.REFUSE))
    improve(joins, 0.2, mean_weight=float("inf"))
    assert best.cost_ms is not None
    assert len(joins.unplaced) == 0
    assert best.bound_ms * (1 - 1e-6) <= cost_of(joins) <= 1.15 * best.bound_ms


def test_what_cannot_fit_has_no_answer() -> None:
    problem = paired(8, 1, capacity_tps=np.concatenate(([300.0], np.zeros(7))), source_tps=np.full(4, 70.0))
    assert solve(problem, 1.0).cost_ms is not None
    tight = paired(8, 1, capacity_tps=np.full(8, 36.0), source_tps=np.full(4, 70.0))
    assert solve(tight, 1.0).cost_ms is None
