"""Operator at a time: a stage without a plan runs by its operators' plans, and gives what it gives with its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.rewrites.operator_at_a_time import OFTEN, OperatorAtATime, operator_stages
from meander.run.execution.rewrites.rewrite import Conditions
from meander.run.execution.runner import PlainRunner
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, FRAGMENT
from tests.run.execution.tasks import (
    CHOSEN,
    FAST,
    SUMS,
    Alone,
    content,
    given,
    leaves_alone,
    ready,
    stage_of,
    stages_of,
    task_of,
)

RULE = OperatorAtATime()
UNITED = "SELECT road, speed AS v FROM cars WHERE id < 2 UNION ALL SELECT road, mm AS v FROM rain INTO one"


@pytest.mark.parametrize("text", [FAST, CHOSEN, UNITED, *SUMS])
def test_operators_one_after_the_other_give_what_the_stage_gives(spark: SparkSession, text: str) -> None:
    alone, task, ran_by_operator = Alone(spark), task_of(text, 60), list[Stage]()
    operators = operator_stages(task.stage)
    now = Conditions(2, is_ready=ready(*operators), ran_by_operator=ran_by_operator.append)
    (ran,) = alone.through(RULE, [task], now)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    assert [[run.stage.key for run in each] for each in alone.rounds] == [[stage.key] for stage in operators]
    assert ran.seconds == len(operators)
    assert ran_by_operator == [task.stage]
    assert RULE.verdict(task.stage, now).applies


def test_several_stages_go_on_together_and_one_with_a_plan_runs_as_a_whole(spark: SparkSession) -> None:
    alone, tasks = Alone(spark), [task_of(FAST, 30), task_of(SUMS[0], 40), task_of(FAST, 20)]
    planned = task_of("SELECT id + 1 AS a FROM cars WHERE speed > 3 INTO one", 10)
    operators = [o for task in tasks for o in operator_stages(task.stage)]
    now = Conditions(2, is_ready=ready(planned.stage, *operators))
    ran = alone.through(RULE, [*tasks, planned], now)
    assert [len(tasks) for tasks in alone.rounds] == [4, 3, 1]
    for task, each in zip([*tasks, planned], ran, strict=True):
        assert content(task.stage, each.result) == content(task.stage, alone.without(task))


def test_a_stage_with_a_plan_or_an_operator_without_one_stays_as_it_is() -> None:
    task = task_of(FAST, 5)
    operators = operator_stages(task.stage)
    now = Conditions(2, is_ready=ready(*operators))
    assert not leaves_alone(RULE, task, now)
    assert leaves_alone(RULE, task, replace(now, is_ready=ready(task.stage, *operators)))
    assert leaves_alone(RULE, task, replace(now, is_ready=ready(operators[0])))


def test_a_single_operator_has_no_other_plan_than_its_stage() -> None:
    task = task_of("SELECT * FROM cars WHERE speed > 10 INTO one", 5)
    now = Conditions(2, is_ready=lambda stage: False)
    assert leaves_alone(RULE, task, now)
    assert RULE.verdict(task.stage, now).reason == "the stage is a single operator"


def test_a_stage_of_known_operators_runs_at_once_and_gets_its_own_plan_later(spark: SparkSession) -> None:
    """Operators that were apart come together: nobody waits for a new plan."""
    known = stages_of(
        "SELECT id, road, speed FROM cars WHERE speed > 10 INTO one",
        "SELECT road, max(speed) AS top FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one",
    )
    stage = stage_of(
        "SELECT road, max(speed) AS top FROM cars WHERE speed > 10 GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one"
    )
    runner = TieredRunner(PreparedRunner(spark))
    assert not runner.is_warm([stage])
    runner.warm_up(known)
    runner.settle()
    assert runner.is_warm([stage])
    assert not runner.prepared.is_warm([stage])
    rows = given("cars", 90)
    after = np.arange(5)[rows.column(FRAGMENT).to_numpy()] * 10**11
    table = rows.add_column(4, AFTER, pa.array(after))
    tables = [table, *(spec.frame_schema.empty_table() for spec in stage.states)]
    wanted = stage.split(PlainRunner(spark).run(stage, tables))
    for _ in range(OFTEN):
        found = stage.split(runner.run(stage, tables))
        for mine, theirs in zip((found.output, *found.states), (wanted.output, *wanted.states), strict=True):
            assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, theirs.to_pylist()))
            assert mine.schema.types == theirs.schema.types
        assert len(found.output) > 0
        assert len(found.states[0]) > 0
    runner.settle()
    assert runner.prepared.is_warm([stage])
    runner.close()
