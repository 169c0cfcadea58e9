"""Merge equal plans: equal stages of a round run as one, and each gets what is its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from lab.workloads.isqd import pairwise
from meander.model.plan import Query
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.rewrites.merge_equal_plans import FIXED_ROWS, MergeEqualPlans, divided
from meander.run.execution.rewrites.rewrite import Conditions
from meander.run.frames import FRAGMENT
from tests.run import harness
from tests.run.execution.tasks import CHOSEN, FAST, TOP, Alone, content, leaves_alone, stage_of, task_of
from tests.run.harness import Plane, queries, rows_of

PAIRS = (
    "SELECT a.id, a.road, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WINDOW TUMBLING(500 ms) "
    "INTO one",
    "SELECT a.road AS road, count(*) AS n FROM (SELECT a.road FROM cars AS a JOIN rain AS b ON a.road = b.road "
    "WITHIN 300 ms) AS a GROUP BY a.road WINDOW SLIDING(600 ms, 300 ms) INTO two",
)


RULE, NOW = MergeEqualPlans(), Conditions(cores=2)


def test_equal_plans_run_as_one_and_each_task_gets_its_own_rows(spark: SparkSession) -> None:
    """The same fragment numbers in two tasks are different fragments."""
    alone = Alone(spark)
    tasks = [
        task_of(text, rows) for text, rows in ((TOP, 40), (CHOSEN, 30), (TOP, 7), (CHOSEN, 50), (FAST, 9), (TOP, 0))
    ]
    ran = alone.through(RULE, tasks, NOW)
    for task, each in zip(tasks, ran, strict=True):
        assert content(task.stage, each.result) == content(task.stage, alone.without(task))
        assert each.result.schema.field(FRAGMENT).type == alone.without(task).schema.field(FRAGMENT).type
    ((top, chosen, fast),) = alone.rounds
    assert [task.rows for task in (top, chosen, fast)] == [47, 30 + 31 + 50 + 51, 9]
    assert sum(each.seconds for each in ran) == pytest.approx(3)
    assert ran[4].seconds == 1


def test_different_plans_stay_as_they_are() -> None:
    tasks = [task_of(text, 5) for text in (TOP, CHOSEN, FAST)]
    assert RULE.rewrite(tasks, NOW) is None
    assert leaves_alone(RULE, tasks[0], NOW)
    assert RULE.rewrite([*tasks, tasks[0]], NOW) is not None


def test_the_verdict_names_the_other_stages() -> None:
    stage = stage_of(TOP)
    assert RULE.verdict(stage, NOW).reason == "no other stage has this plan"
    others = {stage.key: ["stage 1 of fragment 2 on edge"]}
    verdict = RULE.verdict(stage, Conditions(2, equal_stages=others))
    assert verdict.applies
    assert verdict.reason.startswith("stage 1 of fragment 2 on edge has this plan too")


def test_time_is_divided_by_rows_and_a_fixed_part() -> None:
    assert divided(1.0, [FIXED_ROWS, 0]) == pytest.approx([2 / 3, 1 / 3])


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
