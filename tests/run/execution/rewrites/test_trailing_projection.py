"""Trailing projection: the driver chooses the columns, and the rest of the stage has one plan wherever it runs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.prepared_plan import PreparedPlan
from meander.run.execution.rewrites import trailing_projection
from meander.run.execution.rewrites.rewrite import Conditions
from meander.run.execution.rewrites.trailing_projection import TrailingProjection, WithoutProjection
from meander.run.execution.runner import PlainRunner, Task
from meander.run.execution.tiered import TieredRunner
from meander.run.frames import TAG
from tests.run.execution.tasks import (
    CHOSEN,
    COMPUTED,
    FAST,
    JOIN,
    SUMS,
    TOP,
    Alone,
    content,
    leaves_alone,
    ready,
    stage_of,
    task_of,
)

RULE, NOW = TrailingProjection(), Conditions(cores=2)


@pytest.mark.parametrize("text", [CHOSEN, SUMS[1]])
def test_the_driver_chooses_what_the_projection_would(spark: SparkSession, text: str) -> None:
    alone, task = Alone(spark), task_of(text, 40)
    (ran,) = alone.through(RULE, [task], NOW)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    assert len(ran.result.filter(pc.equal(ran.result.column(TAG), 0))) > 0
    ((shorter,),) = alone.rounds
    assert len(shorter.stage.nodes) == len(task.stage.nodes) - 1


@pytest.mark.parametrize(
    ("text", "chosen", "reason"),
    [
        (CHOSEN, ("c6", "c1"), "the driver chooses c0, c1"),
        (TOP, ("c2", "c3"), "the driver chooses c0, c1"),
        (COMPUTED, None, "what follows the window join drops rows or computes columns"),
        (FAST, None, "there is no operator with state"),
    ],
)
def test_only_a_choice_of_columns_is_left_to_the_driver(text: str, chosen: tuple[str, ...] | None, reason: str) -> None:
    stage = stage_of(text)
    found = WithoutProjection.of(stage)
    assert (found and found.chosen) == chosen
    verdict = RULE.verdict(stage, NOW)
    assert (verdict.applies, verdict.reason) == (chosen is not None, reason)
    assert leaves_alone(RULE, task_of(text, 5), NOW) == (chosen is None)


def test_a_stage_that_ends_with_its_operator_with_state_stays_as_it_is() -> None:
    found = WithoutProjection.of(stage_of(CHOSEN))
    assert found is not None
    assert RULE.verdict(found.stage, NOW).reason == "nothing follows the window join"


def test_large_batches_and_those_without_the_shorter_plan_keep_the_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(CHOSEN, 40)
    assert leaves_alone(RULE, task, replace(NOW, is_ready=ready(task.stage)))
    monkeypatch.setattr(trailing_projection, "FEW_ROWS", task.rows)
    assert not leaves_alone(RULE, task, NOW)
    monkeypatch.setattr(trailing_projection, "FEW_ROWS", task.rows - 1)
    assert leaves_alone(RULE, task, NOW)


def test_a_join_runs_as_one_with_and_without_its_projection(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the projections equal plans are merged."""
    runner, plain = TieredRunner(PreparedRunner(spark)), PlainRunner(spark)
    projected, whole = task_of(CHOSEN, 40), task_of(JOIN, 30)
    whole = Task(WithoutProjection.of(projected.stage).stage, whole.tables)  # type: ignore[union-attr]
    runner.warm_up([projected.stage, whole.stage])
    runner.settle()
    runs: list[PreparedPlan] = []
    really = PreparedPlan.run

    def run(plan: PreparedPlan, tables: list[pa.Table]) -> pa.Table:
        runs.append(plan)
        return really(plan, tables)

    monkeypatch.setattr(PreparedPlan, "run", run)
    ran = runner.run_all([projected, whole])
    assert len(runs) == 1
    for task, each in zip((projected, whole), ran, strict=True):
        assert content(task.stage, each.result) == content(task.stage, plain.run(*task))
        assert len(each.result.filter(pc.equal(each.result.column(TAG), 0))) > 0
    runner.close()
