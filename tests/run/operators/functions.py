"""User functions for the tests, each beside a plain one for a single tuple that the reference uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Values = tuple[Any, ...]


def halved(batch: pa.RecordBatch) -> pa.Table:
    """As many rows as the batch: hidden columns are attached by position."""
    return pa.table({"x": pc.divide(batch.column("v"), 2.0)})


def halved_of_one(row: Mapping[str, Any]) -> list[Values]:
    return [(None if row["v"] is None else row["v"] / 2,)]


def twice_positive(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drops rows and repeats others, keeping the hidden columns."""
    kept = batch.filter(pc.greater(batch.column("v"), 0.0))
    doubled = kept.take(pa.array([i for i in range(len(kept)) for _ in range(2)], pa.int64()))
    return doubled.append_column("x", doubled.column("v"))


def twice_positive_of_one(row: Mapping[str, Any]) -> list[Values]:
    return [(row["k"], row["v"])] * 2 if row["v"] is not None and row["v"] > 0 else []


def forgets_rows(batch: pa.RecordBatch) -> pa.Table:
    """Drops rows without keeping the hidden columns: an error."""
    return pa.table({"x": pc.divide(batch.column("v"), 2.0)}).slice(1)
