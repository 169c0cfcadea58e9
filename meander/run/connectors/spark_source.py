"""`spark`: any Structured Streaming source, by its format and options.

A streaming query hands each batch over and waits for its commit before Spark takes note of it. Spark repeats a batch
that it has no note of under the same number, and a number that is committed here is left out: exactly once, for every
source that Spark can replay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from meander.model.errors import InputError
from meander.model.locks import condition
from meander.model.streams import Stream
from meander.run.connectors.base import ConnectorError, Polled, SourceKind, Surroundings
from meander.run.connectors.formats import Format, joined
from meander.run.connectors.options import STREAM_OPTIONS, ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import only_here
from meander.run.connectors.secrets import revealed
from meander.run.session import active, leave_alone, start_session

OPTIONS = (
    ConnectorOption("format", "Spark's name of the source: `rate`, `kafka`, ..."),
    ConnectorOption("schema", "columns as Spark SQL writes them, for formats that need it"),
    ConnectorOption("select", "expressions that make the stream's columns: `timestamp AS ts, value`", "`*`"),
    ConnectorOption("trigger", "how often Spark looks for more", "as fast as possible"),
    ConnectorOption("checkpoint", "where Spark keeps its notes", "beside the store"),
    ConnectorOption("node_column", "the column that names the node a row comes from", "rows go to the nodes in turn"),
    ConnectorOption("option.", "an option of Spark's whose name means something else here: `option.format`"),
)


class _ClosedError(Exception):
    """The source was closed while Spark waited for a commit; the batch comes again."""


class SparkSource:
    """Implements `SourceConnector`."""

    def __init__(self, stream: Stream, surroundings: Surroundings) -> None:
        self.stream = stream
        self._options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self._spark_format = self._options.required("format", "rate")
        self._foreign = self._options.foreign((*STREAM_OPTIONS, *OPTIONS))
        self._trigger_ms = self._options.duration("trigger")
        own = surroundings.work / "spark" / stream.name
        self._owns_checkpoint = "checkpoint" not in stream.options
        self._checkpoint = own if self._owns_checkpoint else self._options.path("checkpoint", surroundings.base, "")
        plain = {k: v for k, v in stream.options.items() if k == "node_column"}
        self._format = Format(Stream(stream.name, stream.schema, stream.event_time, stream.nodes, 1.0, plain))
        self._query: StreamingQuery | None = None
        self._changed = condition("spark source")
        self._waiting: tuple[int, pa.Table] | None = None
        self._done, self._dealt, self._polled = -1, 0, False
        self._closed = False
        self._arrived: Callable[[], None] = lambda: None

    def announce(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self._done = int(offset["batch"]) if offset else -1
        self._dealt = int(offset["dealt"]) if offset else 0
        self._waiting, self._closed = None, False
        if offset is None and self._owns_checkpoint:
            shutil.rmtree(self._checkpoint, ignore_errors=True)  # notes of a stream that was never committed
        frame = self._frame()
        self._format.check_table(to_arrow_schema(frame.schema, timezone="UTC"), f"Spark's {self._spark_format} source")
        writer = frame.writeStream.foreachBatch(self._hand_over)
        if self._trigger_ms:
            writer = writer.trigger(processingTime=f"{self._trigger_ms} milliseconds")
        self._query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        if offset and offset["query"] != self._query.id:
            self.close()
            raise InputError(
                f"stream {stream.name!r}: {self._checkpoint} does not hold the notes of the query that was committed; "
                "put them back, or begin with a new store"
            )

    def _frame(self) -> DataFrame:
        spark = start_session("meander")
        try:
            with active(spark):
                return self._loaded(spark)
        except (PySparkException, Py4JError) as error:
            raise InputError(f"stream {self.stream.name!r}: Spark refuses this source: {_first_line(error)}") from None

    def _loaded(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format(self._spark_format).options(**revealed(self._foreign, self._options.what))
        if "schema" in self._options.values:
            reader = reader.schema(self._options.values["schema"])
        frame = reader.load()
        select = self._options.text("select").replace("{", "{{").replace("}", "}}")
        return spark.sql(f"SELECT {select} FROM {{frame}}", frame=frame) if select else frame

    def _hand_over(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Spark: returns when the batch is committed."""
        leave_alone(start_session("meander"))
        if batch_id <= self._done:
            return
        table = frame.toArrow()
        if not len(table):
            return
        with self._changed:
            self._waiting = (batch_id, table)
            self._arrived()
            self._changed.wait_for(lambda: self._closed or self._done >= batch_id)
            if self._done < batch_id:
                raise _ClosedError

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        """A batch of Spark's is committed as a whole; Spark's own options bound it."""
        assert self._query is not None
        with self._changed:
            waiting, polled = self._waiting, self._polled
        if waiting is None or polled:
            if not self._query.isActive and (error := self._query.exception()) is not None:
                raise ConnectorError(f"Spark's query ended: {_first_line(error)}")
            return None
        batch_id, table = waiting
        parsed = self._format.typed(table)
        rows, producers, malformed = joined([parsed], self._format, self._dealt)
        self._dealt += len(rows)
        self._polled = True
        offset = {"query": self._query.id, "batch": batch_id, "dealt": self._dealt}
        return Polled(rows, producers, offset, malformed)

    def committed(self) -> None:
        with self._changed:
            assert self._waiting is not None
            self._done, self._waiting, self._polled = self._waiting[0], None, False
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting, self._polled = None, False
            self._changed.notify_all()
        if self._query is not None:
            self._query.stop()
            self._query = None


def _first_line(error: BaseException) -> str:
    """The first line of Spark's error message, without its stack trace."""
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return (str(text).strip().splitlines() or [type(error).__name__])[0]


def make(stream: Stream, surroundings: Surroundings) -> SparkSource:
    return SparkSource(stream, surroundings)


KIND = SourceKind(make, OPTIONS, only_here("Spark's notes of it are on that machine"), open_options=True)
