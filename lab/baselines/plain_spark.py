"""The same query as a Spark user would write it: one ordinary streaming query with native operators and checkpoints.

Peer of the data plane in experiments. Filters and maps are the same expressions; windows are Spark's `window` and
`session_window` behind `withWatermark`, joins are stream-stream joins with bounds in time. What Spark has no native
operator for is refused: count windows, and an operator with memory behind another one, whose event times Spark defines
differently. Spark knows one watermark for a query, so it waits for the largest lateness of all operators, and a tuple
that comes later than that is dropped or not depending on where batches were cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from meander.model.errors import InputError
from meander.model.expressions.tree import Call
from meander.model.ids import OperatorId
from meander.model.operators import (
    STATEFUL,
    Binary,
    Conjunction,
    Operator,
    Sequence,
    Sink,
    Source,
    UserFunction,
    WindowAggregate,
    WindowJoin,
    describe,
    with_renamed_inputs,
)
from meander.model.plan import QueryPlan
from meander.model.schema import Kind, Schema
from meander.model.streams import Stream
from meander.model.windows import PairWindow, Session, Sliding, Tumbling, Window, Within
from meander.run.expressions import spark_sql, type_text, typed
from meander.run.frames import NEWEST, TS, by_position, positions
from meander.run.operators import STATELESS, user_function

OnTable = Callable[[pa.Table], None]


def compiled(
    plan: QueryPlan, streams: Mapping[str, DataFrame], disorder_ms: int = 0, *, newest: bool = False
) -> dict[str, DataFrame]:
    """A streaming frame for each sink, over streaming frames with the streams' columns.

    With `newest`, rows carry the event time of their newest input as a timestamp, for measuring latency.
    """
    return _Compiler(plan, streams, disorder_ms, newest).sinks()


def read_files(spark: SparkSession, stream: Stream, directory: Path, files_per_batch: int = 1) -> DataFrame:
    """Parquet files of a directory as a stream, so many a batch, oldest first."""
    columns = ", ".join(f"`{f.name}` {type_text(f.type)}" for f in stream.schema)
    reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", files_per_batch)
    return reader.parquet(str(directory))


def write_files(frame: DataFrame, directory: Path, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """Starts the query with Spark's own exactly-once parquet sink."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start(str(directory))


def collect(frame: DataFrame, on_table: OnTable, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """Starts the query; every batch's rows come to the driver."""

    def batch(rows: DataFrame, _: int) -> None:
        on_table(rows.toArrow())

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


@dataclass
class _Compiler:
    plan: QueryPlan
    streams: Mapping[str, DataFrame]
    disorder_ms: int
    newest: bool

    def sinks(self) -> dict[str, DataFrame]:
        self._check()
        frames: dict[OperatorId, DataFrame] = {}
        found: dict[str, DataFrame] = {}
        for operator_id in self.plan.order:
            operator, inputs = self.plan.operators[operator_id], self.plan.inputs[operator_id]
            if isinstance(operator, Sink):
                result = self._named(operator, frames[inputs[0]])
                found[operator.name] = found[operator.name].unionAll(result) if operator.name in found else result
            else:
                schemas = tuple(self.plan.schemas[i] for i in inputs)
                frames[operator_id] = self._frame(operator, schemas, [frames[i] for i in inputs])
        return found

    @property
    def carried(self) -> tuple[str, ...]:
        return (TS, NEWEST) if self.newest else (TS,)

    def _check(self) -> None:
        remembering: set[OperatorId] = set()
        for operator_id in self.plan.order:
            operator = self.plan.operators[operator_id]
            below = any(i in remembering for i in self.plan.inputs[operator_id])
            if isinstance(operator, STATEFUL) and below:
                raise InputError(
                    f"plain Spark: {describe(operator)} reads results of another operator with memory, whose "
                    "event times differ in Spark; write one such operator on each path"
                )
            if below or isinstance(operator, STATEFUL):
                remembering.add(operator_id)

    def _frame(self, operator: Operator, schemas: tuple[Schema, ...], below: list[DataFrame]) -> DataFrame:
        names = schemas[0].names if schemas else ()
        starts = (0, len(names)) if isinstance(operator, Binary) else (0,) * len(schemas)
        targets = tuple(by_position(s, start) for s, start in zip(schemas, starts, strict=True))
        operator = with_renamed_inputs(operator, schemas, targets)
        match operator:
            case Source():
                return self._source(operator)
            case WindowAggregate():
                return self._aggregate(operator, below[0])
            case WindowJoin() | Conjunction() | Sequence():
                return self._pairs(operator, targets, below)
            case UserFunction():
                return user_function.apply(operator, cast(Any, below), self.carried, names)
        applied: DataFrame = STATELESS[type(operator)](operator, below, self.carried)
        return applied.toDF(*self.carried, *positions(len(applied.columns) - len(self.carried)))

    def _source(self, source: Source) -> DataFrame:
        if source.stream not in self.streams:
            raise InputError(f"no input for stream {source.stream!r}; inputs: {', '.join(self.streams) or 'none'}")
        time = f"`{source.event_time}`"
        if source.schema.type_of(source.event_time).kind is not Kind.TIMESTAMP:
            time = f"timestamp_millis({time})"
        carried = [f"{time} AS {name}" for name in self.carried]
        columns = [f"`{name}` AS c{i}" for i, name in enumerate(source.schema.names)]
        frame = self.streams[source.stream].selectExpr(*carried, *columns)
        lateness = [o.lateness_ms for o in self.plan.operators.values() if isinstance(o, STATEFUL)]
        return frame.withWatermark(TS, _interval(self.disorder_ms + max(lateness))) if lateness else frame

    def _aggregate(self, operator: WindowAggregate, rows: DataFrame) -> DataFrame:
        keys = [F.expr(typed(k.expression)).alias(f"k{i}") for i, k in enumerate(operator.keys)]
        results = [f"CAST({_native(a.expression)} AS {type_text(a.expression.type)})" for a in operator.aggregates]
        named = [F.expr(text).alias(f"a{i}") for i, text in enumerate(results)]
        newest = [F.max(NEWEST).alias(NEWEST)] if self.newest else []
        window = _window(TS, operator.window).alias("w")
        grouped = rows.groupBy(window, *keys).agg(F.count("*").alias("rows"), *named, *newest)
        values = ["w.start", "w.end", *(f"k{i}" for i in range(len(keys))), *(f"a{i}" for i in range(len(named)))]
        carried = ["w.end AS _ts", *([NEWEST] if self.newest else [])]
        return grouped.selectExpr(*carried, *(f"{v} AS c{i}" for i, v in enumerate(values)))

    def _pairs(
        self, operator: WindowJoin | Conjunction | Sequence, schemas: tuple[Schema, ...], below: list[DataFrame]
    ) -> DataFrame:
        sides = []
        for side, frame, schema in zip("lr", below, schemas, strict=True):
            renamed = zip(positions(len(schema)), schema.names, strict=True)
            carried = [f"{name} AS {side}{name}" for name in self.carried]
            sides.append(frame.selectExpr(*carried, *(f"{c} AS {name}" for c, name in renamed)))
        window: PairWindow | int = operator.within_ms if isinstance(operator, Sequence) else operator.window
        matches = [f"{a} = {b}" for a, b in operator.keys] if isinstance(operator, WindowJoin) else []
        match window:
            case int():
                matches += [f"r{TS} > l{TS}", f"r{TS} <= l{TS} + INTERVAL {window} MILLISECONDS"]
            case Within(ms):
                bounds = (f"l{TS} {sign} INTERVAL {ms} MILLISECONDS" for sign in "-+")
                matches.append(f"r{TS} BETWEEN {' AND '.join(bounds)}")
            case Tumbling() | Sliding():
                sides = [f.withColumn(f"{s}w", _window(f"{s}{TS}", window)) for s, f in zip("lr", sides, strict=True)]
                matches.append("lw = rw")
        if not isinstance(operator, WindowJoin) and not any("w" in m for m in matches):
            sides = [f.withColumn(f"{s}one", F.lit(1)) for s, f in zip("lr", sides, strict=True)]
            matches.append("lone = rone")  # Spark joins streams on equality only
        if operator.condition is not None:
            matches.append(spark_sql(operator.condition))
        joined = sides[0].join(sides[1], F.expr(" AND ".join(matches)))
        carried = [f"greatest(l{name}, r{name}) AS {name}" for name in self.carried]
        return joined.selectExpr(*carried, *schemas[0].names, *schemas[1].names)

    def _named(self, sink: Sink, frame: DataFrame) -> DataFrame:
        hidden = [NEWEST] if self.newest else []
        return frame.select(*hidden, *(F.col(f"c{i}").alias(name) for i, name in enumerate(sink.columns)))


def _interval(ms: int) -> str:
    return f"{ms} milliseconds"


def _window(column: str, window: Window) -> Column:
    match window:
        case Session(gap_ms):
            return F.session_window(column, _interval(gap_ms))
        case Sliding(size_ms, slide_ms):
            return F.window(column, _interval(size_ms), _interval(slide_ms))
        case Tumbling(size_ms):
            return F.window(column, _interval(size_ms))
    raise InputError("plain Spark has no count windows in streaming queries; use a window of time")


def _native(call: Any) -> str:
    """An aggregate as Spark's own function."""
    assert isinstance(call, Call)
    arguments = [spark_sql(a) for a in call.args]
    match call.function:
        case "count" if not arguments:
            return "count(*)"
        case "first" | "last":
            return f"{'min' if call.function == 'first' else 'max'}_by({arguments[0]}, {TS})"
        case "top_k":
            return f"slice(sort_array(collect_list({arguments[0]}), false), 1, {arguments[1]})"
    return f"{call.function}({', '.join(arguments)})"
