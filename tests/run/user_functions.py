"""User functions for tests."""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from pathlib import Path

import pyarrow as pa

FLAG = Path(tempfile.gettempdir()) / f"meander-broken-{zlib.crc32(__file__.encode())}"
"""While it is there, functions are broken; workers of other checkouts do not see it."""


def fails_on_a1(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Breaks as soon as it sees road a1."""
    if "a1" in batch.column("road").to_pylist():
        raise ValueError("road a1 is closed")
    return batch


def forgets_the_value(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a column less than its query says."""
    return batch.drop_columns(["value"])


def fails_while_told(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Breaks for as long as a file is there."""
    if FLAG.exists():
        raise ValueError("the function is not mended yet")
    return batch


def dies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Takes its worker along for as long as a file is there."""
    if FLAG.exists():
        os._exit(1)
    return batch


def hangs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Does not return for as long as a file is there."""
    while FLAG.exists():
        time.sleep(0.05)
    return batch
