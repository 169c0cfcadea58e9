"""`parquet`: results as parquet files in a directory, exactly once: one for each delivered range of rows, or, of many
rows, one for each core.

A file appears under its name only when it is complete. Its name says which rows it holds, so files beyond the
acknowledged rows are known after a crash, and removed.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from meander.model.durable_files import FILES
from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.jsonl import path_of
from meander.run.connectors.options import ConnectorOption
from meander.run.connectors.reachable import SHARED, if_shared
from meander.run.session import usable_cores

LEAST_ROWS = 50_000
"""Fewer rows are not worth a file of their own."""
_NAME = re.compile(r"rows-(\d+)-(\d+)\.parquet(\.part)?$")


class Parquet:
    """Implements `SinkConnector`."""

    fixed_ranges = False

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        self.path: Path = path_of(binding, surroundings, "{query}-{sink}")
        self._durable = surroundings.durable

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self.path.iterdir():
            match = _NAME.match(path.name)
            if match and (match.group(3) or int(match.group(1)) >= position.rows):
                path.unlink()

    def write(self, table: pa.Table, first: int) -> Any:
        count = min(usable_cores(), -(-len(table) // LEAST_ROWS))
        size = -(-len(table) // count)
        pieces = [(table.slice(at, size), first + at) for at in range(0, len(table), size)]
        if count == 1:
            self._write(*pieces[0])
        else:
            with ThreadPoolExecutor(count, "parquet") as pool:
                list(pool.map(self._write, *zip(*pieces, strict=True)))
        if self._durable:
            FILES.sync_directory(self.path)
        return None

    def _write(self, table: pa.Table, first: int) -> None:
        path = self.path / f"rows-{first:012d}-{first + len(table):012d}.parquet"
        part = path.with_name(f"{path.name}.part")
        pq.write_table(table, part)
        if self._durable:
            _sync(part)
        FILES.rename(part, path)

    def close(self) -> None:
        """Files are closed as soon as they are written."""


def _sync(path: Path) -> None:
    descriptor = FILES.open(path)
    try:
        FILES.sync(descriptor)
    finally:
        FILES.close(descriptor)


def make(binding: SinkBinding, surroundings: Surroundings) -> Parquet:
    return Parquet(binding, surroundings)


KIND = SinkKind(
    make,
    (
        ConnectorOption("path", "the directory; `{query}` and `{sink}` stand for their names", "`{query}-{sink}`"),
        SHARED,
    ),
    if_shared,
)
