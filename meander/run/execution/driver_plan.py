"""Compiled plans of Spark's that run on the driver's own threads, where their input is anyway.

A job of one small task takes Spark 13 to 30 ms here, of which the plan itself needs 1 to 2: it is serialised, sent,
scheduled, read again, its classes are looked up. All that it needs to run is a task's context, which accounts for
memory and is told of the end. `DriverPlan.java` makes one; the compiler that Spark generates its own code with
compiles it. Both use parts of Spark that are not public.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from pyspark.sql import SparkSession

SOURCE = "DriverPlan.java"

AS_JOBS = "spark.meander.batchesAsJobs"
"""A setting of Spark's: "true" makes a job of every run, for those who want to see them in Spark's own tools."""

_compiling = threading.Lock()


class DriverPlans:
    """Makes plans run on the driver, all with Spark's own pool of memory."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm, self._gateway = cast(Any, spark._jvm), cast(Any, spark.sparkContext._gateway)
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        fields = loader.loadClass("org.apache.spark.SparkEnv").getDeclaredFields()
        (pool,) = [field for field in fields if field.getType().getSimpleName() == "MemoryManager"]
        pool.setAccessible(True)  # methods of this class cannot be looked up: they name others that are not installed
        self._pool = pool.get(cast(Any, spark.sparkContext._jsc).sc().env())
        self._as_jobs = cast(str, spark.conf.get(AS_JOBS, "false")).lower() == "true"
        with _compiling:
            self._constructor = _constructor(self._gateway)

    def plan(self, batches: Any, inputs: Sequence[Any], paths: Sequence[str], out: str) -> Any:
        """A plan whose result, an RDD of Arrow batches, goes to a file; the inputs are partitions, read from files."""
        listed = [self._listed(things) for things in (inputs, paths)]
        arguments = self._gateway.new_array(self._jvm.Object, 6)
        for place, argument in enumerate((self._as_jobs, self._pool, batches, *listed, out)):
            arguments[place] = argument
        return self._constructor.newInstance(arguments)

    def memory_used(self) -> int:
        """Bytes that running tasks, ours and Spark's, have for what they compute."""
        return int(self._pool.executionMemoryUsed())

    def _listed(self, things: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for thing in things:
            found.add(thing)
        return found


@lru_cache(maxsize=1)
def _constructor(gateway: Any) -> Any:
    """Compiled once in a Java process: the way there takes classes of the same name for the same."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("meander.run.execution").joinpath(SOURCE).read_text())
    return compiler.getClassLoader().loadClass("meander.DriverPlan").getConstructors()[0]
