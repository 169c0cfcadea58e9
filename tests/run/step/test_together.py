"""Stages of a step that do not wait for each other run together, and give what each gives alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from meander.run.execution import prepared, prepared_plan
from meander.run.execution.driver_plan import AS_JOBS, DriverPlans
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.prepared_plan import PreparedPlan
from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.partial_aggregation import are_plain
from meander.run.execution.rewrites.prune_columns import PrunedColumns
from meander.run.execution.rewrites.trailing_projection import WithoutProjection
from meander.run.execution.runner import PlainRunner, Task
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.template import Stage, bind
from meander.run.frames import AFTER, FRAGMENT, NEWEST, TAG, TS, WM
from tests.run.execution.test_prepared import given
from tests.run.harness import queries

FAST = "SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one"
TOP = "SELECT road, max(speed) AS top FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one"
JOIN = "SELECT * FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
CHOSEN = "SELECT b.mm, a.id AS car FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
COMPUTED = "SELECT b.mm + 1 AS mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
ALL = "SELECT speed, road FROM cars INTO one"
BOTH = "SELECT road, id FROM cars UNION ALL SELECT road, id FROM cars INTO one"


def stage_of(text: str) -> Stage:
    (query,) = queries(text)
    stages = bind(query.plan.operators, query.plan.inputs).template.stages
    return stages[0]


def task_of(text: str, rows: int) -> Task:
    """The stage over random rows of one second; the watermark reaches its half."""
    stage, rng = stage_of(text), np.random.default_rng(rows)
    inputs = []
    for i, stream in enumerate(("cars", "rain")[: len(stage.reads)]):
        table = given(stream, rows + i)
        for name, values in ((TS, rng.integers(0, 1000, rows + i)), (WM, np.zeros(rows + i, np.int64))):
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
        if stage.watermark:
            table = table.add_column(4, AFTER, pa.array(np.full(rows + i, 500)))
        inputs.append(table)
    return Task(stage, [*inputs, *(spec.frame_schema.empty_table() for spec in stage.states)])


def content(stage: Stage, result: pa.Table) -> list[list[str]]:
    split = stage.split(result)
    return [sorted(map(repr, table.to_pylist())) for table in (split.output, *split.states)]


SUMS = (
    "SELECT road, count(*) AS n, avg(speed) AS mean FROM cars WHERE id < 4 GROUP BY road "
    "WINDOW TUMBLING(ts, 400 ms) INTO one",
    "SELECT sum(id) AS total, max(speed) AS top FROM cars WINDOW SLIDING(ts, 400 ms, 200 ms) INTO one",
    "SELECT upper(road) AS r, count(*) AS n FROM cars GROUP BY upper(road) WINDOW TUMBLING(ts, 400 ms) INTO one",
)


def with_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


@pytest.mark.parametrize("text", SUMS)
@pytest.mark.parametrize("rows_are", ["plain", "late", "newer"])
def test_a_large_aggregate_in_two_rounds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, rows_are: str
) -> None:
    """Partial aggregates of parts, cut anywhere, meet with the state: the result is that of the batch as a whole."""
    monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 20)
    runner, plain = PreparedRunner(spark, cores=3), PlainRunner(spark)
    (rows, nothing), stage = task_of(text, 90).tables, stage_of(text)
    if rows_are != "newer":
        rows = with_column(rows, NEWEST, rows.column(TS).to_numpy())
    if rows_are == "late":
        rows = with_column(rows, WM, np.where(np.arange(90) % 7, 0, 600))
    assert are_plain(stage, [rows, nothing]) == (rows_are == "plain")
    assert partitioning.has_plain_key(stage, [rows, nothing]) == (text == SUMS[0])
    earlier = stage.split(plain.run(stage, [rows.slice(40), nothing])).states[0]
    after = pa.array(np.full(len(earlier), 500))
    state = earlier.drop_columns(["_bucket"]).add_column(1, AFTER, after).cast(nothing.schema)
    assert len(state) > 0
    found, wanted = runner.run(stage, [rows, state]), plain.run(stage, [rows, state])
    assert content(stage, found) == content(stage, wanted)
    assert all(len(table) > 0 for table in (stage.split(found).output, *stage.split(found).states))
    assert runner.failures == 0
    assert any(key.endswith("plain rows") for key in runner._idle) == (rows_are == "plain")
    runner.close()


@pytest.mark.parametrize(("text", "read"), [(SUMS[0], {"c1", "c2", "c3"}), (SUMS[1], {"c1", "c3"}), (SUMS[2], {"c2"})])
def test_aggregates_get_the_columns_that_they_read(text: str, read: set[str]) -> None:
    pruned = PrunedColumns.of(stage_of(text))
    assert pruned is not None
    assert [set(names) for names in pruned.needed] == [read]
    (sent, _) = pruned.pruned(task_of(text, 5).tables)
    assert {name for name in sent.column_names if name.startswith("c")} == read
    assert PrunedColumns.of(stage_of(JOIN)) is None


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
        assert runs.count == 3 * times  # twins are one, and tuples that only pass take none
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
    def fails(plans: DriverPlans, spark: SparkSession) -> None:
        raise ValueError("not enough values to unpack (expected 1, got 0)")

    monkeypatch.setattr(DriverPlans, "__init__", fails)
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
    assert runner._plans is not None
    assert runner._plans.memory_used() == 0
    runner.close()


@pytest.mark.parametrize(
    ("text", "chosen"), [(CHOSEN, ("c6", "c1")), (TOP, ("c2", "c3")), (COMPUTED, None), (FAST, None)]
)
def test_a_tail_only_chooses_columns(text: str, chosen: tuple[str, ...] | None) -> None:
    found = WithoutProjection.of(stage_of(text))
    assert (found and found.chosen) == chosen
    if found:
        assert len(found.stage.nodes) == len(stage_of(text).nodes) - 1


def test_a_join_runs_as_one_with_and_without_its_projection(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, plain = TieredRunner(PreparedRunner(spark)), PlainRunner(spark)
    with_tail, without = task_of(CHOSEN, 40), task_of(JOIN, 30)
    without = Task(WithoutProjection.of(with_tail.stage).stage, without.tables)  # type: ignore[union-attr]
    runner.warm_up([with_tail.stage, without.stage])
    runner.settle()
    runs = Runs(monkeypatch)
    ran = runner.run_all([with_tail, without])
    assert runs.count == 1
    for task, each in zip((with_tail, without), ran, strict=True):
        assert content(task.stage, each.result) == content(task.stage, plain.run(*task))
        assert len(each.result.filter(pa.compute.equal(each.result.column(TAG), 0))) > 0
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
