"""Cutting a large batch into parts that can run beside each other: every core has work, and none needs
memory for all of it.

Rows that only pass are cut anywhere, and so are those that partial aggregates are made of in two rounds (see
`two_rounds`). Other rows that meet in an operator with memory are cut by one of its keys, together with the state:
equal keys are in one part. Where there is no such key, a batch stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.run.execution.rewrites.late_materialisation import column_of_each_leaf, origins, united
from meander.run.execution.rewrites.partial_aggregation import takes_two_rounds
from meander.run.fragments.template import Stage

LEAST_PART_ROWS = 50_000
"""Rows that are worth a part of their own."""

MOST_PART_ROWS = 250_000
"""Rows beyond which a part would need much memory."""

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Spreads numbers that follow a pattern."""

Parts = list[list[pa.Table]]


def worth_cutting(tables: Sequence[pa.Table], cores: int) -> int:
    """Into how many parts a batch should be cut."""
    rows = sum(map(len, tables))
    return max(1, min(cores, rows // LEAST_PART_ROWS), -(-rows // MOST_PART_ROWS))


def cut(stage: Stage, tables: Sequence[pa.Table], count: int, *, by_key: bool = True) -> Parts:
    """So many parts of a batch, or one: each has a table for each of the stage's frames.

    Without `by_key` equal keys may be in several parts, where two rounds follow.
    """
    if count < 2:
        return [list(tables)]
    if stage.stateful is None:
        return _anywhere(tables, count)
    if by_key and has_plain_key(stage, tables):
        return _by_key(tables, _key_columns(stage) or (), count)
    return _anywhere(tables, count) if takes_two_rounds(stage) else [list(tables)]


def has_plain_key(stage: Stage, tables: Sequence[pa.Table]) -> bool:
    """Whether rows are cut so that equal keys are in one part."""
    columns = _key_columns(stage)
    return columns is not None and _is_plain(tables, columns)


def _anywhere(tables: Sequence[pa.Table], count: int) -> Parts:
    cuts = [[len(t) * i // count for i in range(count + 1)] for t in tables]
    return [[t.slice(c[i], c[i + 1] - c[i]) for t, c in zip(tables, cuts, strict=True)] for i in range(count)]


def _key_columns(stage: Stage) -> list[str] | None:
    """For each frame of the stage the column of one and the same key, if every row has it as it is."""
    assert stage.stateful is not None
    keys, node = stage.stateful.cut_by, stage.remembering
    if keys is None or node is None:
        return None
    known = origins(stage)
    found = united([known[i][name] for i, name in zip(node.inputs, keys.inputs, strict=True)])
    columns = column_of_each_leaf(stage, found)
    return None if columns is None else [*columns, *keys.states]


def _is_plain(tables: Sequence[pa.Table], columns: Sequence[str]) -> bool:
    types = {t.schema.field(c).type for t, c in zip(tables, columns, strict=True)}
    return len(types) == 1 and _can_be_told_apart(types.pop())


def _can_be_told_apart(type_: pa.DataType) -> bool:
    """Whether Arrow calls the same values equal as Spark does: 0.0 and -0.0 are one key there, and so is every NaN."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return any(is_plain(type_) for is_plain in plain)


def _by_key(tables: Sequence[pa.Table], columns: Sequence[str], count: int) -> Parts:
    chunks = [c for t, name in zip(tables, columns, strict=True) for c in t.column(name).chunks]
    part = _part_of(pa.chunked_array(chunks, tables[0].column(columns[0]).type), count)
    parts: Parts = [[] for _ in range(count)]
    first = 0
    for table in tables:
        own = part[first : first + len(table)]
        first += len(table)
        order = np.argsort(own, kind="stable")
        sizes = np.bincount(own, minlength=count)
        ends = np.cumsum(sizes)
        sorted_rows = table.combine_chunks().take(pa.array(order))
        for i in range(count):
            parts[i].append(sorted_rows.slice(int(ends[i] - sizes[i]), int(sizes[i])))
    return parts


def _part_of(keys: pa.ChunkedArray, count: int) -> npt.NDArray[np.uint8]:
    """The part of each row: the same for equal keys."""
    if pa.types.is_integer(keys.type):
        numbers = pc.fill_null(keys, 0).cast(pa.int64()).to_numpy()
    else:
        codes = pc.fill_null(keys.combine_chunks().dictionary_encode().indices, 0)
        numbers = codes.to_numpy().astype(np.int64)
    mixed = (numbers.view(np.uint64) * MIXER) >> np.uint64(40)
    found: npt.NDArray[np.uint8] = (mixed % np.uint64(count)).astype(np.uint8)
    return found
