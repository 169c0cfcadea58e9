"""The experiment on the data plane: who is overloaded, and which way tuples take."""

from __future__ import annotations

import numpy as np
import pytest

from lab.experiments.nova_plane import PlacingDecision, ways_of_placing, world
from meander.place.catalog import Catalog
from meander.place.costspace.space import CostSpace
from meander.place.nova.baselines import BASELINES
from meander.place.nova.problem import JoinProblem
from meander.place.nova.queries.question import pairs_of_query, problem_of_query
from meander.place.nova.queries.shape import shape_of


@pytest.fixture(scope="module")
def problem() -> JoinProblem:
    here = world(1000.0)
    catalog = Catalog(here.topology, dict(here.streams), dict(here.sinks))
    catalog.space = CostSpace(here.points, np.zeros(len(here.points)), np.ones(len(here.points)))
    shape = shape_of(here.query(), here.streams, here.sinks)
    return problem_of_query(catalog, shape, pairs_of_query(shape, here.streams))


@pytest.fixture(scope="module")
def placed(problem: JoinProblem) -> dict[str, PlacingDecision]:
    return {p.name: p for p in ways_of_placing(problem, 0.1)}


def test_each_region_joins_with_itself_at_the_rates_given(problem: JoinProblem) -> None:
    pairs = [
        (problem.name(a), problem.name(b))
        for a, b in zip(
            problem.source_node[problem.join_left].tolist(),
            problem.source_node[problem.join_right].tolist(),
            strict=True,
        )
    ]
    assert pairs == [("p1", "h1"), ("p2", "h2"), ("p3", "h3"), ("p4", "h4")]
    assert set(problem.source_tps.tolist()) == {1000.0}


def test_only_nova_greedy_and_top_c_overload_nobody(placed: dict[str, PlacingDecision]) -> None:
    assert set(placed) == {"nova", *BASELINES}
    assert {name for name, p in placed.items() if not p.overloaded} == {"nova", "greedy", "top_c"}
    assert len(placed["nova"].parts) > len(placed["greedy"].parts)


def test_ways_along_a_tree_are_never_shorter_than_straight_ones(
    problem: JoinProblem, placed: dict[str, PlacingDecision]
) -> None:
    for name in ("tree", "cl_tree_sf"):
        way = placed[name].route_ms
        assert way is not None
        longer = 0.0
        for part in placed[name].parts:
            for source in (part.left, part.right):
                start = int(problem.source_node[source])
                straight = float(problem.latency_ms(np.array([start]), np.array([part.node]))[0])
                assert way(start, int(part.node)) >= straight - 1e-9
                longer += way(start, int(part.node)) - straight
            assert way(int(part.node), int(problem.join_sink[0])) >= 0
        assert longer >= 0
