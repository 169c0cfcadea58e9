"""A user function that queries of chaos apply: processes of a test bed are allowed to import it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Twice the id of each row, beside the row."""
    columns = [batch.column(name) for name in ("ts", "id", "value")]
    names = ["ts", "id", "value", "twice"]
    return pa.RecordBatch.from_arrays([*columns, pc.multiply(batch.column("id"), 2)], names=names)
