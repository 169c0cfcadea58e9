"""Window aggregates and joins against Spark's own operators, over many random fragments at once."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from meander.run.fragments.template import bind
from meander.run.frames import END, FRAGMENT, frame
from tests.run.operators.cases import table_of
from tests.run.operators.compare import HIDDEN_WIDTH, Rows, assert_close, ordered, rows_of
from tests.run.operators.driver import Driver
from tests.run.operators.test_operators import plan_of
from tests.run.reference import Row

FRAGMENTS = 50
AGGREGATES = (
    "count(*) AS c, sum(v) AS sv, avg(v) AS av, min(v) AS lo, max(v) AS hi, stddev(v) AS dv, "
    "count_if(v > 0) AS ni, var_samp(v) AS vs, "
    "var_pop(v) AS vp, stddev_pop(v) AS dp, bool_and(v < 40) AS ba, bool_or(v > 40) AS bo, bit_xor(k) AS bx, "
    "bit_and(k) AS bn, min_by(s, v) AS mb, max_by(s, v) AS xb, sort_array(collect_list(s)) AS cl, "
    "sort_array(collect_set(s)) AS cs, "
    "count(*) FILTER (WHERE s = 'x') AS cx, sum(v) FILTER (WHERE s != 'x') AS sx, "
    "max_by(s, v) FILTER (WHERE s != 'x') AS mx, "
    "median(v) AS md, percentile(v, 0.95) AS pc, percentile(k, 0) AS p0, percentile(k, 1) AS p1"
)
DISTINCT = (
    ", count(DISTINCT s) AS ns, count(DISTINCT s) FILTER (WHERE v > 0) AS cd, "
    "sum(DISTINCT k) AS sk, avg(DISTINCT k) AS ak, sum(DISTINCT v) AS sd, avg(DISTINCT v) AS ad"
)
"""Not in sessions: there Spark may count a value twice if a session was put together from parts (3 for x, x and y)."""
WINDOWS = {
    "TUMBLING(700 ms)": "window(at, '700 milliseconds')",
    "SLIDING(900 ms, 300 ms)": "window(at, '900 milliseconds', '300 milliseconds')",
    "SESSION(120 ms)": "session_window(at, '120 milliseconds')",
}


def tuples(rng: random.Random, width: int) -> list[Row]:
    """Tuples that are never late."""
    rows = []
    for _ in range(rng.randrange(30)):
        ts = rng.randrange(-150, 150) * 20
        values = (ts, rng.choice((0, 1, 2, None)), rng.choice((None, rng.uniform(-50, 50))), 7, rng.choice("xyz"))
        rows.append(Row(ts, -(2**40), ts, values[:width]))
    return rows


def column_rows(table: pa.Table) -> dict[int, Rows]:
    """Rows by fragment without hidden columns."""
    return {f: ordered(r[HIDDEN_WIDTH:] for r in rows) for f, rows in rows_of(table).items()}


def native_rows(result: DataFrame) -> dict[int, Rows]:
    table = result.toArrow()
    padded = [table.column(FRAGMENT), *([pa.array([0] * len(table))] * HIDDEN_WIDTH), *table.columns[1:]]
    return column_rows(pa.table(padded, [FRAGMENT, *map(str, range(len(padded) - 1))]))


def assert_same(mine: dict[int, Rows], theirs: dict[int, Rows], seed: int) -> None:
    assert mine.keys() == theirs.keys()
    for fragment, rows in mine.items():
        assert_close(rows, theirs[fragment], f"seed {seed}, fragment {fragment}")


@pytest.mark.parametrize("window", WINDOWS)
def test_aggregates(spark: SparkSession, window: str, seed: int) -> None:
    rng, aggregates = random.Random(seed), AGGREGATES + ("" if window.startswith("SESSION") else DISTINCT)
    plan = plan_of(f"SELECT window_start, window_end, k, {aggregates} FROM a WINDOW {window} GROUP BY k INTO out")
    bound = bind(plan.operators, plan.inputs)
    table = table_of(bound, 0, [tuples(rng, 5) for _ in range(FRAGMENTS)])
    made = Driver(spark, bound, FRAGMENTS).step({0: table}, np.full(FRAGMENTS, END))
    frame(spark, table).selectExpr(
        FRAGMENT, "timestamp_millis(_ts) AS at", "c1 AS k", "c2 AS v", "c4 AS s"
    ).createOrReplaceTempView("native_a")
    native = WINDOWS[window].partition("(")[0]
    result = spark.sql(
        f"SELECT {FRAGMENT}, {native}.start, {native}.end, k, {aggregates} FROM native_a "
        f"GROUP BY {FRAGMENT}, {WINDOWS[window]}, k"
    )
    assert_same(column_rows(made[bound.template.outputs[0]]), native_rows(result), seed)


def test_join(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    plan = plan_of("SELECT a.ts AS x, b.ts AS y, v, w FROM a JOIN b ON a.k = b.k AND v < w WITHIN 300 ms INTO out")
    bound = bind(plan.operators, plan.inputs)
    tables = [table_of(bound, p, [tuples(rng, width) for _ in range(FRAGMENTS)]) for p, width in ((0, 5), (1, 3))]
    made = Driver(spark, bound, FRAGMENTS).step(dict(enumerate(tables)), np.full(FRAGMENTS, END))
    for name, table in zip(("native_l", "native_r"), tables, strict=True):
        frame(spark, table).createOrReplaceTempView(name)
    native = spark.sql(
        f"SELECT l.{FRAGMENT}, l._ts AS x, r._ts AS y, l.c2 AS v, r.c2 AS w FROM native_l l JOIN native_r r "
        f"ON l.{FRAGMENT} = r.{FRAGMENT} AND l.c1 = r.c1 AND l.c2 < r.c2 AND r._ts BETWEEN l._ts - 300 AND l._ts + 300"
    )
    assert_same(column_rows(made[bound.template.outputs[0]]), native_rows(native), seed)


HOW = {"left": "LEFT", "right": "RIGHT", "full": "FULL", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}


@pytest.mark.parametrize("how", HOW)
def test_joins_that_are_not_inner_ones(spark: SparkSession, how: str, seed: int) -> None:
    rng = random.Random(seed)
    mine = "v" if how in ("semi", "anti") else "v, w"
    plan = plan_of(
        f"SELECT {mine} FROM a {HOW[how]} JOIN b "
        "ON a.k = b.k + 1 AND v < w AND b.ts BETWEEN a.ts - 300 AND a.ts + 60 INTO out"
    )
    bound = bind(plan.operators, plan.inputs)
    tables = [table_of(bound, p, [tuples(rng, width) for _ in range(FRAGMENTS)]) for p, width in ((0, 5), (1, 3))]
    made = Driver(spark, bound, FRAGMENTS).step(dict(enumerate(tables)), np.full(FRAGMENTS, END))
    for name, table in zip(("native_l", "native_r"), tables, strict=True):
        frame(spark, table).createOrReplaceTempView(name)
    fragment = FRAGMENT if how in ("semi", "anti") else f"coalesce(l.{FRAGMENT}, r.{FRAGMENT}) AS {FRAGMENT}"
    theirs = "l.c2 AS v" if how in ("semi", "anti") else "l.c2 AS v, r.c2 AS w"
    native = spark.sql(
        f"SELECT {fragment}, {theirs} FROM native_l l {HOW[how]} JOIN native_r r ON l.{FRAGMENT} = r.{FRAGMENT} "
        "AND l.c1 = r.c1 + 1 AND l.c2 < r.c2 AND r._ts BETWEEN l._ts - 300 AND l._ts + 60"
    )
    assert_same(column_rows(made[bound.template.outputs[0]]), native_rows(native), seed)
