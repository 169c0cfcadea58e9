"""Partial and final aggregation: a large batch of a window aggregate, without putting rows together by a key first.

For partial aggregation the rows are partitioned anywhere, and with a watermark before everything no window closes: each
partition gives partial aggregates. In the final one these meet with the state that was read, at the true watermark.
Where the rows are plain, which those of a source mostly are, a plan of its own spares partial aggregation their hidden
columns. Other rows are partitioned by a key where there is one, which is as fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.model.operators import WindowAggregate, kind_of
from meander.run.channels.base import Int64s
from meander.run.execution.rewrites.partitioning import (
    has_plain_key,
    least_rows,
    partition_count,
    partitioned_anywhere,
)
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    Conditions,
    ExecutionPlace,
    PlanRun,
    StageNames,
    TaskRewrite,
    TaskSteps,
    Verdict,
)
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BEGIN, FRAGMENT, NEWEST, TS, WM
from meander.run.operators.time_window import TimeWindow


class PartialAggregation(TaskRewrite[PlanRun]):
    name = "partial and final aggregation"
    about = "A large batch of a window aggregate is aggregated partition by partition, and then as a whole."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        node = stage.remembering
        if node is None:
            return Verdict(False, "there is no window aggregate")
        if not keeps_partials(stage):
            is_aggregate = isinstance(node.operator, WindowAggregate)
            return Verdict(
                False,
                "the windows have no fixed length" if is_aggregate else f"the {kind_of(node.operator)} keeps rows",
            )
        if now.is_refused(stage):
            return Verdict(False, "Spark partitions batches whose plan is not prepared")
        by_key = has_plain_key(stage, [schema.empty_table() for schema in stage.frame_schemas])
        reason = "where no row is late; others are partitioned by key" if by_key else "there is no key to partition by"
        return Verdict(True, reason, least_rows(now.cores))

    def rewrite_task(self, task: PlanRun, now: Conditions) -> TaskSteps[PlanRun] | None:
        count = partition_count(task, now) if keeps_partials(task.stage) else 1
        if count < 2:
            return None
        plain = are_plain(task.stage, task.tables)
        return self._steps(task, count, plain) if plain or not has_plain_key(task.stage, task.tables) else None

    @staticmethod
    def _steps(task: PlanRun, count: int, plain: bool) -> TaskSteps[PlanRun]:
        stage, tables = task.stage, task.tables
        rows = partial_tables(stage, partitioned_anywhere(tables, count))
        partial = yield [PlanRun(stage, each, ExecutionPlace.DRIVER, plain) for each in rows]
        (result,) = yield [PlanRun(stage, final_tables(stage, tables, partial), ExecutionPlace.DRIVER)]
        return result


def keeps_partials(stage: Stage) -> bool:
    """Whether the stage's state is nothing but partial aggregates."""
    return isinstance(stage.stateful, TimeWindow)


def are_plain(stage: Stage, tables: Sequence[pa.Table]) -> bool:
    """Whether no row is late for any window, and each has nothing newer in it than itself."""
    for table in tables[: len(stage.reads)]:
        times, watermarks, newest = (table.column(name).to_numpy() for name in (TS, WM, NEWEST))
        if not (times >= watermarks).all() or not (times == newest).all():
            return False
    return True


def partial_tables(stage: Stage, partitions: Sequence[Sequence[pa.Table]]) -> list[list[pa.Table]]:
    """The partitions' rows, with a watermark before everything and without state."""
    edges, states = len(stage.reads), [spec.frame_schema.empty_table() for spec in stage.states]
    return [[*map(_before_everything, p[:edges]), *states] for p in partitions]


def final_tables(stage: Stage, tables: Sequence[pa.Table], results: Sequence[pa.Table]) -> list[pa.Table]:
    """The partial aggregates, and the state."""
    edges, (spec,) = len(stage.reads), stage.states
    partial = pa.concat_tables([stage.split(result).states[0] for result in results])
    fragments = partial.column(FRAGMENT).to_numpy()
    after = pa.array(_watermarks(tables[:edges], fragments), pa.int64())
    rest = {name: partial.column(name) for name in spec.names}
    made = pa.table({FRAGMENT: partial.column(FRAGMENT), AFTER: after, **rest}).cast(spec.frame_schema)
    no_rows = [table.schema.empty_table() for table in tables[:edges]]
    return [*no_rows, pa.concat_tables([tables[edges].cast(spec.frame_schema), made])]


def _before_everything(table: pa.Table) -> pa.Table:
    at = table.column_names.index(AFTER)
    return table.set_column(at, table.schema.field(at), pa.array(np.full(len(table), BEGIN, np.int64)))


def _watermarks(tables: Sequence[pa.Table], fragments: Int64s) -> Int64s:
    """For each fragment the watermark that its rows carry: all the same."""
    found = np.full(1 + max((int(f.max()) for f in (_of(t) for t in tables) if f.size), default=0), BEGIN, np.int64)
    for table in tables:
        found[_of(table)] = table.column(AFTER).to_numpy()
    of_each: Int64s = found[fragments]
    return of_each


def _of(table: pa.Table) -> Int64s:
    found: Int64s = table.column(FRAGMENT).to_numpy()
    return found
