"""`files`: a file, a pattern or a directory of csv, json lines or parquet, read as it grows.

Text files are read up to their last complete line. A parquet file is read once it is complete. Files are taken in the
order of their names; the position is how far each one was read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors.base import ConnectorError, Polled, SourceKind, Surroundings
from meander.run.connectors.formats import OPTIONS, SUFFIXES, Format, Parsed, joined
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import SHARED, if_shared

CHUNK_BYTES = 4_000_000
LONGEST_ROW_BYTES = 1_000_000


class FileSource:
    """Implements `SourceConnector`."""

    def __init__(self, stream: Stream, surroundings: Surroundings) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self._path = options.path("path", surroundings.base, "data/*.csv")
        self._tail = options.truth("tail", True)
        self._format = Format(stream)
        self.stream = stream
        self._read: dict[str, int] = {}
        self._columns: dict[str, list[str]] = {}
        self._checked: set[str] = set()
        self._dealt = 0
        self._ended = False

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """Checks all files that are there."""
        self.stream = stream
        self._read = dict(offset["files"]) if offset else {}
        self._dealt = int(offset["dealt"]) if offset else 0
        self._ended = bool(offset["ended"]) if offset else False
        paths = list(self._paths())
        if not paths and not self._path.parent.exists():
            raise InputError(
                f"stream {stream.name!r}: there is no directory {self._path.parent}; correct option 'path'"
            )
        for path in paths:
            self._check(path)

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        if self._ended:
            return None
        parts: list[Parsed] = []
        read = dict(self._read)
        rows, more = 0, False
        paths = list(self._paths())
        for path in paths:
            while rows < most_rows:
                part = self._next(path, read, most_rows - rows)
                if part is None:
                    break
                parts.append(part)
                rows += len(part.table) + len(part.malformed)
            more = more or rows >= most_rows
        self._ended = not self._tail and not more
        if not parts and not self._ended:
            return None
        table, producers, malformed = joined(parts, self._format, self._dealt)
        self._dealt += len(table)
        present = set(map(str, paths))
        self._read = {name: at for name, at in read.items() if name in present}
        offset = {"files": self._read, "dealt": self._dealt, "ended": self._ended}
        return Polled(table, producers, offset, malformed, more=more, ended=self._ended)

    def committed(self) -> None:
        """Does nothing: files need no acknowledgement."""

    def close(self) -> None:
        """Files are open only while they are read."""

    def _paths(self) -> Iterator[Path]:
        """Our files, by name. Names that begin with a dot or an underscore are still being written."""
        if self._path.is_dir():
            found = [Path(e.path) for e in os.scandir(self._path) if e.is_file()]
        else:
            found = [Path(p) for p in glob.glob(str(self._path)) if Path(p).is_file()]
        for path in sorted(found):
            if not path.name.startswith((".", "_")) and self._format.of(path):
                yield path

    def _check(self, path: Path) -> bool:
        """Whether a file can be read already; refuses one that does not fit the stream."""
        name = str(path)
        if name in self._checked:
            return True
        match self._format.of(path):
            case "csv":
                if not self._format.header:
                    self._columns[name] = list(self.stream.schema.names)
                else:
                    with path.open("rb") as file:
                        line = file.readline()
                    if not line.endswith(b"\n") and self._tail:
                        return False
                    if not line.strip():
                        return False
                    self._columns[name] = self._format.csv_columns(line, path.name)
            case "parquet":
                try:
                    schema = pa.parquet.read_schema(path)
                except (pa.ArrowException, OSError) as error:
                    if self._tail:
                        return False
                    raise InputError(f"stream {self.stream.name!r}: {path.name} is no parquet file: {error}") from None
                self._format.check_table(schema, path.name)
        self._checked.add(name)
        return True

    def _next(self, path: Path, read: dict[str, int], most_rows: int) -> Parsed | None:
        if not self._check(path):
            return None
        return self._rows(path, read, most_rows) if self._format.of(path) == "parquet" else self._lines(path, read)

    def _lines(self, path: Path, read: dict[str, int]) -> Parsed | None:
        name, size = str(path), path.stat().st_size
        at = read.get(name, 0)
        if size < at:
            raise ConnectorError(f"{path.name} was {at} bytes long and is {size} now; give a new file a new name")
        if size == at:
            return None
        with path.open("rb") as file:
            csv = self._format.of(path) == "csv"
            if at == 0 and csv and self._format.header:
                at = len(file.readline())
            file.seek(at)
            data = file.read(CHUNK_BYTES)
            while data and not _rows_end(data, csv) and (further := file.read(CHUNK_BYTES)):
                data += further
            at_end = at + len(data) >= size
        end = _rows_end(data, csv)
        if end == 0 or (at_end and not self._tail):
            if self._tail:
                return None
            end = len(data)
        if read.get(name, 0) == at + end:
            return None
        read[name] = at + end
        data = data[:end]
        return self._format.csv(data, self._columns[name]) if csv else self._format.json(data)

    def _rows(self, path: Path, read: dict[str, int], most_rows: int) -> Parsed | None:
        name = str(path)
        with pa.parquet.ParquetFile(path) as file:
            total, at = file.metadata.num_rows, read.get(name, 0)
            if at >= total:
                read.setdefault(name, at)
                return None
            ends = np.cumsum([file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)])
            group = int(np.searchsorted(ends, at, side="right"))
            beyond = int(np.searchsorted(ends, at + most_rows)) + 1
            first = int(ends[group - 1]) if group else 0
            groups = range(group, min(beyond, file.num_row_groups))
            table = file.read_row_groups(groups).slice(at - first, most_rows)
        read[name] = at + len(table)
        return self._format.typed(table)


def _rows_end(data: bytes, csv: bool) -> int:
    """The end of the last complete row. A line break between quotes belongs to a value of csv, unless the quotes are
    not closed for longer than a row may be."""
    last = data.rfind(b"\n") + 1
    if not csv or b'"' not in data:
        return last
    found = np.frombuffer(data, np.uint8)
    outside = (np.cumsum(found == ord('"')) & 1) == 0
    (ends,) = np.nonzero((found == ord("\n")) & outside)
    if len(ends):
        return int(ends[-1]) + 1
    return last if len(data) > LONGEST_ROW_BYTES else 0


def make(stream: Stream, surroundings: Surroundings) -> FileSource:
    return FileSource(stream, surroundings)


KIND = SourceKind(
    make,
    (
        ConnectorOption(
            "path", f"a file, a pattern such as `data/*.csv`, or a directory of {', '.join(SUFFIXES)} files"
        ),
        ConnectorOption("tail", "whether to wait for more; `false` ends the stream with the last row", "true"),
        SHARED,
        *OPTIONS,
    ),
    if_shared,
)
