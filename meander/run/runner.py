"""How stages run on Spark. The plain way: tables become frames, the plan is analysed and run, the result collected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from meander.run.frames import frame
from meander.run.template import Stage


class Runner(Protocol):
    """Runs a stage's plan on Spark: one table per frame in, the step's result out."""

    def warm_up(self, stages: Iterable[Stage]) -> None: ...

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        """Whether warming up would do nothing."""

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table: ...

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table: ...


class PlainRunner:
    """Builds the plan anew for every batch."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Nothing can be prepared."""

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return True

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return stage.plan([frame(self.spark, t) for t in tables]).toArrow()

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return stage.late([frame(self.spark, t) for t in tables]).toArrow()
