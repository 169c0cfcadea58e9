"""The packing that Nova's refusals are compared with."""

import numpy as np
import pytest

from lab.baselines.nova_packing import refused_at_least_cost
from meander.place.nova.problem import JoinProblem


def problem(capacity: list[float], pairs: list[tuple[float, float]]) -> JoinProblem:
    rates = np.array(pairs, dtype=float).ravel()
    nodes, rows = max(len(capacity), len(rates)), np.arange(len(rates), dtype=np.int32)
    column = np.zeros(nodes)
    column[: len(capacity)] = capacity
    return JoinProblem(
        np.zeros((nodes, 2)), np.zeros(nodes), column, rows, rates, rows[::2].copy(), rows[1::2].copy(),
        np.zeros(len(pairs), dtype=np.int32),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("capacity", "pairs", "refused"),
    [
        ([50, 40], [(20, 20), (25, 25)], 0),
        ([60, 60], [(100, 10)], 0),  # in two pieces, each with the smaller side
        ([60, 59, 10], [(100, 10)], 1),
        ([60, *[8] * 8], [(20, 10), (20, 10), (30, 30)], 1),  # leaving out the largest makes room for two
    ],
)
def test_joins_are_left_out_only_where_amounts_do_not_suffice(
    capacity: list[float], pairs: list[tuple[float, float]], refused: int
) -> None:
    assert refused_at_least_cost(problem(capacity, pairs)) == refused
