"""Instances are drawn as published, events keep placements right, and the bench's parts measure what they say."""

import numpy as np
import pytest

from lab.bench.nova.quality import QualityCase, nova
from lab.bench.nova.scale import embedding_once, placing_once
from lab.workloads.nova import DATA, LEVELS, clusters, data_sets, instance
from meander.local.join_draws import capacities, rates
from meander.local.join_events import EVENTS, replay
from meander.place.nova.baselines import BASELINES
from meander.place.nova.baselines.base import judge_outcome
from meander.place.nova.place import place
from meander.place.nova.problem import NO_MATRIX
from tests.place.nova.joins_check import violations


@pytest.mark.parametrize("sources", [10, 600, 1001])
@pytest.mark.parametrize("most", [75, 200])
def test_rates_are_whole_numbers_with_the_wanted_mean(sources: int, most: int) -> None:
    found = rates(sources, np.random.default_rng(sources), most)
    assert abs(found.mean() - (most + 1) / 2) < 1 / sources + 1e-9
    assert found.min() >= 1
    assert found.max() <= most
    assert (found == np.round(found)).all()


def test_capacities_are_least_alike_at_the_last_level_and_never_fewer() -> None:
    drawn = [capacities(1000, 600, level, np.random.default_rng(0)) for level in LEVELS]
    spread = [c.std() / c.mean() for c in drawn]
    assert spread[-1] == max(spread)
    assert spread[-1] > 1.2 * spread[0]
    assert all(abs(c.sum() / drawn[0].sum() - 1) < 0.02 for c in drawn)


def test_the_published_instance_pairs_sources_in_order() -> None:
    problem = instance(clusters(100), 1)
    assert problem.source_node.tolist() == list(range(1, 61))
    assert problem.join_left[:3].tolist() == [0, 2, 4]
    assert problem.join_right[:3].tolist() == [1, 3, 5]
    assert set(problem.join_sink.tolist()) == {0}
    assert np.isinf(instance(clusters(100), 1, unlimited=True).capacity_tps).all()


def test_random_events_of_every_kind_keep_the_placement_right() -> None:
    joins = place(instance(clusters(120, 1), 0))
    took = replay(joins, 70)
    assert set(took) == set(EVENTS)
    assert sum(map(len, took.values())) >= 70
    assert violations(joins) == []


def test_the_parts_of_the_bench() -> None:
    cpu, wall = placing_once(500, 10)
    assert 0 < cpu < wall + 1
    _, median, p90 = embedding_once(1500)
    assert median < 0.15 < 1
    assert median < p90
    problem = QualityCase("plane", "estimated", clusters(200, 2), NO_MATRIX).problem(0)
    mine, plain = nova(problem, 0.5), judge_outcome(BASELINES["greedy"](problem), problem)
    assert mine.overloaded == mine.unplaced == 0
    assert mine.p90_ms <= plain.p90_ms
    assert mine.mean_ms <= plain.mean_ms


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no latencies in {DATA}; set MEANDER_DATA to the folder above latency")
def test_published_latencies_are_read_with_coordinates() -> None:
    for data in data_sets():
        assert data.measured_ms.shape == (len(data.points), len(data.points))
        assert np.isfinite(data.points).all()
        assert (data.measured_ms == data.measured_ms.T).all()
