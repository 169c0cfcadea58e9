"""Partial and final aggregation: partitions of any rows meet with the state, and give what the whole batch gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.prepared import UNUSED_S, PreparedRunner
from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.partial_aggregation import PartialAggregation, are_plain
from meander.run.execution.rewrites.rewrite import Conditions, ExecutionPlace, PlanRun
from meander.run.execution.runner import PlainRunner, Task
from meander.run.frames import AFTER, NEWEST, TS, WM
from tests.run.execution.tasks import (
    CHOSEN,
    FAST,
    SESSION,
    SUMS,
    Alone,
    content,
    leaves_alone,
    stage_of,
    task_of,
    with_column,
)

RULE, NOW = PartialAggregation(), Conditions(cores=3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 20)


def batch(spark: SparkSession, text: str, rows_are: str) -> Task:
    """Ninety rows, and the state that half of them would have left behind."""
    task = task_of(text, 90)
    stage, (rows, nothing) = task
    if rows_are != "newer":
        rows = with_column(rows, NEWEST, rows.column(TS).to_numpy())
    if rows_are == "late":
        rows = with_column(rows, WM, np.where(np.arange(90) % 7, 0, 600))
    assert are_plain(stage, [rows, nothing]) == (rows_are == "plain")
    earlier = stage.split(PlainRunner(spark).run(stage, [rows.slice(40), nothing])).states[0]
    after = pa.array(np.full(len(earlier), 500))
    state = earlier.drop_columns(["_bucket"]).add_column(1, AFTER, after).cast(nothing.schema)
    assert len(state) > 0
    return Task(stage, [rows, state])


@pytest.mark.parametrize("text", SUMS)
@pytest.mark.parametrize("rows_are", ["plain", "late", "newer"])
def test_partial_aggregates_of_partitions_meet_with_the_state(spark: SparkSession, text: str, rows_are: str) -> None:
    """Where there is a key and rows are not plain, partitioning by it is left to the next rule."""
    alone, task = Alone(spark), batch(spark, text, rows_are)
    (ran,) = alone.through(RULE, [PlanRun(*task)], NOW)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    assert all(len(t) > 0 for t in (task.stage.split(ran.result).output, *task.stage.split(ran.result).states))
    if text == SUMS[0] and rows_are != "plain":
        assert [len(runs) for runs in alone.rounds] == [1]
        return
    partial, (final,) = alone.rounds
    assert len(partial) == 3
    assert {run.plain_rows for run in partial} == {rows_are == "plain"}
    assert {run.place for run in (*partial, final)} == {ExecutionPlace.DRIVER}
    assert sum(run.rows for run in partial) == 90
    assert len(final.tables[0]) == 0


@pytest.mark.parametrize(("rows_are", "own_plan"), [("plain", True), ("late", False)])
def test_partial_aggregation_of_plain_rows_has_a_prepared_plan_of_its_own(
    spark: SparkSession, rows_are: str, own_plan: bool
) -> None:
    """Here the rest of the table takes part."""
    now = [0.0]
    runner, task = PreparedRunner(spark, cores=3, clock=lambda: now[0]), batch(spark, SUMS[1], rows_are)
    assert content(task.stage, runner.run(*task)) == content(task.stage, PlainRunner(spark).run(*task))
    assert runner.failures == 0
    assert any(key.endswith("plain rows") for key in runner._idle) == own_plan
    now[0] = UNUSED_S
    assert runner.evict(()) == {task.stage.key}
    assert not runner._idle
    runner.close()


@pytest.mark.parametrize(
    ("now", "place", "rows"),
    [
        (NOW, None, 39),
        (replace(NOW, cores=1), None, 90),
        (NOW, ExecutionPlace.DRIVER, 90),
        (NOW, ExecutionPlace.EXECUTORS, 90),
        (replace(NOW, is_refused=lambda stage: True), None, 90),
    ],
)
def test_small_batches_partitions_and_unprepared_plans_stay_as_they_are(
    now: Conditions, place: ExecutionPlace | None, rows: int
) -> None:
    assert leaves_alone(RULE, PlanRun(*task_of(SUMS[1], rows), place), now)
    assert not leaves_alone(RULE, PlanRun(*task_of(SUMS[1], 90)), NOW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CHOSEN, "the window join keeps rows"),
        (SESSION, "the windows have no fixed length"),
        (FAST, "there is no window aggregate"),
    ],
)
def test_what_keeps_rows_has_no_partial_aggregates(text: str, reason: str) -> None:
    verdict = RULE.verdict(stage_of(text), NOW)
    assert (verdict.applies, verdict.reason) == (False, reason)
    assert leaves_alone(RULE, PlanRun(*task_of(text, 90)), NOW)
