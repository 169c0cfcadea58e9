"""Coordinates for many nodes, and metrics beside latency."""

import numpy as np
import pytest
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.costspace.large import embed_many
from meander.place.costspace.space import CostSpace
from meander.place.costspace.weighted import beside, per_node

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@pytest.mark.parametrize("height_ms", [0.0, 5.0])
def test_many_nodes_find_their_places_from_a_core(height_ms: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 100, (3000, 2))
    heights = rng.exponential(height_ms, 3000) if height_ms else np.zeros(3000)

    def true(a: Ints, b: Ints) -> Floats:
        return np.asarray(np.linalg.norm(points[a] - points[b], axis=1) + heights[a] + heights[b])

    space = embed_many(3000, true, core=200)
    a, b = rng.integers(0, 3000, (2, 20_000))
    a, b = a[a != b], b[a != b]
    away = np.linalg.norm(space.coordinates[a] - space.coordinates[b], axis=1) + space.heights[a] + space.heights[b]
    assert np.median(np.abs(away - true(a, b)) / true(a, b)) < 0.05
    assert space.messages < 3000 * 20 + 200 * 64 + 1
    assert np.median(space.confidence) > 0.9


def test_nodes_that_nobody_can_measure_have_no_place() -> None:
    points = np.random.default_rng(1).uniform(0, 100, (400, 2))

    def measure(a: Ints, b: Ints) -> Floats:
        away = np.linalg.norm(points[a] - points[b], axis=1)
        return np.where((a == 7) | (b == 7), np.nan, away)

    space = embed_many(400, measure, core=50)
    assert np.flatnonzero(np.isnan(space.coordinates[:, 0])).tolist() == [7]
    assert space.confidence[7] == 0


def test_other_metrics_are_further_dimensions() -> None:
    latency = CostSpace(np.array([[0.0, 0.0], [3.0, 0.0]]), np.zeros(2), np.ones(2))
    energy = CostSpace(np.array([[0.0], [8.0]]), np.zeros(2), np.array([1.0, 0.5]))
    both = beside(latency, [(energy, 0.5)])
    assert np.linalg.norm(both.coordinates[0] - both.coordinates[1]) == pytest.approx(5.0)
    assert both.confidence.tolist() == [1.0, 0.5]
    assert per_node(latency, np.array([0.0, 4.0]), 2.0).heights.tolist() == [0.0, 4.0]


def test_metrics_that_do_not_fit_are_refused() -> None:
    one = CostSpace(np.zeros((2, 2)), np.zeros(2), np.ones(2))
    with pytest.raises(InputError, match="a metric of 3 nodes does not fit a space of 2"):
        beside(one, [(CostSpace(np.zeros((3, 1)), np.zeros(3), np.ones(3)), 1.0)])
    with pytest.raises(InputError, match="the weight of a metric must not be negative, but is -1"):
        beside(one, [(one, -1.0)])
    with pytest.raises(InputError, match="at least two nodes, a core of three"):
        embed_many(1, lambda a, b: np.zeros(len(a)))
