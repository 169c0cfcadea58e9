"""Linear ranking: a distribution for any scores, monotone in rank, with the pressure that was asked for."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.adapt.selection.rank_probabilities import eta_minus_of, linear_ranking, shifted
from meander.model.errors import InputError

SCORES = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([-1.0, 0.0, 0.5]), min_size=1, max_size=12)
ETAS = st.none() | st.floats(0, 1)


@given(scores=SCORES, eta=ETAS)
def test_probabilities_sum_to_one(scores: list[float], eta: float | None) -> None:
    odds = linear_ranking(scores, eta)
    assert math.fsum(odds) == pytest.approx(1)
    assert all(0 <= p <= 1 for p in odds)


@given(scores=SCORES, eta=ETAS)
def test_probabilities_are_monotone_in_rank_and_equal_for_equal_scores(scores: list[float], eta: float | None) -> None:
    odds = linear_ranking(scores, eta)
    for a, p in zip(scores, odds, strict=True):
        for b, q in zip(scores, odds, strict=True):
            if a > b:
                assert p >= q - 1e-12
            if a == b:
                assert p == q


@given(scores=SCORES)
def test_shifted_scores_are_positive_and_keep_their_order(scores: list[float]) -> None:
    positive = shifted(scores)
    assert min(positive) > 0
    by_score = sorted(range(len(scores)), key=scores.__getitem__)
    assert all(positive[a] <= positive[b] for a, b in pairwise(by_score))


@given(scores=SCORES)
def test_the_pressure_of_scores_is_possible(scores: list[float]) -> None:
    assert 0 <= eta_minus_of(scores) <= 1


def test_centred_scores_that_sum_to_zero() -> None:
    """What equation 5 gives: dividing by their sum would divide by zero."""
    odds = linear_ranking([0.5, -0.5, 0.0])
    assert odds[0] > odds[2] > odds[1] > 0


def test_the_best_and_worst_get_eta_plus_and_eta_minus() -> None:
    odds = linear_ranking([1, 2, 3, 4], 0.2)
    assert odds[0] == pytest.approx(0.2 / 4)
    assert odds[3] == pytest.approx(1.8 / 4)


def test_one_mechanism_and_none() -> None:
    assert linear_ranking([-3.0]) == [1.0]
    assert linear_ranking([]) == []


def test_equal_scores_are_equally_likely() -> None:
    assert linear_ranking([-2.0] * 4) == [0.25] * 4


def test_pressure_of_ranking_normal_scores_is_equation_9() -> None:
    """The mean of standard normal scores after ranking with eta_minus is (1 - eta_minus) / sqrt(pi)."""
    normal = statistics.NormalDist()
    scores = [normal.inv_cdf((i + 0.5) / 2000) for i in range(2000)]
    for eta in (0.0, 0.4, 1.0):
        mean = math.fsum(s * p for s, p in zip(scores, linear_ranking(scores, eta), strict=True))
        assert mean == pytest.approx((1 - eta) / math.sqrt(math.pi), abs=0.005)


@pytest.mark.parametrize("eta", [-0.1, 1.1])
def test_impossible_pressure_is_refused(eta: float) -> None:
    with pytest.raises(InputError, match="eta_minus must lie between 0 and 1"):
        linear_ranking([1, 2], eta)


def test_scores_must_be_finite() -> None:
    with pytest.raises(InputError, match="scores must be finite"):
        linear_ranking([math.inf, 0])
