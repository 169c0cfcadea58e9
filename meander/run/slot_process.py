"""Registers the source of slots, so that its process connects to Spark before it imports anything that takes long.

Spark starts the process by the Python that a source was registered with. That is an executable of our own, which runs
`slot_worker`. Where that cannot be, such as with a PySpark that does it otherwise, the source is registered as usual.
"""

from __future__ import annotations

import inspect
import logging
import os
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from meander.run import slot_worker

_log = logging.getLogger(__name__)

NAME = "slot-python"
CONNECTS = "with get_sock_file_to_executor("
"""The line with which Spark's module gets its connection, as `slot_worker` expects it."""

_registered: WeakKeyDictionary[SparkSession, Path] = WeakKeyDictionary()


def register(spark: SparkSession, source: type[DataSource], folder: Path) -> None:
    """Registers a source whose processes connect early; `folder` has room for an executable."""
    executable = early(folder)
    if executable is not None and _registered.get(spark) == executable:
        return
    _registered.pop(spark, None)
    if executable is None:
        spark.dataSource.register(source)
        return
    context: Any = spark.sparkContext
    pickled, broadcasts, environment, includes = _prepare_for_python_RDD(context, source)
    function = context._jvm.SimplePythonFunction(
        bytearray(pickled),
        environment,
        includes,
        str(executable),
        context.pythonVer,
        broadcasts,
        context._javaAccumulator,
    )
    kind = getattr(context._jvm, "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource")
    cast(Any, spark._jsparkSession).dataSource().registerPython(source.name(), kind(function))
    _registered[spark] = executable


def early(folder: Path) -> Path | None:
    """An executable that Spark can run in place of Python; None where that would not work."""
    try:
        if CONNECTS not in inspect.getsource(import_module(slot_worker.SOURCE_RUNNER)):
            return None
        path = folder.absolute() / NAME
        command = shlex.join([sys.executable, str(Path(slot_worker.__file__).absolute())])
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        partial.chmod(0o700)
        partial.replace(path)
    except (ImportError, OSError) as error:
        _log.info("slots start as any source does: %s", error)
        return None
    return path if os.access(path, os.X_OK) else None
