"""All that the execution of stages uses of Spark and is not its public API. PySpark's version is pinned because of it.

Two things need it. A plan that runs again reads input that can be swapped: Arrow bytes in a single partition that is
declared to be partitioned by fragment, so that nothing is shuffled. And it runs on the driver's own threads, where its
input is anyway. A job of one small task takes Spark 13 to 30 ms here, of which the plan itself needs 1 to 2: it is
serialised, sent, scheduled, read again, its classes are looked up. All that it needs to run is a task's context, which
accounts for memory and is told of the end. `DriverPlan.java` makes one; the compiler that Spark generates its own code
with compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from meander.model.locks import lock

SOURCE = "DriverPlan.java"

AS_JOBS = "spark.meander.batchesAsJobs"
"""A setting of Spark's: "true" makes a job of every run, for those who want to see them in Spark's own tools."""

_compiling = lock("plan compiler")


class SwappableInput(NamedTuple):
    """A frame over Arrow bytes, and the partition of Spark's that holds them."""

    frame: DataFrame
    partitions: Sequence[Any]
    """A single one, if Spark is as it was."""


class SparkInternals:
    """Of one session. What runs on the driver takes its memory from Spark's own pool."""

    def __init__(self, spark: SparkSession) -> None:
        """Fails in any way where Spark is another one."""
        self._spark, self._session = spark, cast(Any, spark)._jsparkSession
        self._jvm, self._gateway = cast(Any, spark._jvm), cast(Any, spark.sparkContext._gateway)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._objects: dict[str, Any] = {}
        fields = self._loader.loadClass("org.apache.spark.SparkEnv").getDeclaredFields()
        (pool,) = [field for field in fields if field.getType().getSimpleName() == "MemoryManager"]
        pool.setAccessible(True)  # methods of this class cannot be looked up: they name others that are not installed
        self._pool = pool.get(cast(Any, spark.sparkContext._jsc).sc().env())
        self._as_jobs = cast(str, spark.conf.get(AS_JOBS, "false")).lower() == "true"
        with _compiling:
            self._constructor = _constructor(self._gateway)

    def driver_plan(
        self, frame: DataFrame, inputs: Sequence[Any], paths: Sequence[str], out: str
    ) -> Callable[[int], None]:
        """Runs the frame's plan: Arrow batches go to a file, the input partitions are read anew from theirs.

        It is told by bits which files there are; the other partitions are empty.
        """
        batches = cast(Any, frame)._jdf.toArrowBatchRdd()
        listed = [self._listed(things) for things in (inputs, paths)]
        plan = self._constructor.newInstance(self._array(self._as_jobs, self._pool, batches, *listed, out))
        run: Callable[[int], None] = plan.run
        return run

    def physical_plan(self, frame: DataFrame) -> str:
        """The frame's physical plan as Spark prints it."""
        return str(cast(Any, frame)._jdf.queryExecution().executedPlan().toString())

    def memory_used(self) -> int:
        """Bytes that running tasks, ours and Spark's, have for what they compute."""
        return int(self._pool.executionMemoryUsed())

    def swappable(self, path: str, schema: pa.Schema, partitioned_by: str) -> SwappableInput:
        """A frame over the Arrow stream in a file, declared to be partitioned by a column: nothing is shuffled."""
        loaded = self._jvm.PythonSQLUtils.readArrowStreamFromFile(path)
        described = from_arrow_schema(schema).json()
        scan = self._jvm.PythonSQLUtils.toDataFrame(loaded, described, self._session).queryExecution().analyzed()
        none = self._object("scala.None")
        columns = [scan.output().apply(i) for i in range(len(schema))]
        by = self._hash_partitioning([c for c in columns if c.name() == partitioned_by])
        output, rdd, ordering = scan.output(), scan.rdd(), scan.outputOrdering()
        scan = scan.copy(output, rdd, by, ordering, False, none, self._session, none, none, False)
        while rdd.dependencies().size():
            rdd = rdd.dependencies().apply(0).rdd()
        frame = self._object("org.apache.spark.sql.classic.Dataset").ofRows(self._session, scan)
        return SwappableInput(DataFrame(frame, self._spark), rdd.partitions())

    def _hash_partitioning(self, columns: Sequence[Any]) -> Any:
        name = "org.apache.spark.sql.catalyst.plans.physical.HashPartitioning"
        constructor = self._loader.loadClass(name).getConstructors()[0]
        return constructor.newInstance(self._array(self._jvm.PythonUtils.toSeq(self._listed(columns)), 1))

    def _object(self, name: str) -> Any:
        """A Scala object."""
        if name not in self._objects:
            self._objects[name] = self._loader.loadClass(f"{name}$").getField("MODULE$").get(None)
        return self._objects[name]

    def _array(self, *things: Any) -> Any:
        found = self._gateway.new_array(self._jvm.Object, len(things))
        for place, thing in enumerate(things):
            found[place] = thing
        return found

    def _listed(self, things: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for thing in things:
            found.add(thing)
        return found


def concurrent_tasks(spark: SparkSession) -> int:
    """How many tasks executors run at the same time now."""
    context = cast(Any, spark.sparkContext._jsc).sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


@lru_cache(maxsize=1)
def _constructor(gateway: Any) -> Any:
    """Compiled once in a Java process: the way there takes classes of the same name for the same."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("meander.run.execution").joinpath(SOURCE).read_text())
    return compiler.getClassLoader().loadClass("meander.DriverPlan").getConstructors()[0]
