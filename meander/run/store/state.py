"""State tables: operators' state as append-only Arrow rows, by (fragment, operator, bucket).

A step appends what is new and drops what has passed, in its commit. Reading gives many partitions as one table. A
partition of many small pieces is merged by a function that the operator passes in; the merge is a commit of its own
and is given up if the partition changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.run.channels.base import Int64s, int64s
from meander.run.store.commit import Commit, StateMerge
from meander.run.store.gather import Gather, resolve
from meander.run.store.partitions import WIDTH, OperatorPartitions, PartitionKey
from meander.run.store.payloads import Payloads

if TYPE_CHECKING:
    from meander.run.store.store import Store

Merge = Callable[[pa.Table, Int64s], tuple[pa.Table, Int64s]]
"""Makes fewer rows of the same schema with the same meaning, such as partial aggregates added up, of many partitions at
once: rows and the index of each row's partition, in and out."""


@dataclass(frozen=True, slots=True)
class StateSize:
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """A partition of many pieces."""

    key: PartitionKey
    pieces: int
    rows: int
    first_rows: int
    """Rows of the oldest piece, which earlier merges made."""


@dataclass(frozen=True, slots=True)
class StateReading:
    """Rows of many partitions as one table, in the order in which they were appended."""

    table: pa.Table | None
    """None if there are no such partitions: their schema is not known then."""
    owners: Int64s
    """For each row the index of its partition in `fragments`, `buckets` and `rows`."""
    fragments: Int64s
    buckets: Int64s
    rows: Int64s
    """How many rows each partition has."""


class StateTables:
    """Reads, measures and merges. Appending and dropping are parts of a `Commit`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._view = store.views.state

    def read(
        self,
        fragments: Iterable[FragmentId],
        operator: int,
        start: int | Sequence[int] | Int64s | None = None,
        stop: int | Sequence[int] | Int64s | None = None,
    ) -> StateReading:
        """The partitions of buckets from `start` up to, not including, `stop`; both may differ by fragment."""
        keys = list(fragments)
        with self._store.lock:
            found = self._view.within(keys, operator, _for_each(start, len(keys)), _for_each(stop, len(keys)))
            payloads, offsets, rows = (np.ascontiguousarray(c) for c in found.pieces.T[:3])
            of_pieces = np.repeat(np.arange(len(found.sizes)), found.sizes)
            gathered = resolve(self._store.payloads, payloads, offsets, rows, of_pieces)
            known = None if found.schema is None else self._store.views.schemas.by_number[found.schema]
        counts = np.bincount(of_pieces, rows, minlength=len(found.sizes)).astype(np.int64)
        table, owners = (None, int64s([])) if known is None else gathered.table(known)
        return StateReading(table, owners, found.fragments, found.buckets, counts)

    def rows_within(self, fragments: Iterable[FragmentId], operator: int, start: Int64s, stop: Int64s) -> int:
        """The number of rows that `read` would give."""
        found = 0
        with self._store.lock:
            for fragment, low, high in zip(fragments, start.tolist(), stop.tolist(), strict=True):
                table = self._view.find(fragment, operator)
                if table is not None:
                    found += sum(table.rows[bucket] for bucket in table.between(low, high))
        return found

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while `partitions` are looked at."""
        return self._store.lock

    @property
    def payloads(self) -> Payloads:
        return self._store.payloads

    def partitions(self, fragment: FragmentId, operator: int) -> OperatorPartitions | None:
        """The partitions of one operator, as they are: to be read only, while the store's lock is held."""
        return self._view.find(fragment, operator)

    def buckets(self, fragment: FragmentId, operator: int) -> tuple[int, ...]:
        with self._store.lock:
            table = self._view.find(fragment, operator)
            return tuple(table.buckets) if table else ()

    def operators(self, fragment: FragmentId) -> tuple[int, ...]:
        with self._store.lock:
            state = self._view.fragments.get(fragment)
            return tuple(sorted(state.operators)) if state else ()

    def fragments(self) -> tuple[FragmentId, ...]:
        """Fragments that have state."""
        with self._store.lock:
            return tuple(FragmentId(f) for f in self._view.fragments)

    def size(self, fragment: FragmentId) -> StateSize:
        """Rows and bytes of a fragment's state; counted as it changes, so asking is free."""
        with self._store.lock:
            state = self._view.fragments.get(fragment)
            return StateSize(state.rows, round(state.bytes)) if state else StateSize(0, 0)

    def crowds(self, min_pieces: int) -> tuple[Crowd, ...]:
        """The same, with how many pieces and rows they have."""
        with self._store.lock:
            return tuple(
                Crowd(key, len(numbers) // WIDTH, sum(numbers[2::WIDTH]), numbers[2])
                for key, numbers in self._view.all()
                if len(numbers) >= max(1, min_pieces) * WIDTH
            )

    @property
    def epoch(self) -> int:
        """Grows when state changes its owner."""
        return self._view.epoch

    def begin_epoch(self) -> None:
        """Forgets the owners of state that were found before."""
        with self._store.lock:
            self._view.epoch += 1

    def compact(self, partitions: Iterable[PartitionKey], merge: Merge, epoch: int | None = None) -> int:
        """Merges the pieces of each partition into one, with one commit per operator; says of how many partitions.

        Steps go on meanwhile: what they append is kept, and a partition that they drop stays dropped.
        """
        by_operator: dict[tuple[int, int], list[PartitionKey]] = {}
        with self._store.lock:
            for key in partitions:
                table = self._view.find(key.fragment, key.operator)
                if table is not None and len(table.pieces.get(key.bucket, ())) > WIDTH:
                    by_operator.setdefault((key.operator, table.schema), []).append(key)
        epoch = self.epoch if epoch is None else epoch
        return sum(self._merge(keys, schema, merge, epoch) for (_, schema), keys in by_operator.items())

    def _merge(self, keys: list[PartitionKey], schema: int, merge: Merge, epoch: int) -> int:
        gather, seen = Gather(), []
        with self._store.lock:
            for owner, key in enumerate(keys):
                pieces = self._view.pieces(*key)
                for piece in pieces:
                    gather.add(piece.payload, piece.offset, piece.rows, owner)
                seen.append((pieces[0].record if pieces else 0, len(pieces)))
            found = gather.resolve(self._store.payloads)
            known = self._store.views.schemas.by_number[schema]
        table, owners = merge(*found.table(known))
        table = table.combine_chunks().take(pa.array(np.argsort(owners, kind="stable")))
        lengths = np.bincount(owners, minlength=len(keys)).astype(np.int64)
        columns = np.array([[*key, *first] for key, first in zip(keys, seen, strict=True)], np.int64).reshape(-1, 5)
        columns = np.column_stack([columns, np.cumsum(lengths) - lengths, lengths])
        with self._store.lock:
            rows = columns.tolist() if self.epoch == epoch else []
            same = [row for row in rows if self._view.starts_with(*row[:5])]
            if same:
                self._store.commit(Commit(state_merges=(StateMerge(table, *map(int64s, zip(*same, strict=True))),)))
        return len(same)


def _for_each(limit: int | Sequence[int] | Int64s | None, count: int) -> Sequence[int | None]:
    if limit is None or isinstance(limit, int):
        return [limit] * count
    return [int(x) for x in limit]
