"""Coupled virtual places of several joins, and aggregation trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from meander.model.errors import InputError
from meander.place.nova.median import median
from meander.place.nova.queries.aggregate import aggregation_tree
from meander.place.nova.queries.multiway import (
    JoinStep,
    Spring,
    left_deep,
    place_steps,
    rates,
    relax,
    virtual_places,
)


def energy(places: NDArray[np.float64], springs: list[Spring]) -> float:
    """The sum that coupled places make least."""
    ends = [places[s.other] if s.other is not None else np.array(s.nail) for s in springs]
    return sum(s.weight * float(np.linalg.norm(places[s.join] - end)) for s, end in zip(springs, ends, strict=True))


def test_two_sources_are_the_median_of_three_points() -> None:
    points, sink = np.array([[0.0, 0.0], [10.0, 0.0]]), np.array([4.0, 8.0])
    found = virtual_places([JoinStep(0, 1, 0.5)], points, np.array([1.0, 1.0]), sink)
    assert found[0] == pytest.approx(median(np.vstack((points, sink))), abs=1e-4)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1000), st.integers(3, 6))
def test_nothing_is_better_than_the_coupled_places(seed: int, sources: int) -> None:
    rng = np.random.default_rng(seed)
    points, sink, tps = rng.uniform(0, 100, (sources, 2)), rng.uniform(0, 100, 2), rng.uniform(1, 10, sources)
    steps = left_deep(sources)
    found = virtual_places(steps, points, tps, sink)
    sent = rates(steps, tps)
    springs = []
    for number, step in enumerate(steps):
        for r in (step.left, step.right):
            if r >= 0:
                springs.append(Spring(number, None, tuple(points[r]), float(tps[r])))
            else:
                springs.append(Spring(number, -1 - r, None, float(sent[-1 - r])))
    springs.append(Spring(len(steps) - 1, None, tuple(sink), float(sent[-1])))

    def of(x: NDArray[np.float64]) -> float:
        return energy(x.reshape(-1, 2), springs)

    best = minimize(of, found.ravel() + rng.normal(0, 1, found.size), tol=1e-9)
    assert energy(found, springs) <= best.fun * (1 + 1e-4) + 1e-6


def test_steps_are_placed_where_there_is_room_near_their_virtual_places() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 9.0], [5.0, 3.0], [5.0, 4.0], [90.0, 90.0]])
    capacity = np.array([0.0, 0.0, 0.0, 20.0, 30.0, 500.0])
    nodes = place_steps(left_deep(3), points, capacity, np.array([0, 1, 2]), np.array([10.0, 10.0, 5.0]), 4)
    assert sorted(nodes) == [3, 4]
    with pytest.raises(InputError, match="no node has room for 25 tuples per second of step 1; add capacity"):
        place_steps(left_deep(3), points, np.full(6, 20.0), np.array([0, 1, 2]), np.array([10.0, 10.0, 5.0]), 4)


def test_selective_joins_send_less() -> None:
    assert rates([JoinStep(0, 1, 0.1), JoinStep(-1, 2)], np.array([10.0, 10.0, 3.0])).tolist() == [2.0, 5.0]


def test_steps_read_earlier_steps_only() -> None:
    with pytest.raises(InputError, match="step 0 reads step 1, which is not an earlier one"):
        rates([JoinStep(-2, 0), JoinStep(0, 1)], np.ones(2))
    with pytest.raises(InputError, match="nothing holds the joins"):
        relax(2, [Spring(0, 1, None, 1.0)])
    with pytest.raises(InputError, match="a join needs at least two sources, not 1"):
        left_deep(1)


@pytest.mark.parametrize("seed", range(5))
def test_an_aggregation_tree_takes_in_everything_and_overloads_nobody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, capacity = rng.uniform(0, 100, (200, 2)), rng.uniform(20, 200, 200)
    sources, tps = np.arange(1, 101), rng.integers(1, 20, 100).astype(float)
    merges = aggregation_tree(points, capacity, sources, tps, 0)
    read = [i for merge in merges for i in merge.inputs]
    assert sorted(i for i in read if i >= 0) == list(range(100))
    assert sorted(-1 - i for i in read if i < 0) == list(range(len(merges) - 1))
    load = np.zeros(200)
    for merge in merges:
        load[merge.node] += merge.in_tps
    assert (load <= capacity + 1e-9).all()
    assert merges[-1].node == 0


def test_aggregates_that_fit_nowhere_say_so() -> None:
    with pytest.raises(InputError, match="no node has room for 50 tuples per second to aggregate; add capacity"):
        aggregation_tree(np.zeros((3, 2)), np.ones(3), np.array([1, 2]), np.array([50.0, 50.0]), 0)
