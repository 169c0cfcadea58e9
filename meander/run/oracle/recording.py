"""Records the tuples of sources and the rows of sinks, so that a run can be checked against the batch oracle
afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.streams import Stream
from meander.run.connectors.base import (
    Announcing,
    Polled,
    Scheduled,
    SinkBinding,
    SinkConnector,
    SourceConnector,
    SourcePosition,
)
from meander.run.connectors.memory import MemorySink
from meander.run.frames import arrow_schema
from meander.run.oracle.batch import PRODUCER


class Recording:
    """A source that keeps a copy of every batch once it is committed, up to a number of rows."""

    def __init__(self, source: SourceConnector, stream: Stream, most_rows: int) -> None:
        self.source, self.stream, self.most_rows = source, stream, most_rows
        self.rows = 0
        self._batches: list[pa.Table] = []
        self._polled: Polled | None = None

    @property
    def complete(self) -> bool:
        """Whether everything was kept."""
        return self.rows <= self.most_rows

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self.source.open(stream, offset, clock_ms)

    def announce(self, arrived: Callable[[], None]) -> None:
        if isinstance(self.source, Announcing):
            self.source.announce(arrived)

    def next_ms(self) -> int | None:
        return self.source.next_ms() if isinstance(self.source, Scheduled) else None

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        self._polled = self.source.poll(now_ms, most_rows)
        return self._polled

    def committed(self) -> None:
        self.source.committed()
        polled, self._polled = self._polled, None
        if polled is None:
            return
        self.rows += len(polled.table)
        if self.complete:
            names = np.asarray(self.stream.nodes, dtype=object)[polled.producers]
            self._batches.append(polled.table.append_column(PRODUCER, pa.array(names, pa.string())))

    def close(self) -> None:
        self.source.close()

    def table(self) -> pa.Table:
        """Everything recorded, in arrival order per producer, with the producer's name beside each row."""
        schema = arrow_schema(self.stream.schema).append(pa.field(PRODUCER, pa.string()))
        return pa.concat_tables([b.cast(schema) for b in self._batches]) if self._batches else schema.empty_table()


class RecordedSink:
    """A sink that keeps a copy of its rows; after a failure the copy is cut back with the sink itself."""

    def __init__(self, sink: SinkConnector) -> None:
        self.sink = sink
        self.fixed_ranges = sink.fixed_ranges
        self.path = getattr(sink, "path", None)
        self._kept = MemorySink()

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.sink.open(binding, schema, position)
        self._kept.open(binding, schema, position)

    def write(self, table: pa.Table, first: int) -> Any:
        note = self.sink.write(table, first)
        self._kept.write(table, first)
        return note

    def close(self) -> None:
        self.sink.close()

    def table(self) -> pa.Table:
        return self._kept.table
