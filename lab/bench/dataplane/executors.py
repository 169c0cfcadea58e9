"""The driver's path against the executors' path: a stage over one large batch, tuples with the task or fetched by it.

On one machine executors are threads that ask the driver's process over a socket, with a Python worker in between; they
save the driver's memory there, not its time. With more cores than these the parts are fetched side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from lab.bench.dataplane.data import KINDS, Batches, QueryKind, world
from lab.bench.report import Figure
from meander.run.execution.executors.runner import ExecutorsRunner
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Task
from meander.run.fragments.template import bind
from meander.run.frames import for_step, with_hidden

Progress = Callable[[str], None]


def measure(spark: SparkSession, sizes: Sequence[int], repeats: int, progress: Progress) -> list[Figure]:
    """Seconds of a stage on both paths, in turn, and their ratio."""
    driver = PreparedRunner(spark)
    executors = PreparedRunner(spark, executors=ExecutorsRunner(spark, least_rows=1))
    figures: list[Figure] = []
    for kind in KINDS:
        for size in sizes:
            progress(f"{kind.name}, {size:,} tuples: driver's path and executors' path")
            data = Batches(kind)
            took: tuple[list[float], list[float]] = ([], [])
            for repeat in range(-1, repeats):
                task = _task(kind, data.next(size))
                found = [_timed(runner, task) for runner in (driver, executors)]
                if found[0][1] != found[1][1]:
                    raise AssertionError(f"{kind.name}: {found[0][1]:,} and {found[1][1]:,} rows")
                if repeat >= 0:
                    for seconds, (each, _) in zip(took, found, strict=True):
                        seconds.append(each)
            name = f"stage of {kind.name}, {size:,} tuples"
            ratios = [b / a for a, b in zip(*took, strict=True)]
            figures += [
                Figure.of(f"{name}: driver's path", "s", took[0]),
                Figure.of(f"{name}: executors' path", "s", took[1]),
                Figure.of(f"{name}: executors' path to driver's path", "x", ratios),
            ]
    driver.close()
    executors.close()
    return figures


def _task(kind: QueryKind, tables: Sequence[pa.Table]) -> Task:
    """The stage of a kind of query over tuples of one fragment; no window closes."""
    plan = world({}, {}).queries[kind.name].plan
    (stage,) = bind(plan.operators, plan.inputs).template.stages
    schemas = stage.frame_schemas
    after = [int(tables[0].column("ts")[0].as_py().timestamp() * 1000)] if stage.watermark else None
    hidden = [with_hidden(table, "ts", 0, 0) for table in tables]
    given = [for_step([(1, t)], schema, after) for t, schema in zip(hidden, schemas, strict=False)]
    return Task(stage, [*given, *(spec.frame_schema.empty_table() for spec in stage.states)])


def _timed(runner: PreparedRunner, task: Task) -> tuple[float, int]:
    started = time.perf_counter()
    rows = len(runner.run(*task))
    return time.perf_counter() - started, rows
