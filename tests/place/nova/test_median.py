"""The geometric median: closed form and iteration against a numerical optimum."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from meander.place.nova.median import median, of_joins

Floats = NDArray[np.float64]

coordinate = st.integers(-50, 50).map(float)
weight = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 3.0])


def total(points: Floats, weights: Floats, at: Floats) -> float:
    return float((weights * np.linalg.norm(points - at, axis=1)).sum())


def optimum(points: Floats, weights: Floats) -> float:
    def of(x: Floats) -> float:
        return total(points, weights, x)

    options: Any = {"xatol": 1e-9, "fatol": 1e-11, "maxiter": 4000}
    found = minimize(of, points.mean(axis=0), method="Nelder-Mead", options=options)
    return min(float(found.fun), *(total(points, weights, p) for p in points))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.lists(coordinate, min_size=3, max_size=3), min_size=1, max_size=7),
    st.lists(weight, min_size=7, max_size=7),
)
def test_nothing_is_better_than_the_median(dimensions: int, at: list[list[float]], heavy: list[float]) -> None:
    points = np.array(at)[:, :dimensions]
    weights = np.array(heavy[: len(points)])
    found = median(points, weights)
    assert total(points, weights, found) <= optimum(points, weights) * (1 + 1e-6) + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=3), st.lists(weight, min_size=3, max_size=3))
def test_three_points_have_a_closed_form(points: list[tuple[float, float]], weights: list[float]) -> None:
    corners, w = np.array(points), np.array(weights)
    assert total(corners, w, median(corners, w)) <= optimum(corners, w) + 1e-7


def test_an_equilateral_triangle_meets_in_its_middle() -> None:
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, np.sqrt(3)]])
    assert median(corners) == pytest.approx(corners.mean(axis=0))


def test_a_heavy_sink_holds_the_join() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 30.0]])
    left, right, sink = (np.array([i], dtype=np.int32) for i in range(3))
    assert of_joins(points, left, right, sink, 2.0)[0] == pytest.approx(points[2])


def test_points_that_coincide_are_the_median() -> None:
    assert median(np.array([[1.0, 1.0], [1.0, 1.0], [5.0, 9.0]])) == pytest.approx([1.0, 1.0])
