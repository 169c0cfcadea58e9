"""A physical plan of Spark that runs again and again over swapped input.

It is analysed, optimised and compiled once, over empty input that is declared to be partitioned by fragment; for a
batch the Arrow bytes inside the input's single partition are replaced and the same plan runs again. This uses parts of
Spark that are not public.
"""

from __future__ import annotations

import os
import struct
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from meander.run.execution.driver_plan import DriverPlans
from meander.run.frames import FRAGMENT

KEEPS_RESULTS = ("Exchange", "Subquery", "InMemory", "Broadcast", "Python", "MapInArrow", "FileScan", "BatchScan")
"""Parts of a physical plan that remember their first result, or talk to workers: such a plan is not run again."""

PREFIX = "meander-plan-"
"""Begins the names of the files that input and output go through, before the process's number."""


class NotRepeatableError(Exception):
    """The plan cannot be prepared, and why."""


class PreparedPlan:
    """One physical plan over inputs that can be swapped."""

    def __init__(
        self,
        spark: SparkSession,
        plans: DriverPlans,
        plan: Callable[[Sequence[DataFrame]], DataFrame],
        schemas: Sequence[pa.Schema],
    ) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._objects: dict[str, Any] = {}
        self._base = exchange_folder() / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._paths = [Path(f"{self._base}-{i}") for i in range(len(schemas))]
        self._partitions: list[Any] = []
        inputs = [self._input(spark, path, schema) for path, schema in zip(self._paths, schemas, strict=True)]
        frame: Any = plan(inputs)
        self.schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
        text = frame._jdf.queryExecution().executedPlan().toString()
        keeping = [part for part in KEEPS_RESULTS if part in text]
        if keeping:
            self.close()
            raise NotRepeatableError(f"its physical plan has {', '.join(keeping)}")
        self._out = Path(f"{self._base}-out")
        paths = [str(path) for path in self._paths]
        self._run = plans.plan(frame._jdf.toArrowBatchRdd(), self._partitions, paths, str(self._out)).run

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One run at a time."""
        given = 0
        for place, (table, path) in enumerate(zip(tables, self._paths, strict=True)):
            if len(table):
                _write_stream(path, table)
                given |= 1 << place
        self._run(given)
        data, at, batches = pa.py_buffer(self._out.read_bytes()), 0, []
        while at < data.size:
            (size,) = struct.unpack_from(">i", data, at)
            batches.append(pa.ipc.read_record_batch(data.slice(at + 4, size), self.schema))
            at += 4 + size
        return pa.Table.from_batches(batches, self.schema)

    def close(self) -> None:
        for path in (*self._paths, Path(f"{self._base}-out")):
            path.unlink(missing_ok=True)

    def _input(self, spark: SparkSession, path: Path, schema: pa.Schema) -> DataFrame:
        """A frame over one partition of Arrow bytes, declared to be partitioned by fragment: nothing is shuffled."""
        _write_stream(path, schema.empty_table())
        session = spark._jsparkSession
        loaded = self._jvm.PythonSQLUtils.readArrowStreamFromFile(str(path))
        scan = (
            self._jvm.PythonSQLUtils.toDataFrame(loaded, from_arrow_schema(schema).json(), session)
            .queryExecution()
            .analyzed()
        )
        none = self._object("scala.None")
        columns = [scan.output().apply(i) for i in range(len(schema))]
        by = self._partitioning(spark, [c for c in columns if c.name() == FRAGMENT])
        output, rdd, ordering = scan.output(), scan.rdd(), scan.outputOrdering()
        scan = scan.copy(output, rdd, by, ordering, False, none, session, none, none, False)
        while rdd.dependencies().size():
            rdd = rdd.dependencies().apply(0).rdd()
        partitions = rdd.partitions()
        if len(partitions) != 1:
            raise NotRepeatableError(f"its input has {len(partitions)} partitions")
        self._partitions.append(partitions[0])
        return DataFrame(self._object("org.apache.spark.sql.classic.Dataset").ofRows(session, scan), spark)

    def _partitioning(self, spark: SparkSession, columns: list[Any]) -> Any:
        name = "org.apache.spark.sql.catalyst.plans.physical.HashPartitioning"
        constructor = self._loader.loadClass(name).getConstructors()[0]
        listed = self._jvm.java.util.ArrayList()
        for column in columns:
            listed.add(column)
        gateway: Any = spark.sparkContext._gateway
        arguments = gateway.new_array(self._jvm.Object, 2)
        arguments[0], arguments[1] = self._jvm.PythonUtils.toSeq(listed), 1
        return constructor.newInstance(arguments)

    def _object(self, name: str) -> Any:
        """A Scala object."""
        if name not in self._objects:
            self._objects[name] = self._loader.loadClass(f"{name}$").getField("MODULE$").get(None)
        return self._objects[name]


def _write_stream(path: Path, table: pa.Table) -> None:
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def exchange_folder() -> Path:
    """Memory that both processes see, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
