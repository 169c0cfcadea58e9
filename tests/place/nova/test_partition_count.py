"""Partition sizes as the equations have them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.place.nova.partition_count import p_max, parts, sigma_for

rate = st.floats(0.5, 500)


def test_the_worked_example() -> None:
    left, right = np.array([2.0]), np.array([10.0])
    assert p_max(left, right, 0.5).tolist() == [3.0]
    count = parts(left, right, 0.5)
    assert count.tolist() == [[1, 4]]


def test_a_smaller_sigma_splits_to_the_last_tuple() -> None:
    count = parts(np.array([25.0]), np.array([25.0]), 0.0)
    assert count.tolist() == [[25, 25]]


@given(rate, rate, st.floats(0, 1))
def test_no_partition_brings_more_than_p_max(left: float, right: float, sigma: float) -> None:
    a, b = np.array([left]), np.array([right])
    count = parts(a, b, sigma)[0]
    assert left / count[0] <= p_max(a, b, sigma)[0] * (1 + 1e-6)
    assert right / count[1] <= p_max(a, b, sigma)[0] * (1 + 1e-6)


@given(rate, rate, st.floats(1, 1000))
def test_sigma_from_bandwidth_is_the_least_square(left: float, right: float, bandwidth: float) -> None:
    found = float(sigma_for(np.array(left), np.array(right), bandwidth))
    grid = np.linspace(0, 1, 2001)
    off = (grid * 2 * left * right - bandwidth) ** 2
    assert (found * 2 * left * right - bandwidth) ** 2 <= off.min() * (1 + 1e-6) + 1e-6
    assert 0 <= found <= 1


def test_unlimited_bandwidth_does_not_split() -> None:
    assert sigma_for(np.array([4.0]), np.array([4.0]), float("inf")).tolist() == [pytest.approx(1.0)]
