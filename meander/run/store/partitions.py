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

from meander.model.errors import InputError
from meander.model.ids import FragmentId
from meander.run.channels.base import Int64s, int64s
from meander.run.store.payloads import Payloads

WIDTH = 4
"""Integers per piece: payload, offset in it, rows, number of the record it came with."""


packed = struct.Struct(f"={WIDTH}q").pack
"""A piece as it is appended."""


ALL_BUCKETS = 2**63 - 1
"""All are before this one."""


class Piece(NamedTuple):
    payload: int
    offset: int
    rows: int
    record: int


class PartitionKey(NamedTuple):
    fragment: FragmentId
    operator: int
    bucket: int


class OperatorPartitions:
    """The partitions of one operator of one fragment; buckets are kept sorted, so that ranges are cheap."""

    __slots__ = ("buckets", "pieces", "rows", "schema")

    def __init__(self, schema: int) -> None:
        self.schema = schema
        self.buckets: list[int] = []
        self.pieces: dict[int, array[int]] = {}
        self.rows: dict[int, int] = {}

    def between(self, start: int | None, stop: int | None) -> list[int]:
        """Buckets from `start` up to, not including, `stop`."""
        low = 0 if start is None else bisect_left(self.buckets, start)
        high = len(self.buckets) if stop is None else bisect_left(self.buckets, stop)
        return self.buckets[low:high]


class FragmentState:
    """All state of one fragment, with its size."""

    __slots__ = ("bytes", "operators", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0.0
        self.operators: dict[int, OperatorPartitions] = {}


class FoundPartitions(NamedTuple):
    """Partitions with their pieces, one below the other."""

    schema: int | None
    fragments: Int64s
    buckets: Int64s
    sizes: Int64s
    """How many pieces each partition has."""
    pieces: Int64s


class Partitions:
    """All state of a site host. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.fragments: dict[int, FragmentState] = {}
        self.bytes = 0.0
        self.epoch = 0
        """Grows when state changes its owner: what was found out before may be about another operator now."""

    def find(self, fragment: int, operator: int) -> OperatorPartitions | None:
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

    def within(
        self, fragments: Iterable[int], operator: int, starts: Iterable[int | None], stops: Iterable[int | None]
    ) -> FoundPartitions:
        """The partitions of an operator in ranges of buckets, which may differ by fragment."""
        owners, buckets, sizes, numbers = list[int](), list[int](), list[int](), array("q")
        schema: int | None = None
        for fragment, low, high in zip(fragments, starts, stops, strict=True):
            state = self.fragments.get(fragment)
            table = state.operators.get(operator) if state is not None else None
            if table is None:
                continue
            if schema is None:
                schema = table.schema
            elif table.schema != schema:
                raise InputError(f"state of operator {operator} has several schemas; read fragments one by one")
            for bucket in table.between(low, high):
                pieces = table.pieces[bucket]
                numbers.extend(pieces)
                owners.append(fragment)
                buckets.append(bucket)
                sizes.append(len(pieces) // WIDTH)
        return FoundPartitions(
            schema, int64s(owners), int64s(buckets), int64s(sizes), int64s(numbers).reshape(-1, WIDTH)
        )

    def append(
        self, fragment: int, operator: int, bucket: int, schema: int, pieces: bytes, rows: int, size: float
    ) -> None:
        """Takes packed pieces over, whose payloads' use has been counted; `rows` and `size` are theirs in all."""
        state = self.fragments.get(fragment)
        if state is None:
            state = self.fragments[fragment] = FragmentState()
        table = state.operators.get(operator)
        if table is None:
            table = state.operators[operator] = OperatorPartitions(schema)
        numbers = table.pieces.get(bucket)
        if numbers is None:
            table.pieces[bucket] = array("q", pieces)
            insort(table.buckets, bucket)
        else:
            numbers.frombytes(pieces)
        table.rows[bucket] = table.rows.get(bucket, 0) + rows
        state.rows += rows
        state.bytes += size
        self.bytes += size

    def _count(self, state: FragmentState, rows: int, size: float) -> None:
        state.rows += rows
        state.bytes += size
        self.bytes += size

    def drop(self, keys: Iterable[tuple[int, int, int]], payloads: Payloads, *, below: bool = False) -> None:
        """Drops partitions, or with `below` all of an operator's before the one that is named; missing is no error."""
        gone = array("q")
        for fragment, operator, bucket in keys:
            state = self.fragments.get(fragment)
            table = state.operators.get(operator) if state is not None else None
            if state is None or table is None:
                continue
            known = table.buckets
            last = bisect_left(known, bucket) if below else 0
            if last == len(known) and len(state.operators) == 1:  # mostly all of it goes
                for pieces in table.pieces.values():
                    gone.extend(pieces)
                self.bytes -= state.bytes
                del self.fragments[fragment]
                continue
            for each in known[:last] if below else (bucket,):
                found = table.pieces.pop(each, None)
                if found is not None:
                    del table.rows[each]
                    del known[bisect_left(known, each)]
                    self._uncount(state, found, payloads)
                    gone.extend(found)
            if not known:
                del state.operators[operator]
            if not state.operators:
                self.bytes -= state.bytes
                del self.fragments[fragment]
        _let_go(gone, payloads)

    def _uncount(self, state: FragmentState, pieces: Sequence[int], payloads: Payloads) -> None:
        for at in range(0, len(pieces), WIDTH):
            rows = pieces[at + 2]
            self._count(state, -rows, -rows * payloads.by_number[pieces[at]].row_bytes)

    def drop_fragment(self, fragment: int, payloads: Payloads) -> None:
        state = self.fragments.get(fragment)
        self.drop([(fragment, o, ALL_BUCKETS) for o in (state.operators if state else ())], payloads, below=True)

    def rename(self, renames: Iterable[Sequence[int]], payloads: Payloads) -> None:
        """Moves operators' state as (fragment, operator, to fragment, to operator), all at the same moment."""
        self.epoch += 1
        taken: list[tuple[int, int, OperatorPartitions, int, float]] = []
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
        table = state.operators[key.operator]
        pieces = table.pieces[key.bucket]
        old = pieces[: count * WIDTH]
        table.rows[key.bucket] += merged.rows - sum(old[2::WIDTH])
        self._uncount(state, old, payloads)
        _let_go(old, payloads)
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


def _let_go(pieces: Sequence[int], payloads: Payloads) -> None:
    """Counts the slices of payloads less, those of one payload at once."""
    slices: dict[int, int] = {}
    rows: dict[int, int] = {}
    for at in range(0, len(pieces), WIDTH):
        payload = pieces[at]
        slices[payload] = slices.get(payload, 0) + 1
        rows[payload] = rows.get(payload, 0) + pieces[at + 2]
    for payload, count in slices.items():
        payloads.release(payload, rows[payload], count)
