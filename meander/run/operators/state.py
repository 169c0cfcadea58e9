"""The interface between an operator with memory and the driver: its state tables, the parts that a step needs, and the
time when parts may go.

A state table is partitioned by (fragment, bucket), a bucket being a start time in ms. Before a step the driver asks
`needed` for the range of buckets, hands their rows in, and appends the rows that the step returns. Buckets of a table
that is `consumed` are gone once they were handed in (rows that must stay are returned again); buckets of other tables
stay until they are `expired`. All questions are asked for many fragments at once, as arrays.

A step over nothing but rows of a mergeable table, with a watermark before everything, merges them: that is compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from meander.run.frames import AFTER, BEGIN, END, FRAGMENT, Longs


@dataclass(frozen=True)
class StateColumn:
    """A column of a state table, with its type as Spark and as Arrow spell it."""

    name: str
    spark: str
    arrow: pa.DataType


@dataclass(frozen=True)
class StateTable:
    """One table of an operator's state."""

    name: str
    columns: tuple[StateColumn, ...]
    consumed: bool
    watermark: bool
    """Whether rows that are handed in carry the fragment's watermark."""
    mergeable: bool = False
    """Whether a step over nothing but rows of this table, with a watermark before everything, makes fewer of them."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The rows as they are kept."""
        return pa.schema([(c.name, c.arrow) for c in self.columns])

    @cached_property
    def frame_schema(self) -> pa.Schema:
        """The rows as a step reads them."""
        after = [(AFTER, pa.int64())] if self.watermark else []
        return pa.schema([(FRAGMENT, pa.int32()), *after, *self.schema])


@dataclass(frozen=True)
class Cut:
    """One of an operator's keys: its column in each input, by position, and in each state table."""

    inputs: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True)
class StepProgress:
    """The progress of each fragment in a step: its watermark before and after, and the event times of its new tuples.

    A fragment without new tuples has `oldest` > `newest`. Watermarks are those that the operator sees.
    """

    before: Longs
    after: Longs
    oldest: Longs
    newest: Longs


Ranges = tuple[Longs, Longs]
"""First and last bucket of each fragment, both included; nothing when the first is above the last."""

Post = Callable[[DataFrame, Sequence[str]], DataFrame]
"""A projection behind an operator in the same step: from the frame and the columns to carry along to a frame."""


class Stateful(Protocol):
    """An operator that remembers. Its rows of output and state come out of one frame, told apart by their tag."""

    @property
    def states(self) -> tuple[StateTable, ...]: ...

    @property
    def watermark(self) -> bool:
        """Whether input rows carry the fragment's watermark after the step."""

    @property
    def lag_ms(self) -> int:
        """The lag of the watermark behind the operator, so that its results are never late."""

    @property
    def cut_by(self) -> Cut | None:
        """A key by which rows and state may be told apart: rows with different ones have nothing to do with another."""

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame: ...

    def late(self, inputs: Sequence[DataFrame]) -> DataFrame:
        """The tuples that no window takes any more, tagged by the number of their input."""

    def is_late(self, times: Longs, watermarks: Longs) -> npt_bool: ...

    def needed(self, table: int, move: StepProgress) -> Ranges: ...

    def expired(self, table: int, after: Longs) -> Longs:
        """Buckets below this one are not needed any more."""


npt_bool = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def when(condition: npt_bool, ranges: Ranges) -> Ranges:
    """The ranges where the condition holds, nothing elsewhere."""
    first, last = ranges
    return np.where(condition, first, END), np.where(condition, last, BEGIN)


def floor(times: Longs, width_ms: int) -> Longs:
    """The start of the bucket of each time."""
    result: Longs = times - np.mod(times, width_ms)
    return result


def nulls_for(frame: DataFrame, known: Mapping[str, str]) -> list[str]:
    """Select items for a frame that is to be united with another one: known columns, nulls in the others."""
    return [
        f"CAST({known.get(f.name, 'NULL')} AS {f.dataType.simpleString()}) AS {f.name}" for f in frame.schema.fields
    ]
