"""Twins: stages of a template with the same plan that do not read each other run as one job.

A job costs the same for one stage or for eight, so their rows are put together as if every twin were a fragment of its
own: fragments get other numbers for the job, and their own ones back in its result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.run.exchange.base import Int64s
from meander.run.frames import FRAGMENT


def together(numbers: Int64s, inputs: Sequence[Sequence[pa.Table]]) -> list[pa.Table]:
    """The tables of all twins as the tables of one stage; `numbers` are the batch's fragments, in order."""
    if len(inputs) == 1:
        return list(inputs[0])
    renumbered = [[_renumbered(table, numbers, twin) for table in tables] for twin, tables in enumerate(inputs)]
    return [pa.concat_tables(_plainly(t) for t in tables) for tables in zip(*renumbered, strict=True)]


def apart(numbers: Int64s, result: pa.Table, twins: int) -> list[pa.Table]:
    """What belongs to each twin."""
    if twins == 1:
        return [result]
    owners, fragments = np.divmod(result.column(FRAGMENT).to_numpy(), len(numbers))
    whole = _with_fragments(result, numbers[fragments])
    return [whole.filter(pa.array(owners == twin)) for twin in range(twins)]


def _plainly(table: pa.Table) -> pa.Table:
    """Whichever columns may be null."""
    return pa.table(table.columns, table.column_names)


def _renumbered(table: pa.Table, numbers: Int64s, twin: int) -> pa.Table:
    return _with_fragments(table, np.searchsorted(numbers, table.column(FRAGMENT).to_numpy()) + twin * len(numbers))


def _with_fragments(table: pa.Table, fragments: Int64s) -> pa.Table:
    at = table.column_names.index(FRAGMENT)
    return table.set_column(at, table.schema.field(at), pa.array(fragments.astype(np.int32), pa.int32()))
