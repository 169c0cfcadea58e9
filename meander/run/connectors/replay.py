"""`replay`: one file played at a speed, in its order: a row comes when as much time has gone by as in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from meander.model.errors import InputError
from meander.model.schema import Kind
from meander.model.streams import Stream
from meander.run.connectors.base import Malformed, Polled, SourceKind, Surroundings
from meander.run.connectors.formats import OPTIONS, Format, Parsed
from meander.run.connectors.noise import Int64s
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import SHARED, if_shared
from meander.run.connectors.rows import sorted_by_producer
from meander.run.frames import event_times


class ReplaySource:
    """Implements `SourceConnector`. The file is read whole."""

    def __init__(self, stream: Stream, surroundings: Surroundings) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self._path = options.path("path", surroundings.base, "rides.csv")
        speed = options.text("speed", "1")
        self._speed = 0.0 if speed == "max" else options.number("speed", 1, 1e-6)
        self._shifted = options.choice("event_times", ("original", "now"), "original") == "now"
        self._format = Format(stream)
        self.stream = stream
        self._epoch_ms = self._row = 0
        self._done = False
        self._malformed: tuple[Malformed, ...] = ()

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self.stream = stream
        parsed = self._load()
        self._table = parsed.table
        producers = parsed.producers
        self._producers = self._format.dealer.in_turn(len(self._table), 0) if producers is None else producers
        times = event_times(self._table, stream.event_time)
        self._after_ms = self._due(times)
        self._times = times
        self._epoch_ms = int(offset["epoch"]) if offset else clock_ms
        self._row = int(offset["row"]) if offset else 0
        self._done = bool(offset["ended"]) if offset else False
        self._malformed = () if offset else parsed.malformed
        self._begun = offset is not None

    def _load(self) -> Parsed:
        path, name = self._path, self._path.name
        kind = self._format.of(path)
        if kind is None:
            raise InputError(
                f"stream {self.stream.name!r}: {name} may be anything; say its format: csv, json or parquet"
            )
        try:
            if kind == "parquet":
                table = pa.parquet.read_table(path)
                self._format.check_table(table.schema, name)
                return self._format.typed(table)
            data = path.read_bytes()
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"stream {self.stream.name!r}: cannot read {path}: {error}") from None
        if kind == "json":
            return self._format.json(data)
        if not self._format.header:
            return self._format.csv(data, self.stream.schema.names)
        line, _, rest = data.partition(b"\n")
        return self._format.csv(rest, self._format.csv_columns(line, name))

    def _due(self, times: Int64s) -> Int64s:
        """The time of each row after the beginning; a row that is older than one before it comes with that one."""
        if not len(times) or not self._speed:
            return np.zeros(len(times), np.int64)
        after: Int64s = np.floor((np.maximum.accumulate(times) - times[0]) / self._speed).astype(np.int64)
        return after

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        if self._done:
            return None
        due = int(np.searchsorted(self._after_ms, now_ms - self._epoch_ms, side="right"))
        stop = min(due, self._row + most_rows)
        self._done = stop == len(self._table)
        if stop <= self._row and not self._done and self._begun:
            return None
        self._begun = True
        rows = slice(self._row, stop)
        table, producers = sorted_by_producer(self._at(rows), self._producers[rows])
        malformed, self._malformed, self._row = self._malformed, (), stop
        offset = {"epoch": self._epoch_ms, "row": stop, "ended": self._done}
        return Polled(table, producers, offset, malformed, more=stop < due, ended=self._done)

    def next_ms(self) -> int | None:
        if self._done:
            return None
        return self._epoch_ms + (int(self._after_ms[self._row]) if self._row < len(self._table) else 0)

    def _at(self, rows: slice) -> pa.Table:
        table = self._table.slice(rows.start, rows.stop - rows.start)
        if not self._shifted:
            return table
        field = self.stream.schema.index_of(self.stream.event_time)
        scaled = np.floor((self._times[rows] - self._times[0]) / (self._speed or 1)).astype(np.int64) + self._epoch_ms
        kind = self.stream.schema.fields[field].type.kind
        times = pa.array(scaled * 1000).cast(pa.timestamp("us", "UTC")) if kind is Kind.TIMESTAMP else pa.array(scaled)
        return table.set_column(field, self.stream.event_time, times)

    def committed(self) -> None:
        """Does nothing: recordings need no acknowledgement."""

    def close(self) -> None:
        """The file was closed when it had been read."""


def make(stream: Stream, surroundings: Surroundings) -> ReplaySource:
    return ReplaySource(stream, surroundings)


KIND = SourceKind(
    make,
    (
        ConnectorOption("path", "the file"),
        ConnectorOption("speed", "how much faster than in the file time goes by, or `max` for all at once", "1"),
        ConnectorOption(
            "event_times", "`original`, or `now`: event times are moved to the time of the replay", "original"
        ),
        SHARED,
        *OPTIONS,
    ),
    if_shared,
)
