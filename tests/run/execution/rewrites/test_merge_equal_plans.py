"""Merge equal plans: equal stages of a fragment run as one, and each gets what is its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from lab.workloads.isqd import pairwise
from meander.model.plan import Query
from meander.run.execution.prepared import PreparedRunner
from tests.run import harness
from tests.run.harness import Plane, queries, rows_of

PAIRS = (
    "SELECT a.id, a.road, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WINDOW TUMBLING(500 ms) "
    "INTO one",
    "SELECT a.road AS road, count(*) AS n FROM (SELECT a.road FROM cars AS a JOIN rain AS b ON a.road = b.road "
    "WITHIN 300 ms) AS a GROUP BY a.road WINDOW SLIDING(600 ms, 300 ms) INTO two",
)


@pytest.mark.parametrize("text", PAIRS)
def test_equal_stages_run_as_one_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    rng = np.random.default_rng(5)
    all_in_the_cloud = harness.catalog(slots=0)
    monkeypatch.setattr(harness, "catalog", lambda: all_in_the_cloud)
    (query,) = queries(text)
    both = Query(query.id, pairwise(query.plan, [("s0", "s2"), ("s1", "s2")]))
    runner = PreparedRunner(spark)
    plane = Plane(tmp_path, runner, [both], disorder_ms=200, late=True)
    template = next(f.bound.template for f in plane.installation.fragments if len(f.bound.template.stages) > 1)
    assert [len(wave) for wave in template.waves] == [2] * (len(template.stages) // 2) + [1] * (
        len(template.stages) % 2
    )
    rounds = 0
    for moment in range(3):
        for stream, node in (("cars", "s0"), ("cars", "s1"), ("rain", "s2")):
            times = moment * 400 + rng.integers(0, 500, 15) - rng.integers(0, 500, 15)
            plane.enter(stream, node, rows_of(stream, rng, times))
        plane.batch += 1
        rounds = max(rounds, plane.stepper.step(0, plane.batch).rounds)
    plane.finish()
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}
    assert all(len(table) for table in plane.results().values())
    assert rounds <= len(template.waves) + 1  # the devices hand on
    runner.close()
