"""Templates: what makes two fragments the same, where stages end, what leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.operators import Filter, Map, Sink, Source, Union, WindowAggregate, WindowJoin
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.run.fragments.stage_nodes import StageEdge, rows_of
from meander.run.fragments.template import bind, output_table
from meander.run.frames import AFTER, BEGIN, BUCKET, END, HIDDEN, arrow_schema, event_times, frame, source_watermarks
from meander.run.operators.user_function import load
from tests.run.operators.cases import STREAMS, table_of
from tests.run.operators.driver import Driver
from tests.run.operators.test_operators import plan_of
from tests.run.reference import Row

RENAMED = {"c": Stream("c", Schema.of(at="bigint", K="int", k="double", m="bigint", t="string"), "at")}


def key_of(plan: QueryPlan) -> str:
    return bind(plan.operators, plan.inputs).template.key


def test_names_do_not_matter() -> None:
    one = plan_of("SELECT k, avg(v) AS m FROM a WHERE v > 1 WINDOW TUMBLING(1 s) GROUP BY k INTO out")
    (other,) = sql(
        "SELECT K, avg(k) AS x FROM c WHERE k > 1 WINDOW TUMBLING(1 s) GROUP BY K INTO elsewhere", RENAMED
    ).queries
    assert key_of(one) == key_of(other.plan)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, avg(v) AS m FROM a WHERE v > 2 WINDOW TUMBLING(1 s) GROUP BY k INTO out",
        "SELECT k, avg(v) AS m FROM a WHERE v > 1 WINDOW TUMBLING(2 s) GROUP BY k INTO out",
        "SELECT k, sum(v) AS m FROM a WHERE v > 1 WINDOW TUMBLING(1 s) GROUP BY k INTO out",
        "SELECT k, avg(w) AS m FROM b WHERE w > 1 WINDOW TUMBLING(1 s) GROUP BY k INTO out",
    ],
)
def test_everything_else_matters(text: str) -> None:
    one = plan_of("SELECT k, avg(v) AS m FROM a WHERE v > 1 WINDOW TUMBLING(1 s) GROUP BY k INTO out")
    assert key_of(one) != key_of(plan_of(text))


def test_a_chain_around_one_operator_with_memory_is_one_stage() -> None:
    plan = plan_of("SELECT k, avg(v) * 2 AS m FROM a WHERE v > 1 WINDOW TUMBLING(1 s) GROUP BY k HAVING m > 3 INTO out")
    template = bind(plan.operators, plan.inputs).template
    (stage,) = template.stages
    kinds = [type(n.operator) for n in stage.nodes]
    assert kinds == [Filter, WindowAggregate, Filter, Map]
    assert template.outputs == (StageEdge(stage=0),)
    assert stage.lag_ms == 0


def test_a_second_operator_with_memory_starts_a_stage_whose_watermark_lags() -> None:
    plan = plan_of(
        "SELECT window_end, count(*) AS c FROM"
        " (SELECT a.k FROM a JOIN b ON a.k = b.k WITHIN 150 ms ALLOW LATENESS 50 ms)"
        " WINDOW TUMBLING(500 ms) ALLOW LATENESS 30 ms INTO out"
    )
    bound = bind(plan.operators, plan.inputs)
    first, second = bound.template.stages
    assert [type(n.operator) for n in first.nodes] == [WindowJoin, Map]
    assert second.reads == (StageEdge(stage=0),)
    assert (second.lag_ms, bound.template.lag_of(0)) == (200, 230)
    assert [type(plan.operators[o]) for o in bound.stateful.values()] == [WindowJoin, WindowAggregate]


def test_a_union_of_inputs_is_read_as_one_table() -> None:
    plan = plan_of("SELECT k, v FROM a WHERE v > 1 UNION ALL SELECT k, w AS v FROM b INTO out")
    maps = [o for o, operator in plan.operators.items() if isinstance(operator, Map)]
    outside = bind(plan.operators, plan.inputs, [o for o in plan.operators if o > max(maps)])
    (stage,) = outside.template.stages
    assert stage.reads == (StageEdge(union=(StageEdge(port=0), StageEdge(port=1))),)
    assert [(type(n.operator), n.inputs) for n in stage.nodes] == [(Union, (-1,))]
    (whole,) = bind(plan.operators, plan.inputs).template.stages
    assert whole.reads == (StageEdge(port=0), StageEdge(port=1))
    tables = {StageEdge(port=i): pa.table({"c0": [i]}) for i in range(2)}
    assert rows_of(tables, stage.reads[0]).to_pydict() == {"c0": [0, 1]}


def test_a_fragment_reads_ports_and_has_outputs() -> None:
    plan = plan_of("SELECT k, count(*) AS c FROM a WHERE v > 1 WINDOW TUMBLING(1 s) GROUP BY k INTO out")
    by_kind = {type(operator): o for o, operator in plan.operators.items()}
    upper = bind(plan.operators, plan.inputs, [by_kind[Source], by_kind[Filter]])
    assert (upper.ports, upper.outputs) == ((by_kind[Source],), (by_kind[Filter],))
    rest = [o for o in plan.operators if o not in (by_kind[Source], by_kind[Filter])]
    lower = bind(plan.operators, plan.inputs, rest)
    assert (lower.ports, lower.outputs) == ((by_kind[Filter],), (by_kind[Sink],))


def test_a_fragment_that_only_forwards_has_no_stage() -> None:
    plan = plan_of("SELECT * FROM a INTO out")
    bound = bind(plan.operators, plan.inputs)
    assert (bound.template.stages, bound.template.outputs) == ((), (StageEdge(port=0),))


def test_the_output_gets_the_names_of_its_schema(spark: SparkSession) -> None:
    plan = plan_of("SELECT v AS `Speed`, k AS speed FROM a INTO out")
    bound = bind(plan.operators, plan.inputs)
    made = Driver(spark, bound, 1).step({0: table_of(bound, 0, [[Row(5, 1, 5, (5, 2, 0.5, 0, "x"))]])}, np.array([7]))
    table = output_table(made[bound.template.outputs[0]], plan.schemas[bound.outputs[0]])
    assert table.to_pylist() == [{"_ts": 5, "_wm": 1, "_newest": 5, "Speed": 0.5, "speed": 2}]


def test_steps_without_tuples(spark: SparkSession) -> None:
    """Nothing at all, then a watermark alone, then the end: only what was there comes out, once."""
    plan = plan_of("SELECT count(*) AS c FROM a WINDOW TUMBLING(1 s) INTO out")
    bound = bind(plan.operators, plan.inputs)
    driver = Driver(spark, bound, 2)
    nothing = table_of(bound, 0, [[], []])
    one = table_of(bound, 0, [[], [Row(100, BEGIN, 100, (100, 0, 0.0, 0, ""))]])
    counts = []
    for table, after in ((nothing, BEGIN), (one, 100), (nothing, 100), (nothing, 999), (nothing, 1000), (nothing, END)):
        counts.append(len(driver.step({0: table}, np.full(2, after))[StageEdge(stage=0)]))
    assert counts == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("window", ["TUMBLING(1 s)", "SESSION(1 s)"])
def test_a_step_over_state_alone_compacts_it(spark: SparkSession, window: str) -> None:
    plan = plan_of(f"SELECT sum(v) AS x, count(*) AS c FROM a WINDOW {window} INTO out")
    bound = bind(plan.operators, plan.inputs)
    driver = Driver(spark, bound, 1)
    for ts in (100, 200, 300):
        row = Row(ts, BEGIN, ts, (ts, 0, 0.1, 0, ""))
        driver.step({0: table_of(bound, 0, [[row]])}, np.array([BEGIN]))
    (stage,) = bound.template.stages
    held = driver.state[0, 0]
    handed = held.drop_columns([BUCKET]).append_column(AFTER, pa.array([BEGIN] * len(held)))
    edge, state = stage.frame_schemas
    frames = [frame(spark, edge.empty_table()), frame(spark, handed.select(state.names))]
    result = stage.split(stage.plan(frames).toArrow())
    assert (len(held), len(result.output), len(result.states[0])) == (3, 0, 1)
    driver.state[0, 0] = result.states[0]
    made = driver.step({0: table_of(bound, 0, [[]])}, np.array([END]))[StageEdge(stage=0)]
    assert made.select(["_newest", "c0", "c1"]).to_pylist() == [{"_newest": 300, "c0": pytest.approx(0.3), "c1": 3}]


def test_expressions_that_cannot_be_computed_are_null(spark: SparkSession) -> None:
    plan = plan_of(
        "SELECT n / 0 AS a, n % 0 AS b, n * n AS c, CAST(s AS int) AS d, split(s, 'x')[7] AS e, -n AS f, n + 1 AS g"
        " FROM a INTO out"
    )
    bound = bind(plan.operators, plan.inputs)
    table = table_of(bound, 0, [[Row(0, 0, 0, (0, 0, 0.0, -(2**63), "x")), Row(0, 0, 0, (0, 0, 0.0, 2, "7"))]])
    made = Driver(spark, bound, 1).step({0: table}, np.array([0]))
    rows = output_table(made[bound.template.outputs[0]], plan.schemas[bound.outputs[0]]).drop_columns(list(HIDDEN))
    assert [list(r.values()) for r in rows.to_pylist()] == [
        [None, None, None, None, None, None, -(2**63) + 1],
        [None, None, 4, 7, None, -2, 3],
    ]


def test_a_user_function_that_loses_rows_is_told_what_to_keep(spark: SparkSession) -> None:
    plan = plan_of("SELECT * FROM APPLY('tests.run.operators.functions:forgets_rows', a) RETURNS (x double) INTO out")
    bound = bind(plan.operators, plan.inputs)
    table = table_of(bound, 0, [[Row(0, 0, 0, (0, 0, 1.0, 0, ""))] * 3])
    with pytest.raises(Exception, match=r"returned 2 rows for 3.*must keep the columns"):
        Driver(spark, bound, 1).step({0: table}, np.array([0]))


def test_a_user_function_that_is_missing_is_named(spark: SparkSession) -> None:
    plan = plan_of("SELECT * FROM APPLY('tests.run.operators.functions:absent', a) RETURNS (x double) INTO out")
    bound = bind(plan.operators, plan.inputs)
    with pytest.raises(InputError, match="has no function 'absent'"):
        Driver(spark, bound, 1).step({0: table_of(bound, 0, [[]])}, np.array([0]))


def test_event_times_of_timestamps_and_of_milliseconds() -> None:
    table = pa.table({"t": pa.array([-1, 1_500, 2_999], pa.timestamp("us", "UTC")), "m": [1, 2, 3]})
    assert event_times(table, "t").tolist() == [-1, 1, 2]
    assert event_times(table, "m").tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="has nulls"):
        event_times(pa.table({"t": pa.array([None, 1], pa.int64())}), "t")
    with pytest.raises(InputError, match="no clock shows"):
        event_times(pa.table({"t": [2**62]}), "t")


def test_a_source_continues_with_its_watermark() -> None:
    times = np.array([10, 30, 20, 50])
    whole = source_watermarks(times, 5)
    rest = source_watermarks(times[2:], 5, before=int(max(times[:2]) - 5))
    assert whole.tolist() == [BEGIN, 5, 25, 25]
    assert rest.tolist() == whole[2:].tolist()


def test_streams_of_all_types_pass_through(spark: SparkSession) -> None:
    schema = Schema.of(
        ts="timestamp",
        b="boolean",
        i="int",
        l="bigint",
        f="float",
        d="double",
        s="string",
        y="date",
        x="binary",
        a="array<int>",
    )
    (query,) = sql("SELECT * FROM z WHERE b INTO out", {"z": Stream("z", schema, "ts")}).queries
    bound = bind(query.plan.operators, query.plan.inputs)
    table = pa.table(
        [[1500], [True], [1], [2], [0.5], [0.25], ["s"], [3], [b"x"], [[1, None]]], schema=arrow_schema(schema)
    )
    port = pa.table(
        [pa.array([0], pa.int32()), *([pa.array([1])] * 3), *table.columns],
        bound.template.stages[0].frame_schemas[0].names,
    )
    made = Driver(spark, bound, 1).step({0: port}, np.array([0]))
    result = output_table(made[bound.template.outputs[0]], query.plan.schemas[bound.outputs[0]])
    assert result.drop_columns(list(HIDDEN)).equals(table)


def test_streams_for_tests_are_the_ones_in_use() -> None:
    assert list(STREAMS) == ["a", "b"]


def test_a_module_that_ends_its_process_when_it_is_imported_is_an_error_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves_at_once.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"'leaves_at_once' fails when it is imported \(SystemExit: 3\)"):
        load("leaves_at_once:run")
