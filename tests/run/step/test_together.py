"""Stages of a step that do not wait for each other run together, and give what each gives alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from meander.run.execution import prepared, prepared_plan
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.prepared_plan import PreparedPlan
from meander.run.execution.runner import PlainRunner
from meander.run.execution.spark_internals import AS_JOBS, SparkInternals
from meander.run.frames import FRAGMENT
from tests.run.execution.tasks import ALL, BOTH, FAST, JOIN, TOP, content, task_of


class Runs:
    """Counts runs of prepared plans."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        really = PreparedPlan.run

        def run(plan: PreparedPlan, tables: Sequence[pa.Table]) -> pa.Table:
            self.count += 1
            return really(plan, tables)

        monkeypatch.setattr(PreparedPlan, "run", run)


def test_each_plan_runs_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, plain = PreparedRunner(spark), PlainRunner(spark)
    tasks = [task_of(FAST, 40), task_of(TOP, 30), task_of(JOIN, 50), task_of(FAST, 7), task_of(ALL, 12)]
    runner.warm_up([task.stage for task in tasks])
    runs = Runs(monkeypatch)
    for times in (1, 2):
        ran = runner.run_all(tasks)
        for task, each in zip(tasks, ran, strict=True):
            assert content(task.stage, each.result) == content(task.stage, plain.run(*task))
            assert each.seconds >= 0
        assert len(ran[0].result) > 0
        assert len(ran[2].result) > 0
        assert runs.count == 3 * times  # equal plans are one, and tuples that only pass take none
    assert runner.failures == 0
    runner.close()


def test_a_plan_that_fails_takes_nothing_from_the_others(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, plain = PreparedRunner(spark), PlainRunner(spark)
    tasks = [task_of(FAST, 40), task_of(TOP, 30)]
    runner.warm_up([task.stage for task in tasks])
    really = PreparedPlan.run

    def fails(plan: PreparedPlan, tables: Sequence[pa.Table]) -> pa.Table:
        if len(tables) == 1:  # the filter's; the aggregate has state as well
            raise Py4JError("it divides by zero")
        return really(plan, tables)

    monkeypatch.setattr(PreparedPlan, "run", fails)
    for _ in range(5):
        for task, each in zip(tasks, runner.run_all(tasks), strict=True):
            assert content(task.stage, each.result) == content(task.stage, plain.run(*task))
    assert set(runner.refused) == {tasks[0].stage.key}
    assert runner.failures == prepared.MOST_FAILURES
    runner.close()


@pytest.mark.parametrize("as_jobs", [False, True])
def test_plans_run_here_or_as_jobs(spark: SparkSession, as_jobs: bool) -> None:
    tracker, plain = spark.sparkContext.statusTracker(), PlainRunner(spark)
    spark.conf.set(AS_JOBS, str(as_jobs).lower())
    try:
        runner = PreparedRunner(spark)
        tasks = [task_of(FAST, 40), task_of(TOP, 30), task_of(JOIN, 50)]
        runner.warm_up([task.stage for task in tasks])
        spark.sparkContext.setJobGroup(f"as jobs: {as_jobs}", "")
        ran = runner.run_all(tasks)
    finally:
        spark.conf.unset(AS_JOBS)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    for task, each in zip(tasks, ran, strict=True):
        assert content(task.stage, each.result) == content(task.stage, plain.run(*task))
    assert len(tracker.getJobIdsForGroup(f"as jobs: {as_jobs}")) == (3 if as_jobs else 0)
    assert runner.failures == 0
    runner.close()


def test_without_the_parts_of_spark_that_it_needs_everything_goes_the_plain_way(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(plans: SparkInternals, spark: SparkSession) -> None:
        raise ValueError("not enough values to unpack (expected 1, got 0)")

    monkeypatch.setattr(SparkInternals, "__init__", fails)
    runner, task = PreparedRunner(spark), task_of(TOP, 30)
    assert content(task.stage, runner.run(*task)) == content(task.stage, PlainRunner(spark).run(*task))
    assert runner.failures == 1
    runner.close()


def test_runs_leave_no_rows_and_no_memory_behind(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier run read or failed over is not there any more, and Spark has its memory back."""
    runner, plain = PreparedRunner(spark), PlainRunner(spark)
    many, few = task_of(TOP, 2000), task_of(TOP, 3)
    for task in (many, few, many, few):
        assert content(task.stage, runner.run(*task)) == content(task.stage, plain.run(*task))
    with monkeypatch.context() as patch:  # columns are missing where the plan looks for them
        really = prepared_plan._write_stream
        patch.setattr(prepared_plan, "_write_stream", lambda path, table: really(path, table.select([FRAGMENT])))
        assert content(many.stage, runner.run(*many)) == content(many.stage, plain.run(*many))
    assert runner.failures == 1
    assert content(few.stage, runner.run(*few)) == content(few.stage, plain.run(*few))
    assert runner._internals is not None
    assert runner._internals.memory_used() == 0
    runner.close()


@pytest.mark.parametrize(("text", "passes"), [(ALL, True), (BOTH, False), (FAST, False), (TOP, False)])
def test_tuples_that_only_pass_take_no_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, passes: bool
) -> None:
    runner = PreparedRunner(spark)
    runs = Runs(monkeypatch)
    task = task_of(text, 20)
    assert runner.is_warm([task.stage]) == passes
    found = runner.run(*task)
    assert content(task.stage, found) == content(task.stage, PlainRunner(spark).run(*task))
    assert runs.count == (0 if passes else 1)
    assert found.column(FRAGMENT).type == pa.int32()
    runner.close()
