"""The newest results of each query, kept in memory beside the sink that really takes them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa

from meander.model.locks import lock
from meander.run.connectors.base import SinkBinding, SinkConnector, SourcePosition
from meander.run.connectors.json_rows import json_rows

KEPT_ROWS = 500


class NewestResults:
    """The newest rows of one sink binding. Written by delivery, read by all."""

    def __init__(self, kept_rows: int = KEPT_ROWS) -> None:
        self.kept_rows = kept_rows
        self._tables: deque[pa.Table] = deque()
        self._rows = 0
        self._lock = lock("newest results")

    def add(self, table: pa.Table) -> None:
        with self._lock:
            self._tables.append(table.slice(max(0, len(table) - self.kept_rows)))
            self._rows += len(self._tables[-1])
            while self._rows - len(self._tables[0]) >= self.kept_rows:
                self._rows -= len(self._tables.popleft())

    def clear(self) -> None:
        with self._lock:
            self._tables.clear()
            self._rows = 0

    def rows(self, limit: int) -> list[dict[str, Any]]:
        """Newest last, at most so many."""
        with self._lock:
            tables = list(self._tables)
        if not tables or limit < 1:
            return []
        table = pa.concat_tables(tables)
        newest = table.slice(max(0, len(table) - min(limit, self.kept_rows)))
        return json_rows(newest)


class NewestResultsSink:
    """A sink that also keeps its newest rows. Rows that come again after a failure are shown again."""

    def __init__(self, sink: SinkConnector, newest: NewestResults) -> None:
        self.sink, self.newest = sink, newest
        self.fixed_ranges = sink.fixed_ranges
        self.path = getattr(sink, "path", None)

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.sink.open(binding, schema, position)

    def write(self, table: pa.Table, first: int) -> Any:
        note = self.sink.write(table, first)
        self.newest.add(table)
        return note

    def close(self) -> None:
        self.sink.close()
