"""Runs a plan over a large batch without the driver in between: executors fetch rows and bring results themselves.

Tuples are not part of tasks' descriptions and collected results, which bounds what a driver can take. Each task asks
the site's parts server for its part of the rows, the plan runs as any plan of Spark does, with exchanges between
executors where rows have to meet, and each task brings its part of the result there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from meander.model.errors import InputError
from meander.run.execution.executors.encryption import certificate_for
from meander.run.execution.executors.part import BROUGHT, bringing, fetching
from meander.run.execution.executors.server import BATCH_ROWS, Attempt, PartsServer
from meander.run.execution.spark_internals import concurrent_tasks
from meander.run.frames import mapped
from meander.run.session import active

LEAST_ROWS = 500_000
"""Rows from which on a batch is worth being fetched by executors, unless `ROWS_SETTING` says otherwise."""
ROWS_SETTING = "spark.meander.executorRows"

LOCAL = "local"


def has_executors(spark: SparkSession) -> bool:
    """Whether tasks run in processes of their own, here or on other machines."""
    master = str(spark.sparkContext.master)
    return master != LOCAL and not master.startswith(f"{LOCAL}[")


def _least_rows(spark: SparkSession) -> int:
    said = str(spark.conf.get(ROWS_SETTING, str(LEAST_ROWS)))
    if not said.isdecimal() or not int(said):
        raise InputError(f"{ROWS_SETTING} must be a number of rows such as {LEAST_ROWS}, not {said!r}")
    return int(said)


class BroughtError(PySparkException):
    """Executors have brought other rows than they reported."""


class ExecutorsRunner:
    """For any number of batches at once, from any threads."""

    def __init__(self, spark: SparkSession, least_rows: int | None = None) -> None:
        self.least_rows = _least_rows(spark) if least_rows is None else least_rows
        self.batches = 0
        """How many were run."""
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
        host = str(spark.conf.get("spark.driver.host"))
        bind = str(spark.conf.get("spark.driver.bindAddress", host))
        self._server = PartsServer(host, bind, certificate_for(spark))

    @property
    def parts(self) -> int:
        """How many parts a batch has now: one for each task that executors run at the same time."""
        return max(2, concurrent_tasks(self._spark))

    def run(self, plan: Callable[[Sequence[DataFrame]], DataFrame], tables: Sequence[pa.Table]) -> pa.Table:
        """The plan's result over frames of these rows, in any order."""
        batch, parts = self._server.offer(tables), self.parts
        self._spark.conf.set("spark.sql.shuffle.partitions", parts)
        try:
            with active(self._spark):
                return self._run(plan, tables, batch, parts)
        finally:
            self._server.forget(batch)

    def _run(
        self, plan: Callable[[Sequence[DataFrame]], DataFrame], tables: Sequence[pa.Table], batch: str, parts: int
    ) -> pa.Table:
        frame = plan([self._frame(batch, number, table, parts) for number, table in enumerate(tables)])
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        reports = mapped(frame, bringing(self._server.contact, batch), from_arrow_schema(BROUGHT)).collect()
        brought = self._server.brought(batch, [Attempt(row["part"], row["attempt"]) for row in reports])
        rows, wanted = sum(b.num_rows for b in brought), sum(row["rows"] for row in reports)
        if rows != wanted:
            raise BroughtError(f"executors brought {wanted:,} rows, of which {rows:,} are there")
        self.batches += 1
        return pa.Table.from_batches(brought).cast(schema) if brought else schema.empty_table()

    def close(self) -> None:
        self._server.shutdown()

    def _frame(self, batch: str, number: int, table: pa.Table, parts: int) -> DataFrame:
        """A frame of rows that executors fetch; a table of few rows is one part."""
        count = parts if len(table) >= parts else 1
        numbers = self._spark.range(0, count, 1, count)
        fetch = fetching(self._server.contact, batch, number, count)
        return mapped(numbers, fetch, from_arrow_schema(table.schema))
