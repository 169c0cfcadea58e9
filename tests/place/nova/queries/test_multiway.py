"""Coupled virtual places of several joins, and aggregation trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from meander.model.errors import InputError
from meander.place.costspace.maintenance import follow
from meander.place.nova.median import median
from meander.place.nova.queries.aggregate import aggregation_tree
from meander.place.nova.queries.multiway import Spring, hubs, relax
from meander.place.nova.queries.shape import stages_of
from tests.coordinator.nova.repartitioned import query
from tests.reconfigure.moving import moving_catalog
from tests.run.harness import SINKS, STREAMS


def energy(places: NDArray[np.float64], springs: list[Spring]) -> float:
    """The sum that coupled places make least."""
    ends = [places[s.other] if s.other is not None else np.array(s.nail) for s in springs]
    return sum(s.weight * float(np.linalg.norm(places[s.join] - end)) for s, end in zip(springs, ends, strict=True))


def springs_of(
    sources: NDArray[np.float64], tps: NDArray[np.float64], sent: list[float], sink: NDArray[np.float64]
) -> list[Spring]:
    """((a join b) join c) join d ...: what each join sends is the weight of the spring to its reader."""
    last = len(sources) - 2
    found = [Spring(0, None, tuple(sources[0]), float(tps[0]))]
    for join in range(last + 1):
        found.append(Spring(join, None, tuple(sources[join + 1]), float(tps[join + 1])))
        end = Spring(join, None, tuple(sink), sent[join]) if join == last else Spring(join, join + 1, None, sent[join])
        found.append(end)
    return found


def test_two_sources_are_the_median_of_three_points() -> None:
    points, sink = np.array([[0.0, 0.0], [10.0, 0.0]]), np.array([4.0, 8.0])
    found = relax(1, springs_of(points, np.array([1.0, 1.0]), [1.0], sink))
    assert found[0] == pytest.approx(median(np.vstack((points, sink))), abs=1e-4)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1000), st.integers(3, 6))
def test_nothing_is_better_than_the_coupled_places(seed: int, sources: int) -> None:
    rng = np.random.default_rng(seed)
    points, sink, tps = rng.uniform(0, 100, (sources, 2)), rng.uniform(0, 100, 2), rng.uniform(1, 10, sources)
    springs = springs_of(points, tps, rng.uniform(1, 20, sources - 1).tolist(), sink)
    found = relax(sources - 1, springs)

    def of(x: NDArray[np.float64]) -> float:
        return energy(x.reshape(-1, 2), springs)

    best = minimize(of, found.ravel() + rng.normal(0, 1, found.size), tol=1e-9)
    assert energy(found, springs) <= best.fun * (1 + 1e-4) + 1e-6


def test_results_come_together_where_both_joins_want_them() -> None:
    text = (
        "CREATE QUERY q AS SELECT a.id FROM cars a JOIN rain b ON a.road = b.road WITHIN 1 s "
        "JOIN rain c ON a.road = c.road WITHIN 1 s INTO one;"
    )
    stages = stages_of(query(text), STREAMS, SINKS)
    assert [[side.below for side in stage.sides] for stage in stages] == [[None, None], [0, None]]
    catalog = moving_catalog()
    follow(catalog, ())
    inner, last = hubs(catalog, stages, [100.0, 0.1])
    near, _ = hubs(catalog, stages, [0.1, 100.0])
    sink = catalog.topology.known_id("cloud")
    assert last == sink
    assert catalog.space is not None
    assert catalog.space.latency_ms(near, sink) < catalog.space.latency_ms(inner, sink), "bulky results pull"


def test_nothing_that_holds_the_joins_is_refused() -> None:
    with pytest.raises(InputError, match="nothing holds the joins"):
        relax(2, [Spring(0, 1, None, 1.0)])


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
