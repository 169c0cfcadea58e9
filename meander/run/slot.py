"""A slot: one Structured Streaming query that calls `step` again and again, for as long as the site host lives.

Its source is a Python data source that reads one number from a file. Code that has work for the slot raises the number;
Spark sees a new offset, writes it ahead, calls back with a batch id, and notes the batch as done afterwards. Tuples do
not travel through the source: a step finds them in the channels. So fragments come and go without Spark noticing, and
after a crash Spark calls again for the batch it had begun.
"""

from __future__ import annotations

import os
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from meander.model.locks import lock
from meander.run.session import active, leave_alone
from meander.run.slot_process import register
from meander.run.step.step_lock import StepLock
from meander.run.store.commit import Writer

SOURCE = "meander_slot"
_NUMBER = struct.Struct("<q")
ROOM_BYTES = 1_000_000
"""With less room on the disk a streaming query ends again at once."""

LATE = ("failed to connect back", "worker to connect back", "CANNOT_OPEN_SOCKET")
"""Spark's messages when a Python process has not answered in time."""

OnBatch = Callable[[int], None]


class SignalReader(DataSourceStreamReader):
    """Runs in a process of its own: offsets are the numbers that the signal file holds."""

    def __init__(self, signal: str) -> None:
        self.signal = signal

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"number": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"number": read_signal(self.signal)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end["number"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [partition.value]})


class SlotSource(DataSource):
    """Registered once per session."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return "number long"

    def streamReader(self, schema: Any) -> SignalReader:  # noqa: N802 - Spark's name
        return SignalReader(self.options["signal"])


def read_signal(path: str) -> int:
    """The number in a signal file."""
    with open(path, "rb") as file:
        number: int = _NUMBER.unpack(file.read(_NUMBER.size))[0]
        return number


class Slot:
    """One streaming query and the number that wakes it."""

    def __init__(self, number: int, directory: Path, label: str = "") -> None:
        """`label` tells its query apart from those of another host in the same Spark."""
        self.number = number
        self._name = f"{label} slot-{number}".strip()
        self.directory = directory / f"slot-{number}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.step_lock = StepLock()
        """Held while a step runs: its holder knows that the slot is between two steps."""
        self.revivals = 0
        self.trouble: str | None = None
        """The reason why it was last started again, until a step is done."""
        self.again_at = 0.0
        """The time at which it may be started again, in seconds of the monotonic clock."""
        self.is_busy = False
        """Whether a micro-batch is open: it sees new work by itself."""
        self.has_run = False
        """Whether it has done a step, so that nothing of its start is left to wait for."""
        self.query: StreamingQuery | None = None
        self._signal = self.directory / "signal"
        if not self._signal.exists():
            self._signal.write_bytes(_NUMBER.pack(0))
        self._number = read_signal(str(self._signal))
        self._file = os.open(self._signal, os.O_WRONLY)
        self._waking = lock("slot wake")
        self.writer = self._writer()

    def _writer(self) -> Writer:
        """Batch ids start over when Spark's checkpoint is lost, so they are told apart by a mark kept inside it."""
        mark = self.directory / "checkpoint" / "meander"
        if not mark.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            partial = self.directory / "mark"
            partial.write_text(uuid.uuid4().hex[:12])
            partial.replace(mark)  # a full disk leaves no empty mark, which the next start would share
        return Writer(f"slot {self.number} {mark.read_text()}")

    def start(self, spark: SparkSession, on_batch: OnBatch) -> None:
        """Starts the streaming query; `on_batch` gets the ids of its batches."""
        register(spark, SlotSource, self.directory.parent)

        def batch(_: DataFrame, batch_id: int) -> None:
            self.is_busy = True
            leave_alone(spark)
            try:
                on_batch(batch_id)
            finally:
                self.is_busy = False

        with active(spark):
            self.query = (
                spark.readStream.format(SOURCE)
                .option("signal", str(self._signal))
                .load()
                .writeStream.queryName(self._name)
                # On this machine's disk, whatever a cluster's own file system is.
                .option("checkpointLocation", f"file:{(self.directory / 'checkpoint').absolute()}")
                .foreachBatch(batch)
                .start()
            )

    def revive(self, spark: SparkSession, on_batch: OnBatch) -> None:
        """Starts over with an empty checkpoint when Spark cannot read what a crash left. The store knows the rest.

        A process that was late is no reason for that: the query goes on with the batch that it was at.
        """
        self.revivals += 1
        if not any(sign in (self.failure or self.trouble or "") for sign in LATE):
            shutil.rmtree(self.directory / "checkpoint", ignore_errors=True)
            self.writer = self._writer()
        self.is_busy = False
        self.start(spark, on_batch)

    def did_well(self) -> None:
        """A step was done: what was wrong before is over."""
        self.revivals, self.again_at, self.trouble, self.has_run = 0, 0.0, None, True

    def wake(self) -> None:
        """Asks for a batch. Eight bytes are written at once, so the source never reads half a number."""
        with self._waking:
            self._number += 1
            os.pwrite(self._file, _NUMBER.pack(self._number), 0)

    def has_room(self) -> bool:
        """Whether the disk has room for a checkpoint."""
        free = os.statvfs(self.directory)
        return free.f_bavail * free.f_frsize >= ROOM_BYTES

    @property
    def is_alive(self) -> bool:
        return self.query is not None and self.query.isActive

    @property
    def failure(self) -> str | None:
        """The reason why the streaming query ended, if it did."""
        error = self.query.exception() if self.query is not None else None
        return str(error) if error else None

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
        os.close(self._file)
