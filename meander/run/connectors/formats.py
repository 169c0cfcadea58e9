"""File formats: bytes or tables of csv, json lines and parquet as tuples of a stream."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors.base import Malformed
from meander.run.connectors.noise import Int64s
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.rows import (
    Bools,
    Dealer,
    check_types,
    from_texts,
    from_values,
    malformed_rows,
    sorted_by_producer,
    times_missing,
    widened,
    without,
)
from meander.run.frames import arrow_schema

SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
FORMATS = ("csv", "json", "parquet")
OPTIONS = (
    ConnectorOption("format", "`csv`, `json` (one object a line) or `parquet`", "by the file's name"),
    ConnectorOption(
        "header", "csv: whether the first line names the columns; without, they come in the stream's order", "true"
    ),
    ConnectorOption("delimiter", "csv: what separates values", "`,`"),
    ConnectorOption("node_column", "the column that names the node a row comes from", "rows go to the nodes in turn"),
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Tuples in order of arrival; their producers if a column names them; malformed rows."""

    table: pa.Table
    producers: Int64s | None = None
    malformed: tuple[Malformed, ...] = ()


class Format:
    """The format of a stream's files."""

    def __init__(self, stream: Stream) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self.stream = stream
        self.node_column = options.text("node_column") or None
        self.dealer = Dealer(stream, self.node_column)
        self.given = options.choice("format", FORMATS, options.text("format")) if "format" in options.values else None
        self.header = options.truth("header", True)
        self.delimiter = options.text("delimiter", ",")
        if len(self.delimiter) != 1:
            raise options.wrong("delimiter", "a single character")

    def of(self, path: Path) -> str | None:
        """The format of a file, or None if it is none of ours."""
        return self.given or SUFFIXES.get(path.suffix.lower())

    @property
    def _columns(self) -> list[str]:
        extra = [self.node_column] if self.node_column and self.node_column not in self.stream.schema else []
        return [*self.stream.schema.names, *extra]

    # csv

    def csv_columns(self, first_line: bytes, where: str) -> list[str]:
        """The columns of a csv file, checked against the stream."""
        text = first_line.decode("utf-8-sig", "replace").rstrip("\r\n")
        names = next(csv.reader([text], delimiter=self.delimiter), [])
        check_types(pa.schema([(n, pa.null()) for n in dict.fromkeys(names)]), self.stream, where)
        self._check_node_column(names, where)
        return names

    def csv(self, data: bytes, columns: Sequence[str]) -> Parsed:
        data, unreadable = _utf8(data)
        wrong: list[Malformed] = [Malformed("not text in UTF-8", row) for row in unreadable]

        def skip(row: Any) -> str:
            wrong.append(Malformed(f"{row.actual_columns} values instead of {row.expected_columns}", row.text))
            return "skip"

        if not data.strip():
            return Parsed(arrow_schema(self.stream.schema).empty_table(), self._nobody(), tuple(wrong))
        names = [str(i) for i in range(len(columns))]  # by position: a column that is not ours may appear twice
        place = {c: str(i) for i, c in reversed(list(enumerate(columns)))}
        table = pa.csv.read_csv(
            io.BytesIO(data),
            read_options=pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=max(len(data), 1) + 1),
            parse_options=pa.csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=skip),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[place[c] for c in self._columns],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).rename_columns(self._columns)
        typed, bad, reasons = from_texts({c: table.column(c) for c in self._columns}, self.stream)
        return self._parsed(typed, bad, reasons, table, tuple(wrong))

    # json lines

    def json(self, data: bytes) -> Parsed:
        rows: list[dict[str, Any]] = []
        wrong: list[Malformed] = []
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise TypeError("not an object")
                rows.append(row)
            except (ValueError, TypeError, RecursionError) as error:
                wrong.append(Malformed(f"no JSON object: {error}", line.decode("utf-8", "replace")))
        return self.values(rows, tuple(wrong))

    def values(self, rows: Sequence[dict[str, Any]], wrong: tuple[Malformed, ...] = ()) -> Parsed:
        """JSON objects, already read."""
        typed, bad, reasons = from_values(rows, self.stream)
        names = None
        if self.node_column:
            values = [r.get(self.node_column) for r in rows]
            names = pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string())
        return self._finished(typed, bad, reasons, names, lambda row: json.dumps(rows[row]), wrong)

    # parquet and other tables

    def check_table(self, schema: pa.Schema, where: str) -> None:
        check_types(schema, self.stream, where)
        self._check_node_column(schema.names, where)

    def typed(self, table: pa.Table) -> Parsed:
        """Rows of a table whose schema has been checked."""
        typed = widened(table, self.stream)
        bad = times_missing(typed, self.stream)
        reasons = [f"column {self.stream.event_time!r} has no event time that a clock shows"] * len(bad)
        return self._parsed(typed, bad, reasons, table, ())

    def _parsed(
        self, typed: pa.Table, bad: Bools, reasons: list[str], raw: pa.Table, wrong: tuple[Malformed, ...]
    ) -> Parsed:
        names = raw.column(self.node_column) if self.node_column else None
        return self._finished(
            typed, bad, reasons, names, lambda row: json.dumps(raw.slice(row, 1).to_pylist()[0], default=str), wrong
        )

    def _finished(
        self, typed: pa.Table, bad: Bools, reasons: list[str], names: Any, raw: Any, wrong: tuple[Malformed, ...]
    ) -> Parsed:
        producers: Int64s | None = None
        if names is not None:
            producers, missing = self.dealer.named(names)
            for row in np.flatnonzero(missing & ~bad):
                reasons[row] = self.dealer.reason(names[int(row)].as_py())
            bad = bad | missing
            producers = producers[~bad]
        return Parsed(without(typed, bad), producers, (*wrong, *malformed_rows(bad, reasons, raw)))

    def _nobody(self) -> Int64s | None:
        return np.empty(0, np.int64) if self.node_column else None

    def _check_node_column(self, names: Sequence[str], where: str) -> None:
        if self.node_column and self.node_column not in names:
            raise InputError(
                f"stream {self.stream.name!r}: {where} has no column {self.node_column!r}, which node_column names"
            )


def _utf8(data: bytes) -> tuple[bytes, list[str]]:
    """Without the lines that are not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        good: list[bytes] = []
        bad: list[str] = []
        for line in data.split(b"\n"):
            try:
                line.decode()
                good.append(line)
            except UnicodeDecodeError:
                bad.append(line.decode("utf-8", "replace"))
        return b"\n".join(good), bad
    return data, []


def joined(parts: Sequence[Parsed], format_: Format, dealt: int) -> tuple[pa.Table, Int64s, tuple[Malformed, ...]]:
    """Batches one after the other, each row with its producer, sorted by it. `dealt` rows came before."""
    empty = arrow_schema(format_.stream.schema).empty_table()
    table = pa.concat_tables([p.table for p in parts]) if parts else empty
    named = [p.producers for p in parts if p.producers is not None]
    producers = np.concatenate(named) if named else format_.dealer.in_turn(len(table), dealt)
    table, producers = sorted_by_producer(table, producers)
    return table, producers, tuple(m for p in parts for m in p.malformed)
