"""Foreign rows made tuples of a stream: columns found by name, values typed, misfits become malformed rows with a
reason.

Whole columns are converted at once; only when a column does not convert are its bad values looked for. Data that has
types of its own (parquet, Spark) is checked before the first row: one that does not widen to the stream's is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from meander.model.errors import InputError, unknown
from meander.model.schema import DataType, Kind
from meander.model.streams import Stream
from meander.run.connectors.base import Malformed
from meander.run.frames import BEGIN, END, arrow_schema, arrow_type

Bools = NDArray[np.bool_]
_BAD = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError)
MOST_MS = 2**52
"""Beyond it milliseconds are no time that microseconds could hold."""


# Typed data


def check_types(given: pa.Schema, stream: Stream, where: str) -> None:
    """Refuses data whose columns are missing or do not widen to the stream's types."""
    for field in stream.schema:
        index = given.get_field_index(field.name)
        if index < 0:
            raise InputError(
                f"stream {stream.name!r}: {where} has no column {field.name!r} ({field.type}); "
                f"its columns are {', '.join(given.names) or 'none'}. Rename one, or correct the stream's schema"
            )
        type_ = given.field(index).type
        if not _widens(type_, arrow_type(field.type)):
            raise InputError(
                f"stream {stream.name!r}: column {field.name!r} is {type_} in {where}, but {field.type} in the stream; "
                "correct the stream's schema or convert the data"
            )


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(given):
        return _widens(given.value_type, wanted)
    if given == wanted or types.is_null(given):
        return True
    if types.is_integer(wanted):
        room = wanted.bit_width - given.bit_width if types.is_integer(given) else -1
        return bool(room > 0 or (room == 0 and types.is_signed_integer(given)))
    if types.is_floating(wanted):
        return bool(types.is_integer(given) or (types.is_floating(given) and given.bit_width <= wanted.bit_width))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(given) or types.is_date(given))
    if types.is_list(wanted):
        return (types.is_list(given) or types.is_large_list(given)) and _widens(given.value_type, wanted.value_type)
    alike = (types.is_string, types.is_large_string), (types.is_binary, types.is_large_binary), (types.is_date,)
    return any(any(f(given) for f in family) and any(f(wanted) for f in family) for family in alike)


def widened(table: pa.Table, stream: Stream) -> pa.Table:
    """Checked data under exactly the stream's types."""
    columns = []
    for field in stream.schema:
        column, wanted = table.column(field.name), arrow_type(field.type)
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        columns.append(column if column.type == wanted else pc.cast(column, wanted, safe=False))
    return pa.table(columns, schema=arrow_schema(stream.schema))


# Texts and JSON values


def from_texts(columns: Mapping[str, pa.ChunkedArray], stream: Stream) -> tuple[pa.Table, Bools, list[str]]:
    """Text columns as tuples. Gives the table, which rows are bad, and the reason of each row that is."""
    rows = len(next(iter(columns.values()))) if columns else 0
    return _converted(stream, rows, lambda name, type_: _texts(columns[name].combine_chunks(), type_))


def from_values(rows: Sequence[Mapping[str, Any]], stream: Stream) -> tuple[pa.Table, Bools, list[str]]:
    """JSON objects as tuples; a key that is missing is null, one that the stream does not have is ignored."""
    return _converted(stream, len(rows), lambda name, type_: _values([r.get(name) for r in rows], type_))


def _converted(
    stream: Stream, rows: int, convert: Callable[[str, DataType], tuple[pa.Array, Bools]]
) -> tuple[pa.Table, Bools, list[str]]:
    bad, reasons = np.zeros(rows, bool), [""] * rows
    arrays = []
    for field in stream.schema:
        array, wrong = convert(field.name, field.type)
        arrays.append(array)
        for row in np.flatnonzero(wrong & ~bad):
            reasons[row] = f"column {field.name!r} is no {field.type}"
        bad |= wrong
    table = pa.table(arrays, schema=arrow_schema(stream.schema))
    no_time = times_missing(table, stream) & ~bad
    for row in np.flatnonzero(no_time):
        reasons[row] = f"column {stream.event_time!r} has no event time that a clock shows"
    return table, bad | no_time, reasons


def times_missing(table: pa.Table, stream: Stream) -> Bools:
    """Rows without a usable event time."""
    column = table.column(stream.event_time)
    if pa.types.is_timestamp(column.type):
        missing = column.is_null()
    else:
        in_range = pc.and_(pc.greater(column, BEGIN // 2), pc.less(column, END // 2))
        missing = pc.invert(pc.fill_null(in_range, False))
    result: Bools = np.asarray(missing).astype(bool)
    return result


def _texts(texts: pa.Array, type_: DataType) -> tuple[pa.Array, Bools]:
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())
    trimmed = texts if type_.kind in (Kind.STRING, Kind.NULL) else pc.utf8_trim_whitespace(texts)

    def convert(part: pa.Array) -> pa.Array:
        if type_.kind is Kind.TIMESTAMP:
            return _text_times(part)
        if type_.kind in (Kind.ARRAY, Kind.BINARY):
            decode = json.loads if type_.kind is Kind.ARRAY else (lambda text: text)
            return _values_array([None if t is None else decode(t) for t in part.to_pylist()], type_)
        return pc.cast(part, arrow_type(type_))

    return _found(trimmed, len(trimmed), convert, arrow_type(type_), lambda a, lo, hi: a.slice(lo, hi - lo))


def _text_times(texts: pa.Array) -> pa.Array:
    """ISO 8601, in UTC unless it names a zone; or whole milliseconds."""
    wanted = pa.timestamp("us", "UTC")
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), wanted)
    if pc.all(pc.match_substring_regex(texts, r"^-?\d{6,17}$")).as_py():
        return pc.cast(pc.cast(pc.cast(texts, pa.int64()), pa.timestamp("ms", "UTC")), wanted)
    zoned = pc.match_substring_regex(texts, r"([Zz]|[+-]\d\d:?\d\d)$")
    if not pc.any(zoned).as_py():
        return pc.cast(pc.cast(texts, pa.timestamp("us")), wanted)
    with_zone = pc.if_else(pc.fill_null(zoned, True), texts, pc.binary_join_element_wise(texts, "Z", ""))
    return pc.cast(with_zone, wanted)


def _values(values: Sequence[Any], type_: DataType) -> tuple[pa.Array, Bools]:
    return _found(
        values, len(values), lambda part: _values_array(part, type_), arrow_type(type_), lambda a, lo, hi: a[lo:hi]
    )


def _values_array(values: Sequence[Any], type_: DataType) -> pa.Array:
    match type_.kind:
        case Kind.TIMESTAMP | Kind.DATE:
            if type_.kind is Kind.TIMESTAMP and all(_is_whole(v) for v in values if v is not None):
                if any(abs(v) > MOST_MS for v in values if v is not None):
                    raise ValueError("no time")
                return pc.cast(pa.array(values, pa.timestamp("ms", "UTC")), arrow_type(type_))
            texts = pa.array(values, pa.string())
            return _text_times(texts) if type_.kind is Kind.TIMESTAMP else pc.cast(texts, pa.date32())
        case Kind.BINARY:
            return pa.array([None if v is None else base64.b64decode(v, validate=True) for v in values], pa.binary())
        case Kind.INT | Kind.BIGINT | Kind.FLOAT | Kind.DOUBLE if any(isinstance(v, bool) for v in values):
            raise TypeError("a truth value is no number")
        case Kind.FLOAT | Kind.DOUBLE if any(isinstance(v, str) for v in values):
            special = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
            return pa.array([special.get(v, v) for v in values], arrow_type(type_))
    return pa.array(values, arrow_type(type_))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _found(
    values: Any, count: int, convert: Callable[[Any], pa.Array], type_: pa.DataType, cut: Callable[[Any, int, int], Any]
) -> tuple[pa.Array, Bools]:
    """Converts all values at once, or by halves until the bad ones stand alone; a bad one becomes null."""
    bad = np.zeros(count, bool)
    parts: list[pa.Array] = []
    waiting = [(0, count)]
    while waiting:
        low, high = waiting.pop()
        try:
            parts.append(convert(cut(values, low, high)))
        except _BAD:
            if high - low == 1:
                bad[low] = True
                parts.append(pa.nulls(1, type_))
            else:
                middle = (low + high) // 2
                waiting += [(middle, high), (low, middle)]
    return pa.concat_arrays(parts), bad


def without(table: pa.Table, bad: Bools) -> pa.Table:
    return table.filter(pa.array(~bad)) if bad.any() else table


# Producers


class Dealer:
    """Says which producer a row belongs to: the one its node column names, or each in turn."""

    def __init__(self, stream: Stream, column: str | None) -> None:
        if not stream.nodes:
            raise InputError(f"stream {stream.name!r} has no nodes; say which nodes produce it")
        self.stream, self.column = stream, column
        self._nodes = pa.array(stream.nodes, pa.string())

    def named(self, names: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int64], Bools]:
        """Producers by node name, and the rows that name no producer of the stream."""
        found = pc.index_in(pc.cast(names, pa.string()), value_set=self._nodes)
        indices = np.asarray(pc.fill_null(found, -1)).astype(np.int64)
        return np.maximum(indices, 0), indices < 0

    def in_turn(self, count: int, before: int) -> NDArray[np.int64]:
        """Producers of `count` rows when `before` rows have been dealt."""
        nodes = len(self.stream.nodes)
        return (before + np.arange(count, dtype=np.int64)) % nodes if nodes > 1 else np.zeros(count, np.int64)

    def reason(self, name: object) -> str:
        return unknown("producer", str(name), self.stream.nodes).message


def sorted_by_producer(table: pa.Table, producers: NDArray[np.int64]) -> tuple[pa.Table, NDArray[np.int64]]:
    """Rows by producer, in order of arrival within each."""
    if len(producers) < 2 or (np.diff(producers) >= 0).all():
        return table, producers
    order = np.argsort(producers, kind="stable")
    return table.take(pa.array(order)), producers[order]


def malformed_rows(bad: Bools, reasons: Sequence[str], raw: Callable[[int], str]) -> tuple[Malformed, ...]:
    return tuple(Malformed(reasons[row], raw(row)) for row in np.flatnonzero(bad).tolist())
