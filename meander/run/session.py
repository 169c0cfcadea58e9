"""Starts the Spark session of a site host, with the settings that make small batches fast.

A batch of a slot is a few thousand tuples, so what counts is not parallelism but the fixed cost of planning, of
exchanges that one partition does not need and of committing to the checkpoint. `settings` is the whole list.
On this machine everything stays on the loopback interface: a session starts without a network and on hosts whose own
name does not resolve. Executors on other machines have to reach the driver, so there Spark chooses its address, or
`spark.driver.host` says it. Where Spark runs already, Meander is a guest there: see `guest_session`.
"""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from meander.model.errors import OutsideError
from meander.model.locks import reentrant_lock
from meander.run.guest_session import GuestSession, guest_of
from meander.run.java import java_home_for_spark
from meander.run.java_errors import said

LOOPBACK = "127.0.0.1"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
JAVA_OPTIONS = (
    # A query with a Python foreachBatch overflows the default stack when it stops.
    "-Xss16m",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
)


FUNCTION_S = 120
"""The time that a user's function may take for a batch of Arrow's: one that never returns would stop its slot for
ever."""
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
PLAIN_FILES = "spark.hadoop.fs.file.impl"
CODE_CACHE_ENTRIES = 2_000
LEAST_HEAP_MB, MOST_HEAP_MB = 2_000, 8_000


def settings(app_name: str, cores: int, memory: str | None = None) -> dict[str, str]:
    """Spark's configuration for a site host on this machine."""
    return {
        "spark.app.name": app_name,
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": memory or _heap(),
        "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
        # Quiet: results and progress are Meander's to show.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # There is no page of Spark's: what it would show of earlier jobs is not kept for it.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "20",
        # Slots share the cores evenly.
        "spark.scheduler.mode": "FAIR",
        # One partition per batch needs no exchange, and nothing to adapt.
        "spark.default.parallelism": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # Arrow tables become cached partitions at once instead of rows inside the plan.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        # Commits write plain files: the default forks `chmod` for each one.
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # No checksum files beside the checkpoint's, and fewer forks.
        PLAIN_FILES: "org.apache.hadoop.fs.RawLocalFileSystem",
        # Hadoop sets modes itself, whatever the process's umask says: nobody else reads what slots keep.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.session.timeZone": "UTC",
        # Plans are prepared once and run again: no broadcast of a first batch, no shuffle where one partition will do.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        # Room for the classes of all plans that a host keeps prepared; with less, steps compile them again and again.
        "spark.sql.codegen.cache.maxEntries": str(CODE_CACHE_ENTRIES),
        # A busy machine takes its time to start a Python worker.
        "spark.python.authenticate.socketTimeout": "60s",
        # A worker that says nothing for so long is ended, and what it ran counts as failed.
        "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": str(FUNCTION_S),
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
        # A batch travels inside its task's description.
        "spark.rpc.message.maxSize": "512",
    }


# The loopback interface only, found without a name lookup.
ON_THIS_MACHINE = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def is_on_this_machine(master: str) -> bool:
    """Whether a master's executors are here.

    >>> [is_on_this_machine(m) for m in ("local[2]", "spark://127.0.0.1:7077", "spark://cloud:7077", "yarn")]
    [True, True, False, False]
    """
    return master.startswith(("local", f"spark://{LOOPBACK}:", "spark://localhost:"))


_own: SparkSession | None = None
"""The session of this process that is Meander's, if there is one: it has started Spark, or is a guest."""
_choosing = reentrant_lock("session")


def start_session(
    app_name: str,
    *,
    cores: int | None = None,
    memory: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Meander's Spark session in this process, started if Spark does not run here; one that runs is returned as it is.

    Where the user has started Spark it is a session of its own beside theirs, which stays as it is. `cores` defaults to
    the cores this process may use, `memory` to a quarter of the machine's; `extra` settings win over :func:`settings`.
    Raises :class:`~meander.run.java.JavaNotFoundError` when there is no Java to run on, and OutsideError when Spark
    does not start there.
    """
    global _own
    with _choosing:
        conf = settings(app_name, cores or usable_cores(), memory) | dict(extra or {})
        if (running := running_session()) is not None:
            return own_session(running, conf)
        here = is_on_this_machine(conf["spark.master"])
        conf = (ON_THIS_MACHINE if here else {}) | conf
        if conf["spark.master"].startswith("yarn") and PLAIN_FILES not in (extra or {}):
            conf.pop(PLAIN_FILES)  # YARN hands files out by a file system that tells its scheme
        _prepare_environment(here=here)
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        _say_failures_once()
        try:
            _own = builder.getOrCreate()
        except (Py4JError, PySparkException) as error:
            cause = said(error).rstrip(".")
            raise OutsideError(
                f"Spark does not start on {conf['spark.master']}: {cause}; see that it can be reached from here and "
                "takes these settings"
            ) from error
        return _own


def _say_failures_once() -> None:
    """PySpark writes a page to standard error for every failure of an expression, each time that is tried; the
    query's condition and Meander's log show failures."""
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def running_session() -> SparkSession | None:
    """A session of the Spark that runs in this process, in whichever thread it was started."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    found = SparkSession._instantiatedSession
    return found if found is not None and found.sparkContext is context else SparkSession(context)


def own_session(spark: SparkSession, wanted: Mapping[str, str] | None = None) -> SparkSession:
    """The session that Meander works on: the given one if Meander has started Spark, else one of its own beside it.

    `wanted` are the settings of that one, if it has to be made.
    """
    global _own
    with _choosing:
        if isinstance(spark, GuestSession):
            return spark
        if _own is None or _own.sparkContext._jsc is None or _own.sparkContext is not spark.sparkContext:
            _own = guest_of(spark, wanted or settings("meander", usable_cores()))
        return _own if isinstance(_own, GuestSession) else spark


def active(spark: SparkSession) -> AbstractContextManager[None]:
    """Inside, this thread's Spark goes by the settings of Meander's own session, also beside a user's."""
    return spark.as_active() if isinstance(spark, GuestSession) else nullcontext()


def leave_alone(spark: SparkSession) -> None:
    """Undoes what PySpark changes in a user's Spark when it calls back for a batch of Meander's."""
    if isinstance(spark, GuestSession):
        spark.leave_rdds()


def limits_of(spark: SparkSession) -> tuple[str, ...]:
    """The settings that cannot be made on a Spark that the user started, with the costs."""
    return spark.limits if isinstance(spark, GuestSession) else ()


def has_ended(spark: SparkSession) -> bool:
    """Whether the Java process that the session runs on is gone: nothing of it can be used again."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _heap() -> str:
    """A quarter of the machine's memory, but neither too little for a join of a large batch nor more than is of use."""
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    return f"{max(LEAST_HEAP_MB, min(MOST_HEAP_MB, quarter // 1_000_000))}m"


def usable_cores() -> int:
    """Cores this process may run on, which in a container is often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _prepare_environment(*, here: bool) -> None:
    """Sets the environment that Spark's launch scripts and Python workers read."""
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    if here:
        os.environ["SPARK_LOCAL_IP"] = os.environ["SPARK_LOCAL_HOSTNAME"] = LOOPBACK
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if here or not os.environ.get("PYSPARK_PYTHON"):  # on a cluster Python may be elsewhere
        os.environ["PYSPARK_PYTHON"] = sys.executable
