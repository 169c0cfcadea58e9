"""Runs stages on Spark without planning them again: a plan is prepared once, each batch only swaps its input.

Planning takes most of a small batch's time. A stage's plan depends on nothing but schemas, so it is analysed, optimised
and compiled once, over empty input; for a batch the Arrow bytes inside the input's single partition are replaced and
the same job runs again. This uses parts of Spark that are not public, so nothing relies on it: a plan that keeps
something between runs (a shuffle, a broadcast, a Python worker), and every failure here, goes the plain way.
"""

from __future__ import annotations

import logging
import os
import struct
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from meander.run.cutting import cut
from meander.run.frames import FRAGMENT
from meander.run.lean import Lean, is_lean
from meander.run.process import is_running
from meander.run.runner import PlainRunner
from meander.run.session import usable_cores
from meander.run.template import Stage

_log = logging.getLogger(__name__)

KEEPS_RESULTS = ("Exchange", "Subquery", "InMemory", "Broadcast", "Python", "MapInArrow", "FileScan", "BatchScan")
"""Parts of a physical plan that remember their first result, or talk to workers: such a plan is not run again."""

PREFIX = "meander-plan-"
"""Begins the names of the files that input and output go through, before the process's number."""

MOST_FAILURES = 3
"""Failures after which a stage goes the plain way for good."""

LARGEST_BYTES = 100_000_000
"""Input travels inside a task's description; larger batches go the plain way."""


LONGEST_JOB_S = 300
"""No part of a batch takes that long; a job that does is given up and its batch goes the plain way."""


class NotRepeatableError(Exception):
    """The plan cannot be prepared, and why."""


class PreparedRunner:
    """Implements `Runner`. A plan is prepared when it is first needed, once for each slot that runs it meanwhile."""

    def __init__(self, spark: SparkSession, cores: int | None = None) -> None:
        """`cores` is into how many parts a large batch is cut at most: as many as there are, by default."""
        self.spark = spark
        self.plain = PlainRunner(spark)
        self._idle: dict[str, list[PreparedPlan]] = {}
        self._lean: dict[str, Lean | None] = {}
        self._refused: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._lock = threading.Lock()
        self._cores = usable_cores() if cores is None else cores
        self._pool = ThreadPoolExecutor(max(1, self._cores), "part")
        _sweep(_exchange_folder())

    @property
    def refused(self) -> dict[str, str]:
        """Stages that go the plain way, with the reason."""
        return dict(self._refused)

    @property
    def failures(self) -> int:
        """Batches that had to go the plain way, although their stage was not refused before."""
        return sum(self._failures.values())

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Prepares plans ahead of their first batch, by running them over nothing. Those that ran before are ready."""
        for stage in {s.key: s for s in stages}.values():
            if stage.key not in self._idle and stage.key not in self._refused:
                self.run(stage, [schema.empty_table() for schema in stage.frame_schemas])

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        """Whether all of these ran before, or need no preparation."""
        return all(s.key in self._idle or s.key in self._refused for s in stages)

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        parts = [list(tables)] if stage.key in self._refused else cut(stage, tables, self._cores)
        if len(parts) == 1:
            return self._run(stage, tables)
        return pa.concat_tables(self._pool.map(lambda part: self._run(stage, part), parts))

    def _run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        if stage.key in self._refused or sum(t.nbytes for t in tables) > LARGEST_BYTES:
            return self.plain.run(stage, tables)
        given = [t.cast(s) for t, s in zip(tables, stage.frame_schemas, strict=True)]
        try:
            lean = self._lean_of(stage)
            plan = self._take(stage, lean)
            result = plan.run(given) if lean is None else lean.whole(given, plan.run(lean.outgoing(given)))
        except (NotRepeatableError, Py4JError, pa.ArrowException, OSError, AttributeError, TypeError) as error:
            self._failed(stage, error)
            return self.plain.run(stage, tables)
        with self._lock:
            self._idle.setdefault(stage.key, []).append(plan)
        return result

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.plain.late(stage, tables)

    def close(self) -> None:
        """Removes the files that plans exchange their input and output by."""
        self._pool.shutdown()
        with self._lock:
            for plans in self._idle.values():
                for plan in plans:
                    plan.close()
            self._idle.clear()

    def _failed(self, stage: Stage, error: Exception) -> None:
        """A plan that cannot be repeated is given up; other failures may have been the batch's, such as its size."""
        reason = str(error).strip().splitlines()[0]
        self._failures[stage.key] = self._failures.get(stage.key, 0) + 1
        if isinstance(error, NotRepeatableError) or self._failures[stage.key] >= MOST_FAILURES:
            self._refused[stage.key] = reason
        _log.info("a batch of a stage runs unprepared: %s", reason)

    def _lean_of(self, stage: Stage) -> Lean | None:
        if stage.key not in self._lean:
            self._lean[stage.key] = Lean.of(stage) if is_lean(stage) else None
        return self._lean[stage.key]

    def _take(self, stage: Stage, lean: Lean | None) -> PreparedPlan:
        with self._lock:
            idle = self._idle.get(stage.key)
            if idle:
                return idle.pop()
        if lean is not None:
            return PreparedPlan(self.spark, lean.plan, lean.schemas)
        return PreparedPlan(self.spark, lambda frames: stage.plan(frames), stage.frame_schemas)


class PreparedPlan:
    """One physical plan over inputs that can be swapped."""

    def __init__(
        self, spark: SparkSession, plan: Callable[[Sequence[DataFrame]], DataFrame], schemas: Sequence[pa.Schema]
    ) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._base = _exchange_folder() / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._paths = [Path(f"{self._base}-{i}") for i in range(len(schemas))]
        self._setters: list[Callable[[Any], None]] = []
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
        self._out = f"{self._base}-out"
        self._stream = self._jvm.java.io.DataOutputStream(self._jvm.java.io.FileOutputStream(self._out, True))
        self._file = open(self._out, "rb", buffering=0)  # noqa: SIM115 - open as long as the plan lives
        self._await = self._object("scala.concurrent.Await").result
        self._longest = self._jvm.scala.concurrent.duration.Duration.apply(f"{LONGEST_JOB_S} s")
        self._read = self._jvm.PythonSQLUtils.readArrowStreamFromFile
        self._write = self._jvm.PythonRDD.writeIteratorToStream

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One job. Only one at a time."""
        for table, setter, path in zip(tables, self._setters, self._paths, strict=True):
            _write_stream(path, table)
            setter(self._read(str(path)).toSeq())
        os.truncate(self._out, 0)
        self._file.seek(0)
        self._write(self._result().iterator(), self._stream)
        data, at, batches = pa.py_buffer(self._file.read()), 0, []
        while at < data.size:
            (size,) = struct.unpack_from(">i", data, at)
            batches.append(pa.ipc.read_record_batch(data.slice(at + 4, size), self.schema))
            at += 4 + size
        return pa.Table.from_batches(batches, self.schema)

    def _result(self) -> Any:
        """The job's result. A JVM without memory may lose it on its way, and would let everybody wait for ever."""
        job = self._collect()
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
        return self._loader.loadClass(f"{name}$").getField("MODULE$").get(None)


def _write_stream(path: Path, table: pa.Table) -> None:
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _exchange_folder() -> Path:
    """Memory that both processes see, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _sweep(folder: Path) -> None:
    """Removes what processes that are gone left behind."""
    for path in folder.glob(f"{PREFIX}*"):
        number = path.name.removeprefix(PREFIX).split("-")[0]
        if number.isdigit() and not is_running(int(number)):
            path.unlink(missing_ok=True)
