"""Channels between fragments, ordered, durable, replayable and typed: what goes into them, and what comes out.

Every tuple, every watermark and every marker of a channel has its own sequence number, without gaps. A channel keeps
all records that its receiver has not committed yet. Appends are given for many channels at once, as slices of one
table, because a step runs all fragments of a template together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from meander.deploy.markers import Marker
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId

NO_WATERMARK = int(np.iinfo(np.int64).min)
"""Stands for 'no watermark record here', and for the watermark of a channel that has not had one."""

Int64s = NDArray[np.int64]


def int64s(values: ArrayLike) -> Int64s:
    """A flat array of 64-bit integers."""
    return np.ascontiguousarray(values, dtype=np.int64).reshape(-1)


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A channel to be. `sender` and `receiver` are None where the outside world is (sources, sinks)."""

    channel: ChannelId
    schema: pa.Schema
    sender: FragmentId | None = None
    receiver: FragmentId | None = None
    delay_ms: int = 0
    """Emulated latency of the path: a record becomes readable that long after its append."""

    def __post_init__(self) -> None:
        if self.channel < 0:
            raise InputError(f"channel {self.channel}: ids are not negative")
        if self.delay_ms < 0:
            raise InputError(f"channel {self.channel}: delay_ms is {self.delay_ms}; it must not be negative")


@dataclass(frozen=True, slots=True)
class ChannelAppend:
    """Rows of one table for channels of one schema: entry i takes `lengths[i]` rows from `offsets[i]` on.

    After its rows an entry may append a watermark record, then a marker (`markers`: entry -> marker). A channel may
    have several entries; they are appended in order.
    """

    table: pa.Table | pa.RecordBatch | None
    channels: Int64s
    offsets: Int64s
    lengths: Int64s
    watermarks: Int64s
    markers: Mapping[int, Marker] = field(default_factory=dict)

    @staticmethod
    def sliced(
        table: pa.Table | pa.RecordBatch | None,
        channels: ArrayLike,
        lengths: ArrayLike,
        watermarks: ArrayLike | None = None,
        markers: Mapping[int, Marker] | None = None,
    ) -> ChannelAppend:
        """A table that is sorted by channel already: its slices lie one after the other."""
        sizes = int64s(lengths)
        marks = np.full(sizes.size, NO_WATERMARK, np.int64) if watermarks is None else int64s(watermarks)
        return ChannelAppend(table, int64s(channels), np.cumsum(sizes) - sizes, sizes, marks, markers or {})

    @staticmethod
    def one(
        channel: ChannelId,
        table: pa.Table | pa.RecordBatch | None = None,
        watermark: int | None = None,
        marker: Marker | None = None,
    ) -> ChannelAppend:
        """A whole table, a watermark and a marker, each optional, for one channel."""
        return ChannelAppend.sliced(
            table,
            [channel],
            [0 if table is None else table.num_rows],
            [NO_WATERMARK if watermark is None else watermark],
            {} if marker is None else {0: marker},
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one channel from `start` up to, not including, `stop`."""

    channel: ChannelId
    start: int
    stop: int
    table: pa.Table
    watermarks: tuple[tuple[int, int], ...]
    """(sequence number, event time in ms)."""
    markers: tuple[tuple[int, Marker], ...]
    """(sequence number, marker)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The records of many channels of one schema. Rows lie as they were appended, so that no copy is needed."""

    channels: tuple[ChannelId, ...]
    table: pa.Table
    owners: Int64s
    """For each row the index of its channel in `channels`. Rows of one channel are in order."""
    rows: Int64s
    """The number of rows of each channel."""
    stops: Int64s
    """Up to where each channel was read: the requested end, or just after the first marker."""
    watermarks: Int64s
    """The highest watermark record in the range, or NO_WATERMARK."""
    markers: Mapping[ChannelId, tuple[tuple[int, Marker], ...]]


@dataclass(frozen=True, slots=True)
class ChannelCounters:
    """The counters of a channel: tuples that went through it, and tuples that wait in it."""

    appended_tuples: int
    consumed_tuples: int
    pending_tuples: int
    readable_tuples: int
    """Pending ones that the emulated latency does not hold back."""
    watermark: int
