"""Partitioning: partitions of a large batch give together what the batch gives, and equal keys are in one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.partitioning import Partitioning, partitioned, partitions_of
from meander.run.execution.rewrites.rewrite import Conditions, ExecutionPlace, PlanRun
from meander.run.execution.runner import Task
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER
from tests.run.execution.tasks import (
    ALL,
    CHOSEN,
    FAST,
    ROW_BY_ROW,
    SESSION,
    SUMS,
    Alone,
    content,
    given,
    leaves_alone,
    stage_of,
    task_of,
)

RULE, NOW = Partitioning(), Conditions(cores=3)
BY_SPEED = "SELECT speed, count(*) AS n FROM cars GROUP BY speed WINDOW SESSION(ts, 1 s) INTO one"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 20)


def with_state(alone: Alone, task: Task) -> Task:
    """The task with the state that some of its rows leave behind, where it is read as it was written."""
    edges = len(task.stage.reads)
    made = task.stage.split(alone.without(task)).states
    wanted = [spec.frame_schema for spec in task.stage.states]
    states = [
        state.append_column(AFTER, pa.array(np.full(len(state), 500))).select(schema.names).cast(schema)
        for state, schema in zip(made, wanted, strict=True)
    ]
    return Task(task.stage, [*task.tables[:edges], *states])


@pytest.mark.parametrize("text", [FAST, ROW_BY_ROW[1], CHOSEN, SESSION, SUMS[0]])
def test_partitions_give_together_what_the_batch_gives(spark: SparkSession, text: str) -> None:
    alone, task = Alone(spark), task_of(text, 90)
    if task.stage.stateful is not None:
        task = with_state(alone, task)
        assert any(map(len, task.tables[len(task.stage.reads) :]))
    (ran,) = alone.through(RULE, [PlanRun(*task)], NOW)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    assert [len(runs) for runs in alone.rounds] == [3]
    assert sum(run.rows for run in alone.rounds[0]) == task.rows
    assert {run.place for run in alone.rounds[0]} == {ExecutionPlace.DRIVER}


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT road, count(*) AS n FROM cars WHERE id < 3 GROUP BY road WINDOW SESSION(ts, 1 s) INTO one", 1),
        ("SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one", 2),
        ("SELECT count(*) AS n FROM cars WINDOW SESSION(ts, 1 s) INTO one", 0),
        (BY_SPEED, 0),
        ("SELECT upper(road) AS r, count(*) AS n FROM cars GROUP BY upper(road) WINDOW SESSION(ts, 1 s) INTO one", 0),
    ],
)
def test_equal_keys_are_in_one_partition(text: str, columns: int) -> None:
    """Rows and state are partitioned by the same key; where there is none, the batch stays whole."""
    stage = stage_of(text)
    inputs = [given(stream, 300) for stream in ("cars", "rain")[: len(stage.reads)]]
    inputs = [t.append_column(AFTER, pa.array([0] * 300)) if stage.watermark else t for t in inputs]
    tables = [*inputs, *(spec.frame_schema.empty_table() for spec in stage.states)]
    found = partitioned(stage, tables, 3)
    assert RULE.verdict(stage, NOW).applies == bool(columns)
    if not columns:
        assert found is None
        assert leaves_alone(RULE, PlanRun(stage, tables), NOW)
        return
    assert found is not None
    assert len(found) == 3
    assert sum(len(t) for partition in found for t in partition) == 300 * len(inputs)
    roads = [_roads(partition) for partition in found]
    assert sum(map(len, roads)) == len(set().union(*roads)) == 2


def _roads(tables: list[pa.Table]) -> set[str]:
    texts = [t.column(n).to_pylist() for t in tables for n in ("c1", "c2") if n in t.column_names]
    return {value for values in texts for value in values if isinstance(value, str)}


def test_how_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each core if it is worth it, and none too large for memory."""
    monkeypatch.undo()
    sizes = (99_999, 100_000, 150_000, 250_000, 500_000, 750_001, 10_000_000)
    assert [partitions_of(rows, cores=3) for rows in sizes] == [1, 2, 3, 3, 3, 4, 40]
    assert [partitions_of(rows, cores=1) for rows in sizes] == [1, 1, 1, 1, 2, 4, 40]
    assert [RULE.verdict(stage_of(FAST), Conditions(cores)).from_rows for cores in (1, 2, 8)] == [
        250_001,
        *[100_000] * 2,
    ]


@pytest.mark.parametrize(
    ("now", "place", "text", "rows"),
    [
        (NOW, None, FAST, 39),  # few rows
        (replace(NOW, cores=1), None, FAST, 90),  # one core
        (NOW, ExecutionPlace.DRIVER, FAST, 90),  # a partition already
        (NOW, ExecutionPlace.EXECUTORS, FAST, 90),  # which partition themselves
        (replace(NOW, is_refused=lambda stage: True), None, FAST, 90),  # Spark does
        (NOW, None, ALL, 90),  # no plan runs
        (NOW, None, BY_SPEED, 90),  # 0.0 and -0.0 are one key in Spark, two in Arrow
    ],
)
def test_what_stays_whole(now: Conditions, place: ExecutionPlace | None, text: str, rows: int) -> None:
    assert leaves_alone(RULE, PlanRun(*task_of(text, rows), place), now)


@pytest.mark.parametrize(
    ("stage", "now", "reason"),
    [
        (
            stage_of(FAST),
            replace(NOW, is_refused=lambda s: True),
            "Spark partitions batches whose plan is not prepared",
        ),
        (stage_of(ALL), NOW, "no plan runs"),
        (
            stage_of(BY_SPEED),
            NOW,
            "the window aggregate has no key that every row has as a column of a comparable type",
        ),
    ],
)
def test_why_not(stage: Stage, now: Conditions, reason: str) -> None:
    verdict = RULE.verdict(stage, now)
    assert (verdict.applies, verdict.reason) == (False, reason)
