"""Compares results as multisets: missing rows, and superfluous ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from meander.run.frames import HIDDEN

DIGITS = 9
"""Significant digits in which floating-point results must agree: sums depend on the order of addition."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that only the expected or only the actual results have, counted as often as they differ."""

    expected: int
    lost: int
    double: int
    example: str | None = None

    @property
    def equal(self) -> bool:
        return not self.lost and not self.double


def compare(expected: pa.Table, actual: pa.Table) -> Comparison:
    """Compares rows by value, in any order; hidden columns do not count."""
    want, have = _rows(expected), _rows(actual)
    lost, double = want - have, have - want
    example = next((str(row) for row in (*lost, *double)), None)
    return Comparison(len(expected), lost.total(), double.total(), example)


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    visible = table.drop_columns([c for c in table.column_names if c in HIDDEN])
    columns = [[_comparable(v) for v in column.to_pylist()] for column in visible.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return tuple(map(_comparable, value)) if isinstance(value, list) else value
