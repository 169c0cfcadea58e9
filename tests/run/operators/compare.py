"""Comparing multisets of rows: exactly between runs, with a tolerance for doubles against the reference."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from meander.run.frames import FRAGMENT, HIDDEN
from tests.run.reference import Row, Value

Rows = list[tuple[Value, ...]]


def rows_of(table: pa.Table) -> dict[int, Rows]:
    """Rows by fragment: hidden columns, then the user's; sorted."""
    found: dict[int, Rows] = defaultdict(list)
    names = [n for n in table.column_names if n != FRAGMENT]
    columns = (table.column(n).to_pylist() for n in (FRAGMENT, *names))
    for fragment, *values in zip(*columns, strict=True):
        found[fragment].append(tuple(tuple(v) if isinstance(v, list) else v for v in values))
    return {fragment: ordered(rows) for fragment, rows in found.items()}


def of_reference(rows: Iterable[Row]) -> Rows:
    every = ((r.ts, r.wm, r.newest, *(tuple(v) if isinstance(v, list) else v for v in r.values)) for r in rows)
    return ordered(every)


def ordered(rows: Iterable[tuple[Value, ...]]) -> Rows:
    return sorted(rows, key=lambda row: tuple(_rank(v) for v in row))


def _rank(value: Value) -> tuple[bool, str, Value]:
    """Sorts anything; doubles by their first digits, so that a rounding error does not change the order."""
    if isinstance(value, float):
        return True, "float", float(f"{value:.6e}")
    return value is not None, type(value).__name__, "" if value is None else value


def assert_close(found: Rows, wanted: Rows, what: str) -> None:
    assert len(found) == len(wanted), f"{what}: {len(found)} rows, wanted {len(wanted)}\n{found}\n{wanted}"
    for mine, theirs in zip(found, wanted, strict=True):
        assert len(mine) == len(theirs)
        assert all(map(_close, mine, theirs)), f"{what}: found {mine}, wanted {theirs}"


def _close(mine: Value, theirs: Value) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-12, abs_tol=1e-12) or mine == theirs
    return bool(mine == theirs and type(mine) is type(theirs))


HIDDEN_WIDTH = len(HIDDEN)
