"""Partitions: operators' state as a view over the journal, as slices of shared payloads.

A partition is (fragment, operator, bucket); a bucket is a window's start or a slice of time. Each append adds one
piece, so a step writes only what is new.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from meander.model.ids import FragmentId
from meander.run.payloads import Payload, Payloads, Slice


class Piece(NamedTuple):
    """Rows that came with one commit, by the number of its record."""

    payload: Payload
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
        self.pieces: dict[int, list[Piece]] = {}

    def between(self, start: int | None, stop: int | None) -> list[int]:
        """Buckets from `start` up to, not including, `stop`."""
        low = 0 if start is None else bisect_left(self.buckets, start)
        high = len(self.buckets) if stop is None else bisect_left(self.buckets, stop)
        return self.buckets[low:high]


class FragmentState:
    __slots__ = ("bytes", "operators", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0.0
        self.operators: dict[int, OperatorState] = {}


class StateView:
    """All state of a site host. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.fragments: dict[int, FragmentState] = {}
        self.bytes = 0.0

    def find(self, fragment: int, operator: int) -> OperatorState | None:
        state = self.fragments.get(fragment)
        return state.operators.get(operator) if state else None

    def pieces(self, fragment: int, operator: int, bucket: int) -> list[Piece]:
        found = self.find(fragment, operator)
        return found.pieces.get(bucket, []) if found else []

    def append(self, fragment: int, operator: int, bucket: int, piece: Piece) -> None:
        """Takes a piece over; its payload's use has been counted."""
        state = self.fragments.get(fragment)
        if state is None:
            state = self.fragments[fragment] = FragmentState()
        table = state.operators.get(operator)
        if table is None:
            table = state.operators[operator] = OperatorState(piece.payload.schema)
        pieces = table.pieces.get(bucket)
        if pieces is None:
            table.pieces[bucket] = [piece]
            insort(table.buckets, bucket)
        else:
            pieces.append(piece)
        self._count(state, piece, 1)

    def _count(self, state: FragmentState, piece: Piece, sign: int) -> None:
        size = sign * piece.payload.bytes_of(piece.rows)
        state.rows += sign * piece.rows
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
            if pieces is None:
                continue
            del table.buckets[bisect_left(table.buckets, bucket)]
            for piece in pieces:
                self._count(state, piece, -1)
                payloads.release(piece.payload, piece.rows)
        if not table.buckets:
            del state.operators[operator]
        if not state.operators:
            del self.fragments[fragment]

    def drop_fragment(self, fragment: int, payloads: Payloads) -> None:
        state = self.fragments.get(fragment)
        for operator, table in list(state.operators.items()) if state else []:
            self.drop(fragment, operator, list(table.buckets), payloads)

    def merge(self, key: PartitionKey, count: int, merged: Piece, payloads: Payloads) -> None:
        """Puts one piece in the place of the first `count`."""
        state = self.fragments[key.fragment]
        pieces = state.operators[key.operator].pieces[key.bucket]
        for piece in pieces[:count]:
            self._count(state, piece, -1)
            payloads.release(piece.payload, piece.rows)
        pieces[:count] = [merged]
        self._count(state, merged, 1)

    def partitions(self) -> Iterator[tuple[PartitionKey, list[Piece]]]:
        for fragment, state in self.fragments.items():
            for operator, table in state.operators.items():
                for bucket in table.buckets:
                    yield PartitionKey(FragmentId(fragment), operator, bucket), table.pieces[bucket]


def slices_of(pieces: Iterable[Piece]) -> Iterator[Slice]:
    for piece in pieces:
        yield Slice(piece.payload, piece.offset, piece.rows)
