"""A day with two environments: transitions hold the demands, no fixed mechanism does, and days repeat by their seed."""

from __future__ import annotations

import pytest

from lab.experiments.tcep_day import adaptive, calibrated, fixed, library, measure, queries, rounds
from lab.experiments.tcep_world import CALM, MINUTE_MS, RUSH, RoadWorld
from lab.workloads import tcep as road
from meander.model.placement import violations

MINUTES = 10


def test_transitions_hold_more_demands_than_any_fixed_mechanism() -> None:
    some = library(["bottom_up", "top_down", "global_optimal", "mdcep"])
    demands = calibrated(MINUTES, list(some))
    day = adaptive(demands, "linear_ranking", MINUTES, 1, some)
    alone = {name: fixed(demands, name, MINUTES, 1, again=True).share for name in some}
    assert day.share > max(alone.values()) + 0.1, alone
    assert 2 <= day.transitions <= 60
    assert all(d.reason for d in day.decisions)
    again = adaptive(demands, "linear_ranking", MINUTES, 1, some)
    assert again.decisions == day.decisions


def test_the_placement_of_the_road_stays_valid_while_vehicles_drive() -> None:
    asked = queries()
    world = RoadWorld(asked, library(["bottom_up", "ilp"]), {asked[0].id: "ilp", asked[1].id: "bottom_up"}, 3)
    for number in range(1, 21):
        measures = world.advance(number * MINUTE_MS, MINUTE_MS, RUSH if number > 5 else CALM)
        assert not world.unplaced
        assert not violations(world.catalog.plan, world.catalog.placement, world.catalog.topology)
        for query in asked:
            assert measures.queries[query.id].channels
            assert min(measures.queries[query.id].latencies_ms) > 0
    assert measures.world.mobile_nodes == len(road.vehicles())
    assert measures.world.tuples == 18 * 2 * 60


def test_keeping_the_cost_space_is_charged_to_those_who_need_it() -> None:
    asked = queries()
    world = RoadWorld(asked, library(["bottom_up", "mopa"]), {asked[0].id: "mopa", asked[1].id: "bottom_up"}, 3)
    world.advance(MINUTE_MS, MINUTE_MS, RUSH)
    measures = world.advance(2 * MINUTE_MS, MINUTE_MS, RUSH)
    assert measures.queries[asked[0].id].control_bytes > 10 * measures.queries[asked[1].id].control_bytes


def test_all_variants_are_reported_side_by_side() -> None:
    some = ["bottom_up", "top_down"]
    names = [figure.name for figure in measure(60, 1, lambda _: None, some)]
    assert [n for n in names if n.startswith("demands met with transitions")] == [
        "demands met with transitions, linear_ranking, worst of 1 days",
        *(f"demands met with transitions, {by}" for by in ("linear_ranking", "thompson", "requirement")),
    ]
    assert sum("best fixed in hindsight" in n for n in names) == 1
    assert sum(n.endswith("placed again") for n in names) == len(some)


@pytest.mark.parametrize("minutes", [1, 5, 10])
def test_rounds_cover_the_day(minutes: int) -> None:
    found = rounds(minutes)
    assert len(found) == 24 * 60 // minutes
    assert {hour for _, hour in found} == set(range(24))
    assert found[-1][0] == 24 * 60 * MINUTE_MS
