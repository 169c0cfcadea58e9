"""Prepared plans give what plans built anew give, also when a large batch is cut and its hidden columns stay behind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run import prepared
from meander.run.frames import FRAGMENT, HIDDEN, TS, frame_schema
from meander.run.prepared import PreparedRunner, is_lean, numbered, with_hidden_of
from meander.run.runner import PlainRunner
from meander.run.template import bind
from tests.run.harness import STREAMS, queries, rows_of

TEXTS = (
    "SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one",
    "SELECT road, speed AS v FROM cars WHERE id < 2 UNION ALL SELECT road, mm AS v FROM rain INTO one",
    "SELECT * FROM cars UNION ALL SELECT ts, id + 1 AS id, road, speed FROM cars WHERE id < 2 INTO one",
)


def given(stream: str, rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    table = rows_of(stream, rng, rng.integers(0, 1000, rows))
    hidden = {name: pa.array(rng.integers(0, 10**12, rows)) for name in HIDDEN}
    columns = {FRAGMENT: pa.array(rng.integers(0, 5, rows), pa.int32()), **hidden}
    body = {f"c{i}": table.column(i) for i in range(table.num_columns)}
    return pa.table({**columns, **body}, schema=frame_schema(STREAMS[stream].schema))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rows", [0, 7, 90])
def test_prepared_equals_plain(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, rows: int) -> None:
    monkeypatch.setattr(prepared, "LEAST_PART_ROWS", 20)
    (query,) = queries(text)
    bound = bind(query.plan.operators, query.plan.inputs)
    (stage,) = bound.template.stages
    assert is_lean(stage)
    streams = [query.plan.operators[o].stream for o in bound.ports]  # type: ignore[union-attr]
    tables = [given(stream, rows + i) for i, stream in enumerate(streams)]
    runner = PreparedRunner(spark, cores=3)
    found = stage.split(runner.run(stage, tables)).output
    wanted = stage.split(PlainRunner(spark).run(stage, tables)).output
    assert runner.refused == {}
    runner.close()
    order = [(name, "ascending") for name in (TS, FRAGMENT)]
    order += [(name, "ascending") for name in found.column_names if name.startswith("c")]
    assert found.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist()
    assert len(found) == len(wanted)


def test_numbers_stand_for_rows_of_all_tables() -> None:
    tables = [given("cars", 3), given("rain", 2)]
    first, second = numbered(tables)
    assert first.column(FRAGMENT).to_pylist() == [0, 1, 2]
    assert second.column(FRAGMENT).to_pylist() == [3, 4]
    result = pa.table({FRAGMENT: pa.array([4, 0], pa.int32()), "c0": ["x", "y"]})
    back = with_hidden_of(tables, result)
    assert back.column(TS).to_pylist() == [tables[1].column(TS)[1].as_py(), tables[0].column(TS)[0].as_py()]
    assert back.column_names == [FRAGMENT, *HIDDEN, "c0"]
    assert back.schema.field(FRAGMENT).type == pa.int32()
