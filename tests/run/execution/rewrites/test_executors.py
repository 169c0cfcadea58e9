"""Executors: a large batch goes to them, where there are any. What they do with it is tested beside their package."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from meander.run.execution.executors.runner import ExecutorsRunner
from meander.run.execution.rewrites.executors import Executors
from meander.run.execution.rewrites.rewrite import Conditions, ExecutionPlace, PlanRun, walk
from meander.run.execution.runner import Ran
from tests.run.execution.tasks import ALL, CHOSEN, FAST, SUMS, Alone, content, leaves_alone, stage_of, task_of

RULE, NOW = Executors(), Conditions(cores=2, executor_rows=100)


@pytest.mark.parametrize("text", [FAST, SUMS[0], CHOSEN])
def test_executors_give_what_the_driver_gives(spark: SparkSession, text: str) -> None:
    """Without the rest of the table all columns go to them."""
    executors, task = ExecutorsRunner(spark, least_rows=100), task_of(text, 150)

    def execute(runs: list[PlanRun]) -> list[Ran]:
        assert {run.place for run in runs} == {ExecutionPlace.EXECUTORS}
        return [Ran(executors.run(run.planned.make, run.tables), 0.0) for run in runs]

    (ran,) = walk([RULE], [PlanRun(*task)], NOW, execute)  # type: ignore[arg-type]
    assert content(task.stage, ran.result) == content(task.stage, Alone(spark).without(task))
    assert executors.batches == 1
    executors.close()


def test_few_rows_a_decided_run_and_tuples_that_only_pass_stay_in_the_driver() -> None:
    run = PlanRun(*task_of(FAST, 100))
    assert not leaves_alone(RULE, run, NOW)
    assert leaves_alone(RULE, PlanRun(*task_of(FAST, 99)), NOW)
    assert leaves_alone(RULE, run._replace(place=ExecutionPlace.DRIVER), NOW)
    assert leaves_alone(RULE, run, replace(NOW, executor_rows=None))
    assert leaves_alone(RULE, PlanRun(*task_of(ALL, 100)), NOW)


def test_the_verdict_says_from_how_many_rows_on() -> None:
    assert RULE.verdict(stage_of(FAST), NOW).sizes == "from 100 rows"
    assert RULE.verdict(stage_of(FAST), replace(NOW, executor_rows=None)).reason == "Spark's master has no executors"
    assert RULE.verdict(stage_of(ALL), NOW).reason == "no plan runs"
