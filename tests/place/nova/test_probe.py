"""Measuring a few candidates per join: pairs are measured once, what is known counts, and it pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.judge import judge
from meander.place.nova.place import place
from meander.place.nova.probe import MOST_NODES, probe
from meander.place.nova.problem import JoinProblem
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired, shared


def measured(problem: JoinProblem, seed: int) -> JoinProblem:
    """The same nodes, but latencies differ from what coordinates say."""
    rng = np.random.default_rng(seed)
    rows = np.arange(problem.nodes)
    truth = np.stack([problem.latency_ms(np.full(problem.nodes, row), rows) for row in rows])
    noise = np.triu(rng.lognormal(0.0, 0.5, truth.shape), 1)
    return replace(problem, matrix_ms=truth * (noise + noise.T))


class Asked:
    """A prober that remembers what it was asked."""

    def __init__(self, truth: JoinProblem) -> None:
        self.truth = truth
        self.pairs: list[tuple[int, int]] = []

    def __call__(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        self.pairs += zip(a.tolist(), b.tolist(), strict=True)
        return self.truth.latency_ms(a, b)


@pytest.mark.parametrize("problem", [paired(60, 3), shared(4)])
def test_every_pair_is_measured_once_and_counts_as_measured(problem: JoinProblem) -> None:
    truth = measured(problem, 1)
    asked = Asked(truth)
    found = probe(problem, asked, 6)
    assert len(asked.pairs) == found.measured == len({tuple(sorted(pair)) for pair in asked.pairs})
    assert found.measured < found.pairs == problem.nodes * (problem.nodes - 1) // 2
    a, b = np.array(asked.pairs).T
    assert np.allclose(found.problem.matrix_ms[a, b], truth.matrix_ms[a, b])
    assert set(np.unique(problem.join_sink)) <= {int(n) for pair in asked.pairs for n in pair}
    left = np.ones((problem.nodes, problem.nodes), bool)
    left[a, b] = left[b, a] = False
    np.fill_diagonal(left, False)
    unknown = np.nonzero(left)
    assert (found.problem.matrix_ms[unknown] >= problem.latency_ms(*unknown) - 1e-9).all()


def test_all_candidates_measured_is_the_whole_truth() -> None:
    problem = paired(30, 5)
    truth = measured(problem, 2)
    found = probe(problem, truth.latency_ms, problem.nodes)
    for end in (problem.join_left, problem.join_right):
        rows = problem.source_node[end]
        assert np.allclose(found.problem.matrix_ms[rows], truth.matrix_ms[rows])


def test_few_measurements_make_placements_better_and_overload_nobody() -> None:
    gains = []
    for seed in range(5):
        problem = paired(120, seed)
        truth = measured(problem, seed)
        probed = place(probe(problem, truth.latency_ms, 12).problem)
        assert violations(probed) == []
        gains.append(judge(place(problem), truth).mean_ms - judge(probed, truth).mean_ms)
    assert float(np.median(gains)) > 0


def test_bad_numbers_are_refused() -> None:
    problem = paired(20, 1)
    with pytest.raises(InputError, match="at least one candidate"):
        probe(problem, problem.latency_ms, 0)
    many = paired(MOST_NODES + 1, 1)
    with pytest.raises(InputError, match="5,000 nodes"):
        probe(many, many.latency_ms, 3)
