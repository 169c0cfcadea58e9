"""The runner of these tests against Spark: the same tables give the same rows, of output and of state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import OneByOne
from meander.run.fragments.template import Stage
from tests.coordinator.loop.python_runner import PythonRunner
from tests.coordinator.loop.schedules import Schedule

SEEDS = (3, 5, 8, 13, 24, 100)
"""Schedules that are played on Spark as well; together they have every kind of query."""


@pytest.fixture(scope="module")
def prepared(spark: SparkSession) -> Iterator[PreparedRunner]:
    runner = PreparedRunner(spark)
    yield runner
    runner.close()


class BothRunners(OneByOne):
    """Runs every stage on Spark and in Python, and goes on with what Spark gave."""

    def __init__(self, spark: PreparedRunner) -> None:
        self.spark, self.python = spark, PythonRunner()
        self.kinds: Counter[str] = Counter()

    def warm_up(self, stages: Iterable[Stage]) -> None:
        self.spark.warm_up(stages)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return self.spark.is_warm(stages)

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        found = self.spark.run(stage, tables)
        assert _rows(stage, found) == _rows(stage, self.python.run(stage, tables))
        self.kinds.update(type(node.operator).__name__ for node in stage.nodes)
        return found

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        raise AssertionError("tuples of these tests come in order: none is late")


def _rows(stage: Stage, result: pa.Table) -> list[Counter[tuple[Any, ...]]]:
    split = stage.split(result)
    return [Counter(zip(*table.to_pydict().values(), strict=True)) for table in (split.output, *split.states)]


@pytest.mark.slow
def test_schedules_give_the_same_on_spark(spark: SparkSession, prepared: PreparedRunner, tmp_path: Path) -> None:
    both = BothRunners(prepared)
    played = [Schedule.drawn(tmp_path / str(s), s, runner=both, spark=spark) for s in SEEDS]
    assert sum(s.exact for s in played) >= len(SEEDS) // 2
    assert {"Filter", "Map", "Union", "WindowAggregate", "WindowJoin"} <= set(both.kinds)
