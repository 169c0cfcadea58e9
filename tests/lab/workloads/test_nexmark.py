"""Nexmark's queries, as they are placed, against plain Spark over the same events."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lab.workloads.nexmark import MISSING, QUERIES, STREAMS, events
from meander.lang import sql
from meander.place.rewrites import rewritten
from meander.run.oracle.batch import oracle
from tests.run.operators.compare import Rows, assert_close, ordered

SEED = 27


def rows(columns: list[list[object]]) -> Rows:
    return ordered(zip(*columns, strict=True))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_spark_gives(spark: SparkSession, name: str) -> None:
    query, tables = QUERIES[name], events(SEED)
    (parsed,) = sql(f"{query.sql} INTO out", STREAMS).queries
    found = oracle(spark, rewritten(parsed.plan), tables, 0)["out"]
    for stream, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(stream)
    wanted = spark.sql(query.spark).toArrow()
    assert len(wanted) > 0
    mine, theirs = (rows([c.to_pylist() for c in table.columns]) for table in (found, wanted))
    assert_close(mine, theirs, name)


def test_every_query_is_there_or_named() -> None:
    assert {*QUERIES, *MISSING} == {f"q{n}" for n in range(23)}


def test_events_are_the_same_for_a_seed() -> None:
    assert events(3)["bid"].equals(events(3)["bid"])
    assert not events(3)["bid"].equals(events(4)["bid"])
