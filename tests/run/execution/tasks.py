"""Stages of small queries with random rows, and rewrites that run alone: what is left of the tasks runs plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.run.execution.rewrites.rewrite import Conditions, PlanRun, Rewrite, walk
from meander.run.execution.runner import Ran, Task
from meander.run.fragments.template import Stage, bind
from meander.run.frames import AFTER, FRAGMENT, HIDDEN, TS, WM, frame, frame_schema
from meander.run.session import active
from tests.run.harness import STREAMS, queries, rows_of

FAST = "SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one"
TOP = "SELECT road, max(speed) AS top FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one"
JOIN = "SELECT * FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
CHOSEN = "SELECT b.mm, a.id AS car FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
COMPUTED = "SELECT b.mm + 1 AS mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one"
ALL = "SELECT speed, road FROM cars INTO one"
BOTH = "SELECT road, id FROM cars UNION ALL SELECT road, id FROM cars INTO one"
ROW_BY_ROW = (
    "SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one",
    "SELECT road, speed AS v FROM cars WHERE id < 2 UNION ALL SELECT road, mm AS v FROM rain INTO one",
    "SELECT * FROM cars UNION ALL SELECT ts, id + 1 AS id, road, speed FROM cars WHERE id < 2 INTO one",
    "SELECT a.id, a.speed * 2 AS w, b.mm FROM cars AS a, rain AS b MATCH a OR b INTO one",
)
"""Queries that filter, compute and unite, one row at a time."""
CALLED = (
    "SELECT * FROM APPLY('tests.run.user_functions:dies', cars) "
    "RETURNS (ts bigint, id bigint, road string, speed double) INTO one"
)
SUMS = (
    "SELECT road, count(*) AS n, avg(speed) AS mean FROM cars WHERE id < 4 GROUP BY road "
    "WINDOW TUMBLING(ts, 400 ms) INTO one",
    "SELECT sum(id) AS total, max(speed) AS top FROM cars WINDOW SLIDING(ts, 400 ms, 200 ms) INTO one",
    "SELECT upper(road) AS r, count(*) AS n FROM cars GROUP BY upper(road) WINDOW TUMBLING(ts, 400 ms) INTO one",
)
SESSION = "SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW SESSION(ts, 1 s) INTO one"


def given(stream: str, rows: int) -> pa.Table:
    """Random rows of five fragments, as a stage reads them."""
    rng = np.random.default_rng(rows)
    table = rows_of(stream, rng, rng.integers(0, 1000, rows))
    hidden = {name: pa.array(rng.integers(0, 10**12, rows)) for name in HIDDEN}
    columns = {FRAGMENT: pa.array(rng.integers(0, 5, rows), pa.int32()), **hidden}
    body = {f"c{i}": table.column(i) for i in range(table.num_columns)}
    return pa.table({**columns, **body}, schema=frame_schema(STREAMS[stream].schema))


def stages_of(*texts: str) -> list[Stage]:
    plans = [query.plan for text in texts for query in queries(text)]
    return [s for p in plans for s in bind(p.operators, p.inputs).template.stages]


def stage_of(text: str) -> Stage:
    return stages_of(text)[0]


def with_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def task_of(text: str, rows: int) -> Task:
    """The stage over random rows of one second; the watermark reaches its half."""
    stage, rng = stage_of(text), np.random.default_rng(rows)
    inputs = []
    for i, stream in enumerate(("cars", "rain")[: len(stage.reads)]):
        table = with_column(given(stream, rows + i), TS, rng.integers(0, 1000, rows + i))
        table = with_column(table, WM, np.zeros(rows + i, np.int64))
        if stage.watermark:
            table = table.add_column(4, AFTER, pa.array(np.full(rows + i, 500)))
        inputs.append(table)
    return Task(stage, [*inputs, *(spec.frame_schema.empty_table() for spec in stage.states)])


def content(stage: Stage, result: pa.Table) -> list[list[str]]:
    """The rows of the output and of each state table, in no order."""
    split = stage.split(result)
    return [sorted(map(repr, table.to_pylist())) for table in (split.output, *split.states)]


class Alone:
    """Runs tasks through a single rewrite; what it makes of them is planned by Spark as it is."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rounds: list[list[Any]] = []
        """What ran, round by round."""

    def execute(self, tasks: Sequence[Task | PlanRun]) -> list[Ran]:
        self.rounds.append(list(tasks))
        return [Ran(self._run(t if isinstance(t, PlanRun) else PlanRun(*t)), 1.0) for t in tasks]

    def _run(self, run: PlanRun) -> pa.Table:
        with active(self.spark):
            return run.planned.make([frame(self.spark, table) for table in run.tables]).toArrow()

    def through(self, rewrite: Rewrite[Any], tasks: Sequence[Task | PlanRun], now: Conditions) -> list[Ran]:
        self.rounds.clear()
        return walk([rewrite], tasks, now, self.execute)

    def without(self, task: Task) -> pa.Table:
        """What the task gives without any rewrite."""
        return self._run(PlanRun(*task))


def leaves_alone(rewrite: Rewrite[Any], task: Task | PlanRun, now: Conditions) -> bool:
    """Whether the rewrite does nothing to a task."""
    return rewrite.rewrite([task], now) is None


def ready(*stages: Stage) -> Callable[[Stage], bool]:
    """Only these have plans."""
    keys = {stage.key for stage in stages}
    return lambda stage: stage.key in keys
