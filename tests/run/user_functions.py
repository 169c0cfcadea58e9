"""User functions for tests."""

from __future__ import annotations

import pyarrow as pa


def fails_on_a1(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Breaks as soon as it sees road a1."""
    if "a1" in batch.column("road").to_pylist():
        raise ValueError("road a1 is closed")
    return batch
