"""Gathering: slices of many payloads as one table, with as few copies and chunks as possible.

What was appended as neighbouring slices of one table is read as one slice again, whoever owns the rows; each row's
owner is told beside the table. Rows of one owner keep their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.store.payloads import Payloads

TAKEN_FROM_RUNS = 8
"""From so many separate runs of one payload on, taking rows by index is cheaper than one chunk per run."""


class Gather:
    """Collects slices, owner by owner."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.offsets: list[int] = []
        self.rows: list[int] = []
        self.owners: list[int] = []

    def add(self, payload: int, offset: int, rows: int, owner: int) -> None:
        self.numbers.append(payload)
        self.offsets.append(offset)
        self.rows.append(rows)
        self.owners.append(owner)

    def resolve(self, payloads: Payloads) -> Gathered:
        """Finds the batches, while the store's lock keeps segments from being deleted."""
        columns = (self.numbers, self.offsets, self.rows, self.owners)
        return resolve(payloads, *(np.array(c, np.int64) for c in columns))


def resolve(payloads: Payloads, numbers: Int64s, offsets: Int64s, rows: Int64s, owners: Int64s) -> Gathered:
    """As `Gather.resolve`, for slices that are columns already."""
    used, which = np.unique(numbers, return_inverse=True)
    return Gathered([payloads.batch(n) for n in used.tolist()], which, offsets, rows, owners)


class Gathered(NamedTuple):
    """Slices with their batches; nothing is copied yet."""

    batches: list[pa.RecordBatch]
    which: Int64s
    offsets: Int64s
    rows: Int64s
    owners: Int64s

    def table(self, schema: pa.Schema) -> tuple[pa.Table, Int64s]:
        """The rows, and the owner of each."""
        if self.rows.size == 1:
            only = self.batches[0].slice(int(self.offsets[0]), int(self.rows[0]))
            return pa.Table.from_batches([only]), np.repeat(self.owners, self.rows)
        order = np.lexsort((self.offsets, self.which))  # by payload, so that neighbours come together
        which, offsets, rows = self.which[order], self.offsets[order], self.rows[order]
        runs = [_named(run, schema.names) for run in self._runs(which, offsets, rows)]
        table = pa.Table.from_batches(runs, schema=schema)
        if self._in_order():
            return table, np.repeat(self.owners[order], rows)
        starts = np.empty_like(rows)
        starts[order] = np.cumsum(rows) - rows
        return table.combine_chunks().take(pa.array(ranges(starts, self.rows))), np.repeat(self.owners, self.rows)

    def _runs(self, which: Int64s, offsets: Int64s, rows: Int64s) -> list[pa.RecordBatch]:
        joined = (which[1:] == which[:-1]) & (offsets[1:] == offsets[:-1] + rows[:-1])
        first = np.flatnonzero(np.concatenate([np.ones(min(which.size, 1), bool), ~joined]))
        if not first.size:
            return []
        run_which, run_offsets, run_rows = which[first], offsets[first], np.add.reduceat(rows, first)
        bounds = np.searchsorted(run_which, np.arange(len(self.batches) + 1)).tolist()
        found: list[pa.RecordBatch] = []
        for batch, start, stop in zip(self.batches, bounds, bounds[1:], strict=False):
            if stop - start >= TAKEN_FROM_RUNS:
                found.append(batch.take(pa.array(ranges(run_offsets[start:stop], run_rows[start:stop]))))
                continue
            for offset, count in zip(run_offsets[start:stop].tolist(), run_rows[start:stop].tolist(), strict=True):
                found.append(batch if count == batch.num_rows else batch.slice(offset, count))
        return found

    def _in_order(self) -> bool:
        """Whether sorting by payload leaves the rows of each owner in order."""
        later = (self.which[1:] > self.which[:-1]) | (
            (self.which[1:] == self.which[:-1]) & (self.offsets[1:] >= self.offsets[:-1])
        )
        return bool((later | (self.owners[1:] != self.owners[:-1])).all())


def _named(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Columns are read by their place: those of other streams with the same types may have other names."""
    return batch if batch.schema.names == names else batch.rename_columns(names)


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """All numbers of the ranges, one after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
