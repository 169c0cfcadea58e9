"""Result rows as JSON: times in ISO 8601, bytes in base64, numbers that JSON lacks as texts, as Spark writes them.

Times are made into texts as columns: Python's own know no year beyond 9999, which a result may well have.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def json_lines(table: pa.Table) -> bytes:
    """One object a line."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in json_rows(table)).encode()


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows that `json` can write."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]
    for name in table.column_names:
        for row, value in zip(rows, _values(table.column(name).combine_chunks()), strict=True):
            row[name] = value
    return rows


def _values(column: pa.Array) -> list[Any]:
    """A column's values as `json` can write them."""
    type_ = column.type
    if pa.types.is_list(type_):
        inner = _values(column.flatten())
        lengths = [n or 0 for n in pc.list_value_length(column).to_pylist()]
        ends = np.cumsum([0, *lengths])
        given = column.is_valid().to_pylist()
        return [inner[a:b] if valid else None for a, b, valid in zip(ends, ends[1:], given, strict=False)]
    if pa.types.is_timestamp(type_):
        return _timestamps(column.cast(pa.timestamp("us", type_.tz)), "Z" if type_.tz else "")
    if pa.types.is_date(type_):
        return _texts(column.cast(pa.int32()), "D")
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(type_):
        return [v if v is None or math.isfinite(v) else _special(v) for v in values]
    if pa.types.is_binary(type_):
        return [None if v is None else base64.b64encode(v).decode() for v in values]
    return values


def _timestamps(column: pa.Array, zone: str) -> list[str | None]:
    """Milliseconds, or microseconds where there are some."""
    texts = _texts(column.cast(pa.int64()), "us")
    return [None if text is None else text.removesuffix("000") + zone for text in texts]


def _texts(column: pa.Array, unit: Literal["us", "D"]) -> list[str | None]:
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    times: np.ndarray[tuple[Any, ...], np.dtype[np.datetime64]] = numbers.astype(f"datetime64[{unit}]")
    texts = np.datetime_as_string(times, unit=unit).tolist()
    return [text if valid else None for text, valid in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
