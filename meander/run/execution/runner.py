"""Runners of stages on Spark. The plain way: tables become frames, the plan is analysed and run, the rows collected."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from meander.run.fragments.template import Stage
from meander.run.frames import frame
from meander.run.session import active


class Task(NamedTuple):
    """A stage with a table for each of its frames."""

    stage: Stage
    tables: Sequence[pa.Table]

    @property
    def rows(self) -> int:
        return sum(map(len, self.tables))


class Ran(NamedTuple):
    """A task's result, and how long it took: its share where it ran together with others."""

    result: pa.Table
    seconds: float


class Runner(Protocol):
    """Runs a stage's plan on Spark: one table per frame in, the step's result out."""

    def warm_up(self, stages: Iterable[Stage]) -> None: ...

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        """Whether warming up would do nothing."""

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table: ...

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        """Tasks that do not wait for each other, together if that is cheaper."""

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table: ...


class OneByOne(ABC):
    """For runners that run tasks one after the other."""

    @abstractmethod
    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table: ...

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        found = []
        for task in tasks:
            started = time.perf_counter()
            result = self.run(task.stage, task.tables)
            found.append(Ran(result, time.perf_counter() - started))
        return found


class PlainRunner(OneByOne):
    """Builds the plan anew for every batch."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Nothing can be prepared."""

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return True

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        with active(self.spark):
            return stage.plan([frame(self.spark, t) for t in tables]).toArrow()

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        with active(self.spark):
            return stage.late([frame(self.spark, t) for t in tables]).toArrow()
