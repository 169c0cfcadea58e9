"""Vivaldi on latencies that do come from a plane, on published measurements, and one node at a time."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.place.costspace.space import CostSpace
from meander.place.costspace.vivaldi import Vivaldi
from tests.place.costspace.error import report

Floats = NDArray[np.float64]
DATA = Path(os.environ.get("MEANDER_DATA", "../shared/data")) / "latency"


def plane(count: int, seed: int = 0, height_ms: float = 0.0) -> Floats:
    """Latencies between points in a square of 100 ms, with access links of some length."""
    rng = np.random.default_rng(seed)
    at = rng.uniform(0, 100, (count, 2))
    height = rng.exponential(height_ms, count) if height_ms else np.zeros(count)
    matrix = np.linalg.norm(at[:, None] - at[None], axis=2) + height[:, None] + height[None]
    np.fill_diagonal(matrix, 0.0)
    return np.asarray(matrix)


def sampled(matrix: Floats, samples: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """What each node measures: the latency to some others."""
    rng = np.random.default_rng(seed)
    count = len(matrix)
    near = np.array([rng.permutation(np.delete(np.arange(count), i))[:samples] for i in range(count)])
    latency = np.take_along_axis(matrix, near, axis=1).astype(np.float64)
    return near.astype(np.int64), np.where(latency > 0, latency, np.nan)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("height_ms", [0.0, 8.0])
def test_a_plane_is_found_from_a_few_neighbours(seed: int, height_ms: float) -> None:
    matrix = plane(300, seed, height_ms)
    space = Vivaldi(seed=seed).embed(*sampled(matrix, 24, seed))
    found = report(space, matrix)
    assert found.median_relative < 0.03
    assert found.p90_relative < 0.15
    assert found.violations == 0
    assert np.median(space.confidence) > 0.95


def test_heights_are_what_makes_access_links_fit() -> None:
    matrix = plane(300, 0, 15.0)
    near, latency = sampled(matrix, 24)
    flat = report(Vivaldi(height=False).embed(near, latency), matrix)
    high = report(Vivaldi().embed(near, latency), matrix)
    assert high.median_relative < flat.median_relative / 2


def test_the_same_seed_gives_the_same_space() -> None:
    near, latency = sampled(plane(60), 8)
    first, second = Vivaldi(seed=4).embed(near, latency), Vivaldi(seed=4).embed(near, latency)
    np.testing.assert_array_equal(first.coordinates, second.coordinates)
    assert not np.array_equal(first.coordinates, Vivaldi(seed=5).embed(near, latency).coordinates)


def test_a_new_node_settles_and_nobody_else_moves() -> None:
    matrix = plane(301, 1, 5.0)
    near, latency = sampled(matrix[:300, :300], 24)
    space = Vivaldi().embed(near, latency)
    before = space.coordinates.copy()
    node, some = NodeId(300), np.arange(0, 300, 20)
    assert not space.knows(node)
    Vivaldi().settle(space, node, some, matrix[300, some])
    assert space.knows(node)
    np.testing.assert_array_equal(space.coordinates[:300], before)
    estimates = [space.latency_ms(node, NodeId(i)) for i in range(300)]
    assert np.median(np.abs(estimates - matrix[300, :300]) / matrix[300, :300]) < 0.08
    assert space.confidence[300] > 0.9


def test_a_moved_node_leaves_its_old_place() -> None:
    matrix = plane(200, 2)
    space = Vivaldi().embed(*sampled(matrix, 24))
    some = np.arange(1, 200, 12)
    Vivaldi().settle(space, NodeId(0), some, matrix[150, some] + 0.01)
    assert space.latency_ms(NodeId(0), NodeId(150)) < 8
    assert next(space.near(space.coordinates[150]))[:3].tolist().count(0) == 1


def test_a_node_that_nobody_measured_has_no_place() -> None:
    near, latency = sampled(plane(40), 8)
    latency[7] = np.nan
    space = Vivaldi().embed(near, latency)
    assert not space.knows(NodeId(7))
    assert space.confidence[7] == 0
    Vivaldi().settle(space, NodeId(3), np.array([7]), np.array([5.0]))
    assert not space.knows(NodeId(3))


def test_confidence_falls_where_measurements_contradict_each_other() -> None:
    matrix = plane(200)
    rng = np.random.default_rng(0)
    wrong = matrix.copy()
    wrong[:20] = rng.uniform(1, 200, (20, 200))
    space: CostSpace = Vivaldi().embed(*sampled(wrong, 24))
    assert np.median(space.confidence[:20]) < np.median(space.confidence[20:])


def test_bad_settings_and_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="at least one dimension"):
        Vivaldi(dimensions=0)
    with pytest.raises(InputError, match="need as many latencies"):
        Vivaldi().embed(np.zeros((3, 2), dtype=np.int64), np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("name", "median", "p90"), [("planetlab490", 0.12, 0.65), ("atlas419", 0.18, 0.8), ("fit433", 0.13, 1.0)]
)
def test_published_measurements(name: str, median: float, p90: float) -> None:
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there; set MEANDER_DATA to where the published data is")
    matrix = np.load(path)["rtt_ms"].astype(np.float64)
    found = report(Vivaldi().embed(*sampled(matrix, 32)), matrix)
    assert found.median_relative < median
    assert found.p90_relative < p90
