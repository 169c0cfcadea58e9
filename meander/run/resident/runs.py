"""Runs: rows with the hashes of their keys, sorted, so that the rows of a few hashes are found without reading others.

New rows are a small run of their own. A run that is not much larger than the one behind it is merged with it, so there
are few of them, and a row is copied a few times in its life. Large ones stay as they are; when memory runs out they go
to files that are mapped.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.resident.hashing import UInt64s
from meander.run.store.gather import ranges

LARGEST_ROWS = 1 << 19
"""Rows of a run that is not merged any more."""
RATIO = 4
"""A run that has not so many times the rows of the next one is merged with it."""


class Run(NamedTuple):
    """Rows in the order they came, and their hashes in order with the place of each."""

    hashes: UInt64s
    places: Int64s
    rows: pa.Table
    bytes: int
    """In memory: nothing when it is mapped from a file."""

    @staticmethod
    def of(hashes: UInt64s, rows: pa.Table) -> Run:
        order = np.argsort(hashes, kind="stable")
        return Run.in_memory(hashes[order], order, rows)

    @staticmethod
    def in_memory(hashes: UInt64s, places: Int64s, rows: pa.Table) -> Run:
        return Run(hashes, places, rows, int(rows.nbytes + hashes.nbytes + places.nbytes))

    @property
    def is_mapped(self) -> bool:
        return not self.bytes

    def find(self, wanted: UInt64s) -> pa.Table | None:
        """The rows with one of these hashes, which are in order and each there once; None if there are none."""
        first = np.searchsorted(self.hashes, wanted)
        counts = np.searchsorted(self.hashes, wanted, side="right") - first
        if not counts.any():
            return None
        return self.rows.take(pa.array(self.places[ranges(first, counts)]))

    def spilled(self, directory: Path) -> Run:
        """The same, mapped from a file that goes with it."""
        directory.mkdir(parents=True, exist_ok=True)
        index = pa.table({"hash": self.hashes, "place": self.places})
        whole = pa.table([*index.columns, *self.rows.columns], ["hash", "place", *self.rows.column_names])
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            with pa.ipc.new_file(file.name, whole.schema) as writer:
                writer.write_table(whole.combine_chunks(), max_chunksize=max(1, len(whole)))
            with pa.memory_map(file.name) as mapped:
                read = pa.ipc.open_file(mapped).read_all()
        hashes, places = (read.column(i).chunk(0).to_numpy() for i in range(2))
        rows = pa.table(read.columns[2:], schema=self.rows.schema)
        return Run(hashes, places, rows, 0)


def merged(one: Run, other: Run) -> Run:
    """Both as one run, in memory."""
    hashes = np.concatenate([one.hashes, other.hashes])
    order = np.argsort(hashes, kind="stable")  # quick, as both halves are in order
    places = np.concatenate([one.places, other.places + len(one.rows)])
    return Run.in_memory(hashes[order], places[order], pa.concat_tables([one.rows, other.rows]).combine_chunks())


class Runs:
    """The runs of one bucket of time, the oldest first."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, hashes: UInt64s, rows: pa.Table) -> None:
        for start in range(0, len(rows), LARGEST_ROWS):
            part = slice(start, start + LARGEST_ROWS)
            self.runs.append(Run.of(hashes[part], rows.slice(start, LARGEST_ROWS)))
        while len(self.runs) > 1 and self._is_to_be_merged(*self.runs[-2:]):
            self.runs.append(merged(self.runs.pop(-2), self.runs.pop()))

    @staticmethod
    def _is_to_be_merged(one: Run, other: Run) -> bool:
        rows, more = len(one.rows), len(other.rows)
        return not one.is_mapped and rows < RATIO * more and rows + more <= LARGEST_ROWS

    @property
    def bytes(self) -> int:
        """In memory."""
        return sum(run.bytes for run in self.runs)

    def spill(self, directory: Path) -> None:
        """Brings what is not merged any more to files, and what is large besides."""
        small = LARGEST_ROWS // 32
        self.runs = [r if r.is_mapped or len(r.rows) < small else r.spilled(directory) for r in self.runs]
