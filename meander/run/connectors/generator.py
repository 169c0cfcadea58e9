"""The part that all generators share: schedule, event times with bounded disorder, columns by name.

What a generator emits depends on its seed and on the time since the stream began, and on nothing else. So any position
can be reopened, and the same tuples follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.schema import Field, Kind
from meander.model.streams import Stream
from meander.run.connectors import noise
from meander.run.connectors.base import Polled
from meander.run.connectors.columns import Fill, Gives, Value, as_column, check_fit, random_column
from meander.run.connectors.noise import Int64s
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.schedule import Due, Schedule
from meander.run.frames import arrow_schema

OPTIONS = (
    ConnectorOption("seed", "another seed gives other values", "0"),
    ConnectorOption("tuples", "how many tuples each producer emits before it ends", "no end"),
    ConnectorOption("late", "share of tuples that are later than `disorder` allows, for tests", "0"),
    ConnectorOption("late_by", "how much later than `disorder` these are at most", "10 s"),
    ConnectorOption("values.", "the values of a random column, between commas"),
    ConnectorOption("range.", "the range of a random numeric column, such as `0..40`"),
)
_DELAY, _LATE, _LATE_BY = noise.key("delay"), noise.key("late"), noise.key("late by")

Model = Callable[[Due], Mapping[str, Value]]
"""A generator's model: values for each tuple that is due, by column name."""


class Generator:
    """Implements `SourceConnector` for a model."""

    def __init__(self, stream: Stream, model: Model | None = None, gives: Gives | None = None) -> None:
        self.stream = stream
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self._seed = options.text("seed", "0")
        self._tuples = options.whole("tuples", 0, least=1) or None
        self._disorder_ms = options.duration("disorder", 0) or 0
        self._late = options.number("late", 0, 0, 1)
        self._late_by_ms = options.duration("late_by", 10_000) or 0
        self._model = model
        self._modelled = tuple(f for f in stream.schema if f.name in (gives or {}) and f.name != stream.event_time)
        for field in self._modelled:
            try:
                check_fit(field.name, field.type, (gives or {})[field.name])
            except InputError as error:
                raise InputError(f"stream {stream.name!r}: {error.message}") from None
        self._random: dict[str, Fill] = {
            f.name: random_column(f, options, self._seed)
            for f in stream.schema
            if f not in self._modelled and f.name != stream.event_time
        }
        self._schema = arrow_schema(stream.schema)
        self._at_ms = 0
        self._begun = False
        self._schedule: Schedule | None = None

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """The offset is the beginning of the stream and the time up to which everything was emitted."""
        self.stream = stream
        self._begun = offset is not None  # the first batch is given even if it is empty: it fixes the beginning
        epoch_ms = int(offset["epoch"]) if offset else clock_ms
        self._at_ms = int(offset["at"]) if offset else clock_ms - 1
        keys = noise.keys(stream.nodes, self._seed, stream.name)
        phases = noise.uniform(keys, np.zeros(keys.size, np.int64), noise.key("phase"))
        self._schedule = Schedule(epoch_ms, stream.rate_tps, phases, keys, self._tuples)

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        schedule = self._schedule
        assert schedule is not None
        last_ms = schedule.last_ms
        while self._at_ms < now_ms and not (last_ms is not None and self._at_ms >= last_ms):
            until_ms = schedule.end_for(self._at_ms, now_ms, most_rows)
            ended = last_ms is not None and until_ms >= last_ms
            due = schedule.between(self._at_ms, until_ms)
            self._at_ms = until_ms  # if nothing was due, a position before this time means the same
            if due.index.size or ended or not self._begun:
                self._begun = True
                offset = {"epoch": schedule.epoch_ms, "at": until_ms}
                return Polled(self._table(due), due.producer, offset, more=until_ms < now_ms, ended=ended)
        return None

    def next_ms(self) -> int | None:
        assert self._schedule is not None
        return self._schedule.next_ms(self._at_ms) if self._begun else self._at_ms + 1

    def committed(self) -> None:
        """Does nothing: generators need no acknowledgement."""

    def close(self) -> None:
        """There is nothing to close."""

    def _table(self, due: Due) -> pa.Table:
        known = self._model(due) if self._model and self._modelled else {}
        modelled = {f.name: as_column(known[f.name], f.type) for f in self._modelled}
        arrays = [
            self._times(f, due)
            if f.name == self.stream.event_time
            else modelled[f.name]
            if f.name in modelled
            else self._random[f.name](due)
            for f in self.stream.schema
        ]
        return pa.table(arrays, schema=self._schema)

    def _times(self, field: Field, due: Due) -> pa.Array:
        times = self._event_times(due)
        if field.type.kind is Kind.TIMESTAMP:
            return pa.array(times * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.array(times)

    def _event_times(self, due: Due) -> Int64s:
        """The time of emission, less a delay when there is disorder."""
        times = due.emitted_ms
        if self._disorder_ms:
            times = times - noise.whole(due.keys, due.index, _DELAY, self._disorder_ms + 1)
        if self._late:
            late = noise.uniform(due.keys, due.index, _LATE) < self._late
            by = self._disorder_ms + 1 + noise.whole(due.keys, due.index, _LATE_BY, max(1, self._late_by_ms))
            times = np.where(late, due.emitted_ms - by, times)
        return times


def producer_numbers(stream: Stream) -> Int64s:
    """A number for each producer: the one at the end of its node's name if these differ, else 1, 2, ..."""
    digits = [node[len(node.rstrip("0123456789")) :] for node in stream.nodes]
    if all(digits) and len(set(map(int, digits))) == len(digits) and all(len(d) < 10 for d in digits):
        return np.array([int(d) for d in digits], np.int64)
    return np.arange(1, len(stream.nodes) + 1, dtype=np.int64)
