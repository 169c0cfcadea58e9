"""Late materialisation: Spark sees the columns that it reads, and the result has all of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.rewrites.late_materialisation import LateColumns, LateMaterialisation, needs_no_plan
from meander.run.execution.rewrites.rewrite import Conditions, PlanRun
from meander.run.frames import FRAGMENT, HIDDEN, TS
from tests.run.execution.tasks import (
    ALL,
    BOTH,
    CALLED,
    FAST,
    ROW_BY_ROW,
    TOP,
    Alone,
    content,
    given,
    leaves_alone,
    stage_of,
    task_of,
)

RULE, NOW = LateMaterialisation(), Conditions(cores=2)


def late_of(text: str) -> LateColumns:
    late = LateColumns.of(stage_of(text))
    assert late is not None
    return late


@pytest.mark.parametrize("text", [*ROW_BY_ROW, ALL, BOTH])
@pytest.mark.parametrize("rows", [0, 40])
def test_results_are_those_of_whole_rows(spark: SparkSession, text: str, rows: int) -> None:
    alone, task = Alone(spark), task_of(text, rows)
    (ran,) = alone.through(RULE, [PlanRun(*task)], NOW)
    assert content(task.stage, ran.result) == content(task.stage, alone.without(task))
    assert ran.result.schema.field(FRAGMENT).type == pa.int32()
    for (run,) in alone.rounds:
        assert sum(t.num_columns for t in run.tables) < sum(t.num_columns for t in task.tables)


@pytest.mark.parametrize(
    ("text", "needed", "handed_on"),
    [
        (ROW_BY_ROW[0], [{"c3"}], {"c0": ("c1",), "c2": ("c2",)}),
        (ROW_BY_ROW[1], [{"c1"}, set()], {"c0": ("c2", "c1"), "c1": ("c3", "c2")}),
        (ROW_BY_ROW[2], [{"c1"}], {"c0": ("c0",), "c2": ("c2",), "c3": ("c3",)}),
        ("SELECT road, id FROM cars INTO one", [set()], {"c0": ("c2",), "c1": ("c1",)}),
        (
            "SELECT speed AS a, id AS b FROM cars UNION ALL SELECT speed, id + 1 FROM cars INTO one",
            [{"c1"}],
            {"c0": ("c3",)},
        ),
        ("SELECT id AS a FROM cars UNION ALL SELECT id * 2 FROM cars WHERE speed > 1 INTO one", [{"c1", "c3"}], {}),
    ],
)
def test_spark_reads_what_is_computed_from(
    text: str, needed: list[set[str]], handed_on: dict[str, tuple[str, ...]]
) -> None:
    late = late_of(text)
    assert [set(n) for n in late.needed] == needed
    assert dict(late.handed_on) == handed_on


def test_numbers_stand_for_rows_of_all_tables() -> None:
    late = late_of(ROW_BY_ROW[1])
    tables = [given("cars", 3), given("rain", 2)]
    first, second = late.numbered(tables)
    assert first.column(FRAGMENT).to_pylist() == [0, 1, 2]
    assert second.column(FRAGMENT).to_pylist() == [3, 4]
    assert second.column_names == [FRAGMENT]
    back = late.materialised(tables, pa.table({FRAGMENT: pa.array([4, 0], pa.int32())}))
    assert back.column(TS).to_pylist() == [tables[1].column(TS)[1].as_py(), tables[0].column(TS)[0].as_py()]
    assert back.column("c1").to_pylist() == [tables[1].column("c2")[1].as_py(), tables[0].column("c3")[0].as_py()]
    assert back.column_names == [FRAGMENT, *HIDDEN, "c0", "c1"]
    assert back.schema.field(FRAGMENT).type == pa.int32()


@pytest.mark.parametrize(("text", "passes"), [(ALL, True), (BOTH, False), (FAST, False), (TOP, False)])
def test_tuples_that_only_pass_need_no_plan(text: str, passes: bool) -> None:
    assert needs_no_plan(stage_of(text), NOW) == passes
    verdict = RULE.verdict(stage_of(text), NOW)
    assert verdict.reason.endswith("no plan runs") == passes


@pytest.mark.parametrize(("text", "operator"), [(TOP, "window aggregate"), (CALLED, "user function")])
def test_operators_that_make_rows_of_their_own_get_whole_rows(text: str, operator: str) -> None:
    stage = stage_of(text)
    verdict = RULE.verdict(stage, NOW)
    assert (verdict.applies, verdict.reason) == (False, f"the {operator} makes other rows")
    assert leaves_alone(RULE, PlanRun(stage, []), NOW)
