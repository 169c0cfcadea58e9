"""Traffic: vehicles keep their distance, queue and dissolve; the queries are 300 fragments of a few templates."""

from __future__ import annotations

import numpy as np

from lab.workloads.traffic import LANES, ROAD_M, SCHEMA, Traffic, traffic_world
from meander.local.run_plan import plan_queries
from meander.run.frames import arrow_schema


def test_the_same_seed_gives_the_same_traffic_and_tuples_have_the_schema() -> None:
    one, two, other = Traffic(300, 4), Traffic(300, 4), Traffic(300, 5)
    for _ in range(100):
        for each in (one, two, other):
            each.tick()
    assert one.tuples(7000).equals(two.tuples(7000))
    assert not one.tuples(7000).equals(other.tuples(7000))
    assert one.tuples(7000).schema == arrow_schema(SCHEMA)
    x, y = one.places()
    assert ((x >= 0) & (x <= 7 * ROAD_M) & (y >= 0) & (y <= 7 * ROAD_M)).all()


def test_vehicles_are_slow_and_fast_and_brake_and_never_leave_the_road() -> None:
    traffic = Traffic(3000, 1)
    seen = []
    for _ in range(500):
        before = traffic.at_m.copy()
        traffic.tick()
        moved = (traffic.at_m - before) % ROAD_M
        assert (moved <= 20 / 25 + 1e-9).all()
        assert ((traffic.at_m >= 0) & (traffic.at_m < ROAD_M)).all()
        assert (traffic.speed >= 0).all()
        seen.append([(traffic.speed < 1).mean(), (traffic.speed > 8).mean(), (traffic.acc < -1).mean()])
    assert (np.array(seen)[250:].mean(axis=0) > 0.02).all()
    counts = np.bincount(traffic.districts(50), minlength=50)
    assert counts.sum() == 3000
    assert counts.max() > 1.2 * counts.mean()


def test_a_morning_ramps_up() -> None:
    traffic = Traffic(1000, ramp_s=4)
    counts = []
    for _ in range(120):
        counts.append(len(traffic.tuples(0)))
        traffic.tick()
    assert counts[0] == 100
    assert counts == sorted(counts)
    assert counts[-1] == 1000
    assert set((traffic.tuples(0).column("lane").to_numpy() % LANES).tolist()) == {0, 1}


def test_150_queries_are_300_fragments_of_few_templates() -> None:
    file, queries = traffic_world()
    plan = plan_queries(file, queries, "bottom_up")
    assert len(queries) == 150
    assert len(plan.installation.fragments) == 300
    assert len({f.bound.template.key for f in plan.installation.fragments}) == 5
