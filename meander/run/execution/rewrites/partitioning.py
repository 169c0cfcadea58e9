"""Partitioning: a large batch as partitions that run beside each other, so that every core has work and none needs
memory for all of it.

Rows that only pass are partitioned anywhere. Rows that meet in an operator with state are partitioned by one of its
keys, together with the state: equal keys are in one partition. Where there is no such key, a batch stays whole, unless
partial aggregation has taken it before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.model.operators import kind_of
from meander.run.execution.rewrites.column_lineage import column_of_each_leaf, origins, united
from meander.run.execution.rewrites.late_materialisation import needs_no_plan
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

LEAST_PARTITION_ROWS = 50_000
"""Rows that are worth a partition of their own."""

MOST_PARTITION_ROWS = 250_000
"""Rows beyond which a partition would need much memory."""

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Distributes numbers that follow a pattern."""

Partitions = list[list[pa.Table]]
"""Each has a table for each of a stage's frames."""


class Partitioning(TaskRewrite[PlanRun]):
    name = "partitioning"
    about = "A large batch is partitioned, by key where there is state, and its partitions run beside each other."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        if now.is_refused(stage):
            return Verdict(False, "Spark partitions batches whose plan is not prepared")
        if needs_no_plan(stage, now):
            return Verdict(False, "no plan runs")
        rows = least_rows(now.cores)
        if stage.stateful is None:
            return Verdict(True, "rows only pass, so they are partitioned anywhere", rows)
        key = key_of(stage, names)
        if key is None:
            assert stage.remembering is not None
            kind = kind_of(stage.remembering.operator)
            return Verdict(False, f"the {kind} has no key that every row has as a column of a comparable type")
        return Verdict(True, f"by key {key}, rows and state alike", rows)

    def rewrite_task(self, task: PlanRun, now: Conditions) -> TaskSteps[PlanRun] | None:
        count = partition_count(task, now)
        partitions = partitioned(task.stage, task.tables, count) if count > 1 else None
        return None if partitions is None else self._steps(task, partitions)

    @staticmethod
    def _steps(task: PlanRun, partitions: Partitions) -> TaskSteps[PlanRun]:
        return pa.concat_tables((yield [task._replace(tables=p, place=ExecutionPlace.DRIVER) for p in partitions]))


def least_rows(cores: int) -> int:
    """Rows from which on a batch has several partitions."""
    return 2 * LEAST_PARTITION_ROWS if cores > 1 else MOST_PARTITION_ROWS + 1


def partition_count(run: PlanRun, now: Conditions) -> int:
    """How many partitions a batch should have."""
    rows = run.rows
    if run.place is not None or rows < least_rows(now.cores):
        return 1
    if now.is_refused(run.stage) or needs_no_plan(run.stage, now):
        return 1
    return partitions_of(rows, now.cores)


def partitions_of(rows: int, cores: int) -> int:
    """How many partitions so many rows should have."""
    return max(1, min(cores, rows // LEAST_PARTITION_ROWS), -(-rows // MOST_PARTITION_ROWS))


def partitioned(stage: Stage, tables: Sequence[pa.Table], count: int) -> Partitions | None:
    """So many partitions of a batch, equal keys in one; None if it has to stay whole."""
    if stage.stateful is None:
        return partitioned_anywhere(tables, count)
    columns = key_columns(stage)
    return _by_key(tables, columns, count) if columns is not None and _are_comparable(tables, columns) else None


def has_plain_key(stage: Stage, tables: Sequence[pa.Table]) -> bool:
    """Whether rows with state are partitioned so that equal keys are in one partition."""
    columns = key_columns(stage)
    return columns is not None and _are_comparable(tables, columns)


def partitioned_anywhere(tables: Sequence[pa.Table], count: int) -> Partitions:
    """So many partitions of a batch; equal keys may be in several."""
    bounds = [[len(t) * i // count for i in range(count + 1)] for t in tables]
    return [[t.slice(b[i], b[i + 1] - b[i]) for t, b in zip(tables, bounds, strict=True)] for i in range(count)]


def key_columns(stage: Stage) -> list[str] | None:
    """For each frame of the stage the column of one and the same key, if every row has it as it is."""
    assert stage.stateful is not None
    keys, node = stage.stateful.cut_by, stage.remembering
    if keys is None or node is None:
        return None
    known = origins(stage)
    found = united([known[i][name] for i, name in zip(node.inputs, keys.inputs, strict=True)])
    columns = column_of_each_leaf(stage, found)
    return None if columns is None else [*columns, *keys.states]


def _are_comparable(tables: Sequence[pa.Table], columns: Sequence[str]) -> bool:
    types = {t.schema.field(c).type for t, c in zip(tables, columns, strict=True)}
    return len(types) == 1 and _is_comparable(types.pop())


def _is_comparable(type_: pa.DataType) -> bool:
    """Whether Arrow calls the same values equal as Spark does: 0.0 and -0.0 are one key there, and so is every NaN."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return any(is_kind(type_) for is_kind in plain)


def key_of(stage: Stage, names: StageNames = BY_POSITION) -> str | None:
    """The key that rows and state are partitioned by, by its name in each input."""
    if not has_plain_key(stage, [schema.empty_table() for schema in stage.frame_schemas]):
        return None
    columns = (key_columns(stage) or [])[: len(stage.reads)]
    return " = ".join(dict.fromkeys(names.leaf(i, column) for i, column in enumerate(columns)))


def _by_key(tables: Sequence[pa.Table], columns: Sequence[str], count: int) -> Partitions:
    chunks = [c for t, name in zip(tables, columns, strict=True) for c in t.column(name).chunks]
    partition = _partition_of(pa.chunked_array(chunks, tables[0].column(columns[0]).type), count)
    partitions: Partitions = [[] for _ in range(count)]
    first = 0
    for table in tables:
        own = partition[first : first + len(table)]
        first += len(table)
        order = np.argsort(own, kind="stable")
        sizes = np.bincount(own, minlength=count)
        ends = np.cumsum(sizes)
        sorted_rows = table.combine_chunks().take(pa.array(order))
        for i in range(count):
            partitions[i].append(sorted_rows.slice(int(ends[i] - sizes[i]), int(sizes[i])))
    return partitions


def _partition_of(keys: pa.ChunkedArray, count: int) -> npt.NDArray[np.uint8]:
    """The partition of each row: the same for equal keys."""
    if pa.types.is_integer(keys.type):
        numbers = pc.fill_null(keys, 0).cast(pa.int64()).to_numpy()
    else:
        codes = pc.fill_null(keys.combine_chunks().dictionary_encode().indices, 0)
        numbers = codes.to_numpy().astype(np.int64)
    mixed = (numbers.view(np.uint64) * MIXER) >> np.uint64(40)
    found: npt.NDArray[np.uint8] = (mixed % np.uint64(count)).astype(np.uint8)
    return found
