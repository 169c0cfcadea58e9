"""Prune columns: a window aggregate gets the columns that it reads, and gives what it gives with all of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from meander.run.execution.rewrites.prune_columns import PLAIN, PLAIN_ROWS, PruneColumns, PrunedColumns
from meander.run.execution.rewrites.rewrite import Conditions, PlanRun
from meander.run.frames import NEWEST, TS
from tests.run.execution.tasks import (
    FAST,
    JOIN,
    SESSION,
    SUMS,
    Alone,
    content,
    leaves_alone,
    stage_of,
    task_of,
    with_column,
)

RULE, NOW = PruneColumns(), Conditions(cores=2)
READ = [(SUMS[0], {"c1", "c2", "c3"}), (SUMS[1], {"c1", "c3"}), (SUMS[2], {"c2"})]


@pytest.mark.parametrize(("text", "read"), READ)
def test_an_aggregate_gives_the_same_over_the_columns_that_it_reads(
    spark: SparkSession, text: str, read: set[str]
) -> None:
    alone, task = Alone(spark), task_of(text, 60)
    (ran,) = alone.through(RULE, [PlanRun(*task)], NOW)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    (((run,)),) = alone.rounds
    assert {name for name in run.tables[0].column_names if name.startswith("c")} == read
    assert run.planned.key == task.stage.key


@pytest.mark.parametrize("text", SUMS)
def test_hidden_columns_of_plain_rows_do_not_go_to_spark(spark: SparkSession, text: str) -> None:
    alone, task = Alone(spark), task_of(text, 60)
    rows = with_column(task.tables[0], NEWEST, task.tables[0].column(TS).to_numpy())
    before_everything = with_column(rows, "_after", rows.column("_wm").to_numpy() - 2**62)
    plain = PlanRun(task.stage, [before_everything, *task.tables[1:]])
    (ran,) = alone.through(RULE, [plain._replace(plain_rows=True)], NOW)
    ((run,),) = alone.rounds
    assert not set(PLAIN) & set(run.tables[0].column_names)
    assert run.planned.key == task.stage.key + PLAIN_ROWS
    (whole,) = alone.execute([plain])
    assert content(task.stage, ran.result) == content(task.stage, whole.result)
    assert len(task.stage.split(ran.result).states[0]) > 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (JOIN, "the window join keeps rows"),
        (SESSION, "the windows have no fixed length"),
        (FAST, "there is no window aggregate"),
        (
            "SELECT ts, id, road, count(speed) AS n FROM cars GROUP BY ts, id, road WINDOW TUMBLING(ts, 1 s) INTO one",
            "all columns are read",
        ),
    ],
)
def test_what_keeps_whole_rows_or_reads_everything_gets_all_columns(text: str, reason: str) -> None:
    stage = stage_of(text)
    assert PrunedColumns.of(stage) is None
    verdict = RULE.verdict(stage, NOW)
    assert (verdict.applies, verdict.reason) == (False, reason)
    assert leaves_alone(RULE, PlanRun(stage, []), NOW)
