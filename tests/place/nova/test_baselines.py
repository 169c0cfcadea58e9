"""Baselines do what their names say, and Nova is not worse than the plain greedy."""

import numpy as np
import pytest

from meander.model.errors import InputError
from meander.place.nova.baselines import BASELINES, baseline
from meander.place.nova.baselines.base import judge_outcome, loads
from meander.place.nova.judge import judge
from meander.place.nova.place import place
from meander.place.nova.settings import NovaSettings
from tests.place.nova.problems import paired, shared


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("measured", [False, True])
def test_every_join_has_a_host_and_a_latency(name: str, measured: bool) -> None:
    problem = paired(80, 3, heights=np.zeros(80))
    if measured:
        away = np.linalg.norm(problem.points[:, None] - problem.points[None], axis=2)
        problem = paired(80, 3, heights=np.zeros(80), matrix_ms=away)
    outcome = baseline(name)(problem)
    verdict = judge_outcome(outcome, problem)
    assert (outcome.host >= 0).all()
    assert verdict.mean_delta_ms >= -1e-9
    assert verdict.unplaced == 0


def test_sink_source_and_capacity_based_hosts() -> None:
    problem = paired(40, 1)
    assert (baseline("sink_based")(problem).host == 0).all()
    host = baseline("source_based")(problem).host
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    assert (host == problem.source_node[np.where(left >= right, problem.join_left, problem.join_right)]).all()
    largest = int(problem.demand_tps.argmax())
    assert baseline("top_c")(problem).host[largest] == problem.capacity_tps.argmax()


def test_tuples_on_a_tree_go_hop_by_hop() -> None:
    points = np.column_stack((np.arange(6.0), np.zeros(6)))
    one = np.array([0], dtype=np.int32)
    problem = paired(6, 0, points=points, heights=np.zeros(6), source_node=np.array([3, 5], dtype=np.int32),
                     source_tps=np.ones(2), join_left=one, join_right=one + 1, join_sink=one)  # fmt: skip
    outcome = baseline("tree")(problem)
    assert outcome.host.tolist() == [3]
    assert judge_outcome(outcome, problem).mean_ms == pytest.approx(4.0)


def test_greedy_respects_capacities_and_nova_beats_it() -> None:
    problem = paired(150, 2)
    outcome = baseline("greedy")(problem)
    assert (loads(problem, outcome.host) <= problem.capacity_tps + 1e-9).all()
    mine = judge(place(problem, NovaSettings(improve_s=0.5)))
    plain = judge_outcome(outcome, problem)
    assert mine.p90_ms <= plain.p90_ms
    assert mine.mean_ms <= plain.mean_ms
    assert mine.overloaded == 0


def test_a_shared_source_arrives_once() -> None:
    problem = shared()
    load = loads(problem, np.full(problem.joins, 5))
    assert load[5] == pytest.approx(problem.source_tps.sum())


def test_unknown_baselines_are_named() -> None:
    with pytest.raises(InputError, match="no baseline 'gredy'; known baselines: greedy"):
        baseline("gredy")
