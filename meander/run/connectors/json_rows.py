"""Result rows as JSON: times in ISO 8601, bytes in base64, numbers that JSON lacks as texts, as Spark writes them."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from typing import Any

import pyarrow as pa


def json_lines(table: pa.Table) -> bytes:
    """One object a line."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in json_rows(table)).encode()


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows that `json` can write."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]
    for name in table.column_names:
        column = table.column(name)
        plain = pa.types.is_integer(column.type) or pa.types.is_string(column.type) or pa.types.is_boolean(column.type)
        values = column.to_pylist()
        for row, value in zip(rows, values if plain else map(_plain, values), strict=True):
            row[name] = value
    return rows


def _plain(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else _special(value)
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [_plain(v) for v in value]
    return value


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
