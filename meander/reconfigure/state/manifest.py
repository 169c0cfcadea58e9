"""Manifests: the pieces of a state that its new place has already, so that only the difference is sent.

State is append-only: a step adds pieces to partitions, each with the number of the record it came with, and drops
partitions that have passed. So what was sent is still valid for as long as the pieces of then are the oldest ones of
now. A partition of which that is not true, because it was merged or replaced, is sent again as a whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meander.model.ids import FragmentId
from meander.run.store.partitions import WIDTH, FragmentState
from meander.run.store.store import Store

Partition = tuple[int, int]
"""The place of a state key among those of its operator, and a bucket. Keys change with the fragment, places do not."""
_ROWS, _RECORD = 2, 3


@dataclass(frozen=True, slots=True)
class Manifest:
    """The pieces that one export had, of all its partitions."""

    digest: int
    """That of the export."""
    pieces: Mapping[Partition, tuple[array[int], array[int]]]
    """Rows and record numbers."""

    def known(self, partition: Partition, numbers: array[int]) -> int | None:
        """How many of a partition's pieces are there already; None if what is there is of no use."""
        found = self.pieces.get(partition)
        if found is None:
            return 0
        rows, records = found
        end = len(rows) * WIDTH
        same = numbers[_ROWS:end:WIDTH] == rows and numbers[_RECORD:end:WIDTH] == records
        return len(rows) if same and len(numbers) >= end else None


def pieces_of(state: FragmentState | None, keys: Sequence[int]) -> dict[Partition, tuple[array[int], array[int]]]:
    """The pieces of some state keys as they are now; the store's lock is held."""
    found: dict[Partition, tuple[array[int], array[int]]] = {}
    for place, key in enumerate(keys):
        table = state.operators.get(key) if state is not None else None
        for bucket, numbers in table.pieces.items() if table is not None else ():
            found[place, bucket] = numbers[_ROWS::WIDTH], numbers[_RECORD::WIDTH]
    return found


def missing_bytes(store: Store, fragment: FragmentId, keys: Sequence[int], manifest: Manifest | None = None) -> float:
    """The size of what a place with this manifest lacks of some state keys; without one it lacks everything."""
    size, widths = 0.0, store.payloads.by_number
    with store.lock:
        state = store.views.state.fragments.get(fragment)
        for place, key in enumerate(sorted(keys)):
            table = state.operators.get(key) if state is not None else None
            for bucket, numbers in table.pieces.items() if table is not None else ():
                known = 0 if manifest is None else manifest.known((place, bucket), numbers) or 0
                size += sum(
                    numbers[at + _ROWS] * widths[numbers[at]].row_bytes
                    for at in range(known * WIDTH, len(numbers), WIDTH)
                )
    return size
