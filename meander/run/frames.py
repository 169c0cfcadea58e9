"""The form of tuples inside the data plane: columns by position, and hidden columns beside them.

Frames name the user's columns `c0`, `c1`, ... in the order of their schema. So names that Spark cannot tell apart
(`Speed`, `speed`), names that a join must change, and names that differ between two fragments of one template do not
matter; the real names come back where tuples leave. Hidden columns start with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from meander.model.errors import InputError
from meander.model.schema import DataType, Field, Kind, Schema
from meander.run.memoised import memoised

FRAGMENT, TS, WM, NEWEST, AFTER = "_fragment", "_ts", "_wm", "_newest", "_after"
"""The fragment of the step; event time, watermark of the own source before the tuple, newest contributing event time
(all ms); the watermark of the fragment after the step."""

HIDDEN = (TS, WM, NEWEST)
"""The hidden columns of a tuple in channels, before the user's columns."""

TAG, BUCKET = "_tag", "_bucket"
"""In the result of a step: which table a row belongs to (0 is the output, 1 and on are states), its state bucket."""

BEGIN, END = -(2**62), 2**62
"""Watermarks before everything and after everything; far enough from the limits to add durations to them."""

Mapping = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that a Python worker applies to the batches of a partition."""

Longs = npt.NDArray[np.int64]

_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.DATE: pa.date32(),
    Kind.BINARY: pa.binary(),
    Kind.NULL: pa.string(),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type that holds a column's values; the same that Spark reads and writes."""
    return pa.list_(arrow_type(type_.element)) if type_.element else _ARROW[type_.kind]


@memoised
def arrow_schema(schema: Schema) -> pa.Schema:
    """The user's columns, under their names."""
    return pa.schema([(f.name, arrow_type(f.type)) for f in schema])


@memoised
def channel_schema(schema: Schema) -> pa.Schema:
    """A tuple as channels carry it: hidden columns, then the user's under their names."""
    return pa.schema([*((name, pa.int64()) for name in HIDDEN), *arrow_schema(schema)])


def frame_schema(schema: Schema, *, watermark: bool = False) -> pa.Schema:
    """A tuple as a step reads it: fragment, hidden columns, the user's columns by position."""
    longs = [*HIDDEN, AFTER] if watermark else HIDDEN
    columns = [(f"c{i}", arrow_type(t)) for i, t in enumerate(schema.types)]
    return pa.schema([(FRAGMENT, pa.int32()), *((name, pa.int64()) for name in longs), *columns])


def positions(count: int, start: int = 0) -> tuple[str, ...]:
    """Names of columns in a frame."""
    return tuple(f"c{i}" for i in range(start, start + count))


@memoised
def by_position(schema: Schema, start: int = 0) -> Schema:
    """The schema with its columns named by position, from `c{start}` on."""
    return Schema(tuple(Field(n, f.type) for n, f in zip(positions(len(schema), start), schema, strict=True)))


def sliced(table: pa.Table, owners: npt.NDArray[np.integer], count: int) -> list[pa.Table]:
    """The rows of each owner, in order; owners are numbers below `count`."""
    ends = np.cumsum(np.bincount(owners, minlength=count)).tolist()
    if ends[0] < len(table) and (owners[1:] < owners[:-1]).any():
        table = table.take(pa.array(np.argsort(owners, kind="stable")))
    return [table.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table as one partition, which needs no exchange before a group or a join."""
    # Without a chunk PySpark cannot tell the type of a nested column.
    whole = table.combine_chunks() if len(table) else table.schema.empty_table()
    return spark.createDataFrame(whole).coalesce(1)


def mapped(frame: DataFrame, run: Mapping, schema: StructType) -> DataFrame:
    """`DataFrame.mapInArrow` without its check for pandas, which it does not use."""
    function = _create_udf(run, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*(frame[name] for name in frame.columns))
    return ClassicFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def event_times(table: pa.Table, column: str) -> Longs:
    """The event times of a stream's tuples in ms, whether the column is a timestamp or whole milliseconds."""
    values = table.column(column)
    if values.null_count:
        raise InputError(f"event-time column {column!r} has nulls; every tuple needs an event time")
    if pa.types.is_timestamp(values.type):
        micros = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
        times = np.floor_divide(micros.to_numpy(), 1000)
    else:
        times = values.to_numpy().astype(np.int64)
    if len(times) and (times.min() < BEGIN // 2 or times.max() > END // 2):
        raise InputError(f"event-time column {column!r} has a time that no clock shows; expected milliseconds")
    result: Longs = times
    return result


def source_watermarks(times: Longs, disorder_ms: int, before: int = BEGIN) -> Longs:
    """The source's watermark just before each tuple, in arrival order: the latest event time so far less the disorder.

    >>> source_watermarks(np.array([5, 9, 7, 20]), 2, before=0).tolist()
    [0, 3, 7, 7]
    """
    highest = np.maximum.accumulate(np.concatenate([[np.int64(before)], times - disorder_ms]))
    result: Longs = highest[:-1].astype(np.int64)
    return result


def with_hidden(table: pa.Table, event_time: str, disorder_ms: int, before: int = BEGIN) -> pa.Table:
    """One source's tuples in arrival order, as they enter the data plane."""
    times = event_times(table, event_time)
    hidden = (times, source_watermarks(times, disorder_ms, before), times)
    return pa.table([*(pa.array(h, pa.int64()) for h in hidden), *table.columns], [*HIDDEN, *table.column_names])


def for_step(tables: Iterable[tuple[int, pa.Table]], schema: pa.Schema, after: Sequence[int] | None = None) -> pa.Table:
    """Tables of several fragments as one table of a step; `after` gives each one's watermark when the step needs it."""
    parts = []
    for number, (fragment, table) in enumerate(tables):
        extra = {FRAGMENT: np.full(len(table), fragment, np.int32)}
        if after is not None:
            extra[AFTER] = np.full(len(table), after[number], np.int64)
        columns = [*table.columns]
        named = [pa.array(extra.pop(f.name)) if f.name in extra else columns.pop(0) for f in schema]
        parts.append(pa.table(named, schema=schema))
    return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()
