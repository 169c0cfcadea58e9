"""`spark`: results through Spark's batch writer, by format and options.

File formats write each range of rows into a directory of its own, `batch=<first row>`, which a second attempt
overwrites: exactly once. Delta leaves out a batch it has, by application and version: exactly once. Other formats
append: at least once, because a crash between write and acknowledgement writes the range again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.options import SINK_OPTIONS, ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import SHARED, if_shared
from meander.run.connectors.secrets import revealed
from meander.run.session import active, start_session

FILE_FORMATS = ("parquet", "json", "csv", "orc", "avro", "xml")
OPTIONS = (
    ConnectorOption("format", "Spark's name of the sink: `parquet`, `jdbc`, `delta`, ..."),
    ConnectorOption("path", "where files go, for formats that write files"),
    ConnectorOption("table", "the table to append to, instead of a path"),
    ConnectorOption("option.", "an option of Spark's whose name means something else here: `option.format`"),
    SHARED,
)


class SparkSink:
    """Implements `SinkConnector`."""

    fixed_ranges = True

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        options = ConnectorOptions(binding.target.options, f"sink {binding.target.name!r}")
        self._format = options.required("format", "parquet")
        self._foreign = options.foreign((*SINK_OPTIONS, *OPTIONS))
        self._what = options.what
        self._table = options.text("table")
        self._path = options.text("path")
        self._application = binding.name
        if self._format in FILE_FORMATS and not self._table:
            self._path = options.required("path", "results/{query}")
        self._path = self._path.replace("{query}", binding.query).replace("{sink}", binding.target.name)
        if self._path and "://" not in self._path:
            self._path = str(surroundings.base / self._path)

    @property
    def path(self) -> str | None:
        return self._path or None

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """A range that was begun is written again as a whole."""

    def write(self, table: pa.Table, first: int) -> Any:
        spark = start_session("meander")
        with active(spark):
            self._write(spark.createDataFrame(table.combine_chunks()).coalesce(1), first)
        return None

    def _write(self, frame: DataFrame, first: int) -> None:
        writer = frame.write.format(self._format).options(**revealed(self._foreign, self._what))
        if self._format == "delta":
            writer = writer.option("txnAppId", self._application).option("txnVersion", first)
        if self._table:
            writer.mode("append").saveAsTable(self._table)
        elif self._format in FILE_FORMATS:
            writer.mode("overwrite").save(f"{self._path}/batch={first:012d}")
        else:
            writer.mode("append").save(self._path or None)

    def close(self) -> None:
        """The session goes on."""


def make(binding: SinkBinding, surroundings: Surroundings) -> SparkSink:
    return SparkSink(binding, surroundings)


KIND = SinkKind(make, OPTIONS, if_shared, open_options=True)
