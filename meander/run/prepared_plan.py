"""A physical plan of Spark that runs again and again over swapped input, alone or as a part of a job with others.

It is analysed, optimised and compiled once, over empty input that is declared to be partitioned by fragment; for a
batch the Arrow bytes inside the input's single partition are replaced and the same job runs again. This uses parts of
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
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from meander.run.frames import FRAGMENT

KEEPS_RESULTS = ("Exchange", "Subquery", "InMemory", "Broadcast", "Python", "MapInArrow", "FileScan", "BatchScan")
"""Parts of a physical plan that remember their first result, or talk to workers: such a plan is not run again."""

PREFIX = "meander-plan-"
"""Begins the names of the files that input and output go through, before the process's number."""

LONGEST_JOB_S = 300
"""No part of a batch takes that long; a job that does is given up and its batch goes the plain way."""


MOST_JOINED = 16
"""Jobs with others that a plan remembers."""


class NotRepeatableError(Exception):
    """The plan cannot be prepared, and why."""


class PreparedPlan:
    """One physical plan over inputs that can be swapped."""

    def __init__(
        self, spark: SparkSession, plan: Callable[[Sequence[DataFrame]], DataFrame], schemas: Sequence[pa.Schema]
    ) -> None:
        self._spark, self._jvm = cast(Any, spark), cast(Any, spark._jvm)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._objects: dict[str, Any] = {}
        self._base = exchange_folder() / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._paths = [Path(f"{self._base}-{i}") for i in range(len(schemas))]
        self._setters: list[Callable[[Any], None]] = []
        self._holds = [False] * len(schemas)
        """Which inputs have rows in them: those that stay empty need no exchange."""
        inputs = [self._input(spark, path, schema) for path, schema in zip(self._paths, schemas, strict=True)]
        frame: Any = plan(inputs)
        self.schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
        text = frame._jdf.queryExecution().executedPlan().toString()
        keeping = [part for part in KEEPS_RESULTS if part in text]
        if keeping:
            self.close()
            raise NotRepeatableError(f"its physical plan has {', '.join(keeping)}")
        tag = self._object("scala.reflect.ClassTag").apply(self._jvm.java.lang.Class.forName("[B"))
        rdd = frame._jdf.toArrowBatchRdd()
        self._collect = self._object("org.apache.spark.rdd.RDD").rddToAsyncRDDActions(rdd, tag).collectAsync
        self._joined: dict[tuple[str, ...], Callable[[], Any]] = {}
        """Jobs with other plans, by whose they are."""
        self._as_part = rdd.glom()
        """The result as one element, as the part of a job has to be."""
        self._out = f"{self._base}-out"
        self._stream = self._jvm.java.io.DataOutputStream(self._jvm.java.io.FileOutputStream(self._out, True))
        self._file = open(self._out, "rb", buffering=0)  # noqa: SIM115 - open as long as the plan lives
        self._await = self._object("scala.concurrent.Await").result
        self._longest = self._jvm.scala.concurrent.duration.Duration.apply(f"{LONGEST_JOB_S} s")
        self._read = self._jvm.PythonSQLUtils.readArrowStreamFromFile
        self._write = self._jvm.PythonRDD.writeIteratorToStream

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One job. Only one at a time."""
        self.load(tables)
        return self.take(self._waited_for(self._collect()).iterator())

    def load(self, tables: Sequence[pa.Table]) -> None:
        """Puts the tables where the next job reads them."""
        for place, (table, setter, path) in enumerate(zip(tables, self._setters, self._paths, strict=True)):
            if len(table) or self._holds[place]:
                self._holds[place] = True  # until it is known to be empty, whatever goes wrong here
                _write_stream(path, table)
                setter(self._read(str(path)).toSeq())
                self._holds[place] = len(table) > 0

    def take(self, result: Any) -> pa.Table:
        """A job's result, an iterator over Arrow batches in the JVM, as a table."""
        os.truncate(self._out, 0)
        self._file.seek(0)
        self._write(result, self._stream)
        data, at, batches = pa.py_buffer(self._file.read()), 0, []
        while at < data.size:
            (size,) = struct.unpack_from(">i", data, at)
            batches.append(pa.ipc.read_record_batch(data.slice(at + 4, size), self.schema))
            at += 4 + size
        return pa.Table.from_batches(batches, self.schema)

    def run_with(self, plans: Sequence[PreparedPlan]) -> Callable[[int], Any]:
        """One job for several plans whose input is in place; gives the result of each by its number."""
        collect = self._joined.get(others := tuple(plan._base.name for plan in plans))
        if collect is None:
            if len(self._joined) >= MOST_JOINED:
                self._joined.clear()
            collect = self._joined[others] = self._join(plans)
        results = self._waited_for(collect())
        batches = self._object("scala.collection.ArrayOps")
        return lambda number: getattr(batches, "iterator$extension")(results.apply(number))

    def _join(self, plans: Sequence[PreparedPlan]) -> Callable[[], Any]:
        listed = self._jvm.java.util.ArrayList()
        for plan in plans:
            listed.add(plan._as_part)
        parts = self._object("scala.reflect.ClassTag").apply(self._jvm.java.lang.Class.forName("[[B"))
        whole = self._spark.sparkContext._jsc.sc().union(self._jvm.PythonUtils.toSeq(listed), parts)
        found: Callable[[], Any] = (
            self._object("org.apache.spark.rdd.RDD").rddToAsyncRDDActions(whole, parts).collectAsync
        )
        return found

    def _waited_for(self, job: Any) -> Any:
        """The job's result. A JVM without memory may lose it on its way, and would let everybody wait for ever."""
        try:
            return self._await(job, self._longest)
        except Py4JError:
            job.cancel()
            raise

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
        self._setters.append(getattr(partitions[0], "values_$eq"))
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


def jointly(plans: Sequence[PreparedPlan], inputs: Sequence[Sequence[pa.Table]]) -> list[pa.Table]:
    """One job with a task for each plan, and what each gives."""
    for plan, tables in zip(plans, inputs, strict=True):
        plan.load(tables)
    results = plans[0].run_with(plans)
    return [plan.take(results(number)) for number, plan in enumerate(plans)]


def _write_stream(path: Path, table: pa.Table) -> None:
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def exchange_folder() -> Path:
    """Memory that both processes see, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
