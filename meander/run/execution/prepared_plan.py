"""A physical plan of Spark that runs again and again over swapped input.

It is analysed, optimised and compiled once, over empty input that is declared to be partitioned by fragment; for a
batch the Arrow bytes inside the input's single partition are replaced and the same plan runs again.
"""

from __future__ import annotations

import os
import struct
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from meander.run.execution.rewrites.rewrite import StagePlan
from meander.run.execution.spark_internals import SparkInternals, SwappableInput
from meander.run.frames import FRAGMENT

KEEPS_RESULTS = ("Exchange", "Subquery", "InMemory", "Broadcast", "Python", "MapInArrow", "FileScan", "BatchScan")
"""Parts of a physical plan that remember their first result, or talk to workers: such a plan is not run again."""

PREFIX = "meander-plan-"
"""Begins the names of the files that input and output go through, before the process's number."""


class NotRepeatableError(Exception):
    """The plan cannot be prepared, and why."""


class PreparedPlan:
    """One physical plan over inputs that can be swapped."""

    def __init__(self, spark: SparkInternals, plan: StagePlan) -> None:
        self._base = exchange_folder() / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._paths = [Path(f"{self._base}-{i}") for i in range(len(plan.schemas))]
        self._out = Path(f"{self._base}-out")
        inputs = [self._input(spark, *each) for each in zip(self._paths, plan.schemas, strict=True)]
        frame = plan.make([each.frame for each in inputs])
        self.schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
        text = spark.physical_plan(frame)
        keeping = [part for part in KEEPS_RESULTS if part in text]
        if keeping:
            self.close()
            raise NotRepeatableError(f"its physical plan has {', '.join(keeping)}")
        partitions = [each.partitions[0] for each in inputs]
        self._run = spark.driver_plan(frame, partitions, [str(path) for path in self._paths], str(self._out))

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
        for path in (*self._paths, self._out):
            path.unlink(missing_ok=True)

    @staticmethod
    def _input(spark: SparkInternals, path: Path, schema: pa.Schema) -> SwappableInput:
        _write_stream(path, schema.empty_table())
        found = spark.swappable(str(path), schema, FRAGMENT)
        if len(found.partitions) != 1:
            raise NotRepeatableError(f"its input has {len(found.partitions)} partitions")
        return found


def _write_stream(path: Path, table: pa.Table) -> None:
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def exchange_folder() -> Path:
    """Memory that both processes see, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
