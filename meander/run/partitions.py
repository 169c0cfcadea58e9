"""Partitions: operators' state as a view over the journal, as slices of shared payloads.

A partition is (fragment, operator, bucket); a bucket is a window's start or a slice of time. Each append adds one
piece, so a step writes only what is new. Pieces are plain integers in one array per partition.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from meander.model.ids import FragmentId
from meander.run.gather import Gather
from meander.run.payloads import Payloads

WIDTH = 4
"""Integers per piece: payload, offset in it, rows, number of the record it came with."""


packed = struct.Struct(f"={WIDTH}q").pack
"""A piece as it is appended."""


class Piece(NamedTuple):
    payload: int
    offset: int
    rows: int
    record: int


class PartitionKey(NamedTuple):
    fragment: FragmentId
    operator: int
    bucket: int


class OperatorState:
    """The partitions of one operator of one fragment; buckets are kept sorted, so that ranges are cheap."""

    __slots__ = ("buckets", "pieces", "schema")

    def __init__(self, schema: int) -> None:
        self.schema = schema
        self.buckets: list[int] = []
        self.pieces: dict[int, array[int]] = {}

    def between(self, start: int | None, stop: int | None) -> list[int]:
        """Buckets from `start` up to, not including, `stop`."""
        low = 0 if start is None else bisect_left(self.buckets, start)
        high = len(self.buckets) if stop is None else bisect_left(self.buckets, stop)
        return self.buckets[low:high]

    def collect(self, bucket: int, into: Gather, owner: int) -> int:
        """Adds the rows of a partition; says how many."""
        pieces, total = self.pieces[bucket], 0
        for at in range(0, len(pieces), WIDTH):
            rows = pieces[at + 2]
            into.add(pieces[at], pieces[at + 1], rows, owner)
            total += rows
        return total


class FragmentState:
    """All state of one fragment, with its size."""

    __slots__ = ("bytes", "operators", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0.0
        self.operators: dict[int, OperatorState] = {}


class Partitions:
    """All state of a site host. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.fragments: dict[int, FragmentState] = {}
        self.bytes = 0.0
        self.epoch = 0
        """Grows when state changes its owner: what was found out before may be about another operator now."""

    def find(self, fragment: int, operator: int) -> OperatorState | None:
        state = self.fragments.get(fragment)
        return state.operators.get(operator) if state else None

    def pieces(self, fragment: int, operator: int, bucket: int) -> list[Piece]:
        """The pieces of a partition, oldest first."""
        found = self.find(fragment, operator)
        numbers = found.pieces.get(bucket, array("q")) if found else array("q")
        return [Piece(*numbers[at : at + WIDTH]) for at in range(0, len(numbers), WIDTH)]

    def starts_with(self, fragment: int, operator: int, bucket: int, first: int, pieces: int) -> bool:
        """Whether a partition has so many pieces, the oldest of which came with record `first`."""
        found = self.find(fragment, operator)
        numbers = found.pieces.get(bucket) if found else None
        return numbers is not None and len(numbers) >= pieces * WIDTH > 0 and numbers[WIDTH - 1] == first

    def append(
        self, fragment: int, operator: int, bucket: int, schema: int, pieces: bytes, rows: int, size: float
    ) -> None:
        """Takes packed pieces over, whose payloads' use has been counted; `rows` and `size` are theirs in all."""
        state = self.fragments.get(fragment)
        if state is None:
            state = self.fragments[fragment] = FragmentState()
        table = state.operators.get(operator)
        if table is None:
            table = state.operators[operator] = OperatorState(schema)
        numbers = table.pieces.get(bucket)
        if numbers is None:
            table.pieces[bucket] = array("q", pieces)
            insort(table.buckets, bucket)
        else:
            numbers.frombytes(pieces)
        state.rows += rows
        state.bytes += size
        self.bytes += size

    def _count(self, state: FragmentState, rows: int, size: float) -> None:
        state.rows += rows
        state.bytes += size
        self.bytes += size

    def drop(self, fragment: int, operator: int, buckets: Iterable[int], payloads: Payloads) -> None:
        """Drops partitions; one that is not there is no error."""
        state = self.fragments.get(fragment)
        table = state.operators.get(operator) if state else None
        if state is None or table is None:
            return
        for bucket in buckets:
            pieces = table.pieces.pop(bucket, None)
            if pieces is not None:
                del table.buckets[bisect_left(table.buckets, bucket)]
                self._release(state, pieces, payloads)
        if not table.buckets:
            del state.operators[operator]
        if not state.operators:
            self.bytes -= state.bytes
            del self.fragments[fragment]

    def _release(self, state: FragmentState, pieces: array[int], payloads: Payloads) -> None:
        for at in range(0, len(pieces), WIDTH):
            rows = pieces[at + 2]
            self._count(state, -rows, -payloads.release(pieces[at], rows))

    def drop_fragment(self, fragment: int, payloads: Payloads) -> None:
        state = self.fragments.get(fragment)
        for operator, table in list(state.operators.items()) if state else []:
            self.drop(fragment, operator, list(table.buckets), payloads)

    def rename(self, renames: Iterable[Sequence[int]], payloads: Payloads) -> None:
        """Moves operators' state as (fragment, operator, to fragment, to operator), all at the same moment."""
        self.epoch += 1
        taken: list[tuple[int, int, OperatorState, int, float]] = []
        for fragment, operator, to_fragment, to_operator in renames:
            table = self.find(fragment, operator)
            if table is not None:
                taken.append((to_fragment, to_operator, table, *self._take(fragment, operator, payloads)))
        for fragment, operator, table, rows, size in taken:
            state = self.fragments.setdefault(fragment, FragmentState())
            state.operators[operator] = table
            self._count(state, rows, size)

    def copy(self, fragment: int, target: int, payloads: Payloads) -> None:
        """The fragment's partitions under another number too, as slices of the same payloads."""
        self.drop_fragment(target, payloads)
        state = self.fragments.get(fragment)
        for operator, table in state.operators.items() if state else ():
            for bucket in table.buckets:
                pieces = table.pieces[bucket]
                rows, size = 0, 0.0
                for at in range(0, len(pieces), WIDTH):
                    payloads.use(pieces[at], 1, pieces[at + 2])
                    rows += pieces[at + 2]
                    size += pieces[at + 2] * payloads.by_number[pieces[at]].row_bytes
                self.append(target, operator, bucket, table.schema, pieces.tobytes(), rows, size)

    def _take(self, fragment: int, operator: int, payloads: Payloads) -> tuple[int, float]:
        """Takes a table out of its fragment; says how many rows and bytes it has."""
        state = self.fragments[fragment]
        numbers = state.operators.pop(operator).pieces.values()
        sizes = [(n[at + 2], payloads.by_number[n[at]].row_bytes) for n in numbers for at in range(0, len(n), WIDTH)]
        rows, size = sum(count for count, _ in sizes), sum(count * width for count, width in sizes)
        self._count(state, -rows, -size)
        if not state.operators:
            self.bytes -= state.bytes
            del self.fragments[fragment]
        return rows, size

    def merge(self, key: PartitionKey, count: int, merged: Piece, size: float, payloads: Payloads) -> None:
        """Puts one piece in the place of the oldest `count`."""
        state = self.fragments[key.fragment]
        pieces = state.operators[key.operator].pieces[key.bucket]
        self._release(state, pieces[: count * WIDTH], payloads)
        pieces[: count * WIDTH] = array("q", merged)
        self._count(state, merged.rows, size)

    def recount(self, payloads: Payloads) -> None:
        """Sizes anew, after rows moved to payloads with other widths."""
        self.bytes = 0.0
        for state in self.fragments.values():
            numbers = [n for table in state.operators.values() for n in table.pieces.values()]
            state.bytes = sum(
                payloads.by_number[pieces[at]].row_bytes * pieces[at + 2]
                for pieces in numbers
                for at in range(0, len(pieces), WIDTH)
            )
            self.bytes += state.bytes

    def all(self) -> Iterator[tuple[PartitionKey, array[int]]]:
        """Every partition with its pieces' integers."""
        for fragment, state in self.fragments.items():
            for operator, table in state.operators.items():
                for bucket in table.buckets:
                    yield PartitionKey(FragmentId(fragment), operator, bucket), table.pieces[bucket]
