"""`memory`: results as tables in this process, for tests and notebooks. They are gone when the process ends."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.reachable import only_here


class MemorySink:
    """Implements `SinkConnector`. `tables` holds the rows delivered since the process began."""

    fixed_ranges = False

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self._schema: pa.Schema | None = None
        self._firsts: list[int] = []

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self._schema = schema
        while self._firsts and self._firsts[-1] >= position.rows:
            self._firsts.pop()
            self.tables.pop()

    def write(self, table: pa.Table, first: int) -> Any:
        self.tables.append(table)
        self._firsts.append(first)
        return None

    def close(self) -> None:
        """The tables stay."""

    @property
    def table(self) -> pa.Table:
        """All of them as one."""
        if self.tables:
            return pa.concat_tables(self.tables)
        return (self._schema or pa.schema([])).empty_table()


def make(binding: SinkBinding, surroundings: Surroundings) -> MemorySink:
    return MemorySink()


KIND = SinkKind(make, (), only_here("they are in the memory of that machine"))
