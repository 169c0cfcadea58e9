"""A resident table: the rows of one state table of all fragments of a template, found by the hashes of their keys.

It follows the store: before it answers, it takes over what was appended since it was asked last. So a step pays for
what is new. State that came in another way (it was moved, given another number, built anew) is taken over as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.run.channels.base import Int64s
from meander.run.operators.state import StateTable
from meander.run.resident.hashing import key_hashes, owned
from meander.run.resident.runs import Runs
from meander.run.store.gather import Gather
from meander.run.store.partitions import WIDTH
from meander.run.store.state import StateTables

FORGET_EVERY = 64
"""Readings after which what the store has no longer is forgotten."""


@dataclass(slots=True)
class _Partition:
    """A partition as far as it was taken over. One that was dropped and begins anew has another number."""

    pieces: Sequence[int]
    number: int
    rows: int = 0


class Probe(NamedTuple):
    """Keys that are looked for, row by row, and the fragment of each."""

    fragments: Int64s
    keys: Sequence[pa.ChunkedArray]


class ResidentTable:
    """One state table of one operator. Used by one thread at a time."""

    def __init__(self, state: StateTables, operator: int, spec: StateTable, keys: Sequence[str]) -> None:
        """`keys` are columns of the state table."""
        self._state, self._operator, self._spec, self._keys = state, operator, spec, tuple(keys)
        self._partitions: dict[tuple[FragmentId, int], _Partition] = {}
        self._buckets: dict[int, Runs] = {}
        self._next, self._readings = 1, 0

    @property
    def bytes(self) -> int:
        """In memory."""
        return sum(runs.bytes for runs in self._buckets.values())

    def find(self, fragments: Sequence[FragmentId], first: Int64s, stop: Int64s, probes: Sequence[Probe]) -> pa.Table:
        """Rows of buckets from `first` up to, not including, `stop` whose keys are those of a probe, or seem to be."""
        numbers = self._follow(fragments, first, stop)
        hashed = [(*_distinct(p.fragments), key_hashes(p.keys)) for p in probes]
        found = []
        for bucket, number_of in numbers.items():
            wanted = [
                owned(hashes, np.array([number_of.get(f, 0) for f in own.tolist()])[which])
                for own, which, hashes in hashed
            ]
            sought = np.unique(np.concatenate(wanted)) if wanted else np.zeros(0, np.uint64)
            found += [rows for run in self._buckets[bucket].runs if (rows := run.find(sought)) is not None]
        return pa.concat_tables(found) if found else self._spec.frame_schema.empty_table()

    def _follow(self, fragments: Sequence[FragmentId], first: Int64s, stop: Int64s) -> dict[int, dict[int, int]]:
        """Takes over what the store has in these buckets and is not here; by bucket the numbers of its partitions."""
        numbers: dict[int, dict[int, int]] = {}
        new: dict[int, tuple[Gather, list[tuple[int, int]]]] = {}
        with self._state.lock:
            self._readings += 1
            if self._readings % FORGET_EVERY == 0:
                self._forget()
            for fragment, low, high in zip(fragments, first.tolist(), stop.tolist(), strict=True):
                table = self._state.partitions(fragment, self._operator)
                for bucket in table.between(low, high) if table is not None else ():
                    assert table is not None
                    own = self._of(fragment, bucket, table.pieces[bucket])
                    numbers.setdefault(bucket, {})[fragment] = own.number
                    if own.rows < table.rows[bucket]:
                        gather, owners = new.setdefault(bucket, (Gather(), []))
                        _add_tail(gather, own.pieces, table.rows[bucket] - own.rows, len(owners))
                        owners.append((fragment, own.number))
                        own.rows = table.rows[bucket]
            gathered = {bucket: gather.resolve(self._state.payloads) for bucket, (gather, _) in new.items()}
        for bucket, slices in gathered.items():
            rows, owners_of = slices.table(self._spec.schema)
            fragment_of, number_of = np.array(new[bucket][1], np.int64).T
            hashes = owned(key_hashes([rows.column(key) for key in self._keys]), number_of[owners_of])
            numbered = pa.array(fragment_of[owners_of].astype(np.int32))
            whole = pa.table([numbered, *(rows.column(n) for n in self._spec.names)], schema=self._spec.frame_schema)
            self._buckets.setdefault(bucket, Runs()).add(hashes, whole.combine_chunks())
        return numbers

    def _of(self, fragment: FragmentId, bucket: int, pieces: Sequence[int]) -> _Partition:
        known = self._partitions.get((fragment, bucket))
        if known is None or known.pieces is not pieces:
            known = self._partitions[fragment, bucket] = _Partition(pieces, self._next)
            self._next += 1
        return known

    def _forget(self) -> None:
        """Lets go of partitions that are gone, and of buckets that no fragment has any more."""
        for (fragment, bucket), known in list(self._partitions.items()):
            table = self._state.partitions(fragment, self._operator)
            if table is None or table.pieces.get(bucket) is not known.pieces:
                del self._partitions[fragment, bucket]
        alive = {bucket for _, bucket in self._partitions}
        for bucket in [b for b in self._buckets if b not in alive]:
            del self._buckets[bucket]

    def spill(self, directory: Path) -> None:
        """Brings large runs to files."""
        for runs in self._buckets.values():
            runs.spill(directory)


def _distinct(fragments: Int64s) -> tuple[Int64s, Int64s]:
    """The fragments, and which of them each row has; mostly there is one."""
    if fragments.size and (fragments == fragments[0]).all():
        return fragments[:1], np.zeros(fragments.size, np.int64)
    own, which = np.unique(fragments, return_inverse=True)
    return own, which


def _add_tail(gather: Gather, pieces: Sequence[int], rows: int, owner: int) -> None:
    """The newest rows of a partition: its pieces are in the order in which they were appended."""
    found = list[tuple[int, int, int]]()
    for at in range(len(pieces) - WIDTH, -1, -WIDTH):
        payload, offset, count = pieces[at : at + 3]
        taken = min(count, rows)
        found.append((payload, offset + count - taken, taken))
        rows -= taken
        if not rows:
            break
    for payload, offset, count in reversed(found):
        gather.add(payload, offset, count, owner)
