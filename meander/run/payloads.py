"""Payloads: Arrow batches in the journal, shared by all channels and state partitions that hold slices of them.

A payload is one record batch, written once, without its schema. New ones are also kept in memory up to a budget; an
older one is read back from the mapped segment, so spilling is nothing but forgetting. A payload dies with its last
slice, a segment with its last payload.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.run.frames import Place, Section, section
from meander.run.journal import Journal

PINNED_FACTOR = 2.0
"""A batch whose buffers are that much larger than its rows is a slice of something big: its serialised form is kept."""
TAKEN_FROM_SLICES = 16
"""From so many separate slices of one payload on, taking rows by index is cheaper than one chunk per slice."""


class Schemas:
    """All schemas in use, by number, so that a payload names its schema with one integer."""

    def __init__(self) -> None:
        self.by_number: dict[int, pa.Schema] = {}
        self._numbers: dict[bytes, int] = {}

    def number_of(self, schema: pa.Schema) -> int | None:
        return self._numbers.get(schema.serialize().to_pybytes())

    @property
    def next_number(self) -> int:
        return max(self.by_number, default=-1) + 1

    def add(self, number: int, schema: pa.Schema) -> None:
        self.by_number[number] = schema
        self._numbers[schema.serialize().to_pybytes()] = number


def plain_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """The schema as it is stored: nullable fields without metadata. Dictionary columns have to be decoded before."""
    for field in schema:
        if pa.types.is_dictionary(field.type):
            raise InputError(
                f"{what}: column {field.name!r} is dictionary-encoded; decode it to {field.type.value_type}"
            )
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def fitted(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The batch under exactly this schema; names, order and types must agree, nullability need not."""
    if batch.schema.equals(schema):
        return batch
    given = {f.name: f.type for f in batch.schema}
    wanted = {f.name: f.type for f in schema}
    problems = [f"column {n!r} is {given[n]} instead of {t}" for n, t in wanted.items() if n in given and given[n] != t]
    if missing := [n for n in wanted if n not in given]:
        problems.append(f"missing {', '.join(map(repr, missing))}")
    if extra := [n for n in given if n not in wanted]:
        problems.append(f"unexpected {', '.join(map(repr, extra))}")
    if not problems and list(given) != list(wanted):
        problems.append(f"columns are in the order {', '.join(given)}")
    if problems:
        raise InputError(f"{what}: {'; '.join(problems)}. Write exactly the columns {_listed(schema)}")
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def one_batch(table: pa.Table | pa.RecordBatch, what: str) -> pa.RecordBatch:
    """The rows as a single batch: slices of it can then be named by offset and length."""
    if isinstance(table, pa.RecordBatch):
        return table
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(f"{what}: more than 2 GB in one column; append it in several parts")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


class Sealed(NamedTuple):
    """A batch ready to be journaled: serialised and summed, before any lock is taken."""

    batch: pa.RecordBatch
    section: Section

    @staticmethod
    def of(batch: pa.RecordBatch) -> Sealed:
        data = batch.serialize()
        if batch.get_total_buffer_size() > PINNED_FACTOR * data.size:
            batch = pa.ipc.read_record_batch(data, batch.schema)
        return Sealed(batch, section(data))


class Payload:
    """One batch in the journal. `uses` counts slices of it, `live_rows` the rows in them."""

    __slots__ = ("batch", "live_rows", "place", "rows", "schema", "uses", "verified")

    def __init__(self, place: Place, schema: int, rows: int, *, verified: bool) -> None:
        self.place, self.schema, self.rows, self.verified = place, schema, rows, verified
        self.uses = 0
        self.live_rows = 0
        self.batch: pa.RecordBatch | None = None

    def bytes_of(self, rows: int) -> float:
        """The share of its bytes that so many rows have."""
        return self.place.length * rows / self.rows if self.rows else 0.0


class Slice(NamedTuple):
    """Some rows of a payload."""

    payload: Payload
    offset: int
    rows: int


class Payloads:
    """Keeps account of what is in memory and of what is live in each segment. Guarded by the store's lock."""

    def __init__(self, journal: Journal, schemas: Schemas, memory_budget_bytes: int) -> None:
        self.schemas = schemas
        self.memory_bytes = 0
        self.memory_budget_bytes = memory_budget_bytes
        self.spilled_reads = 0
        self.live_bytes: dict[int, float] = {}
        self._live_payloads: dict[int, int] = {}
        self._journal = journal
        self._held: OrderedDict[Payload, None] = OrderedDict()
        self.emptied: dict[int, int] = {}
        """Closed segments without live payloads, each with the number of the record that emptied it."""

    def use(self, payload: Payload, rows: int) -> None:
        """Counts one more slice."""
        segment = payload.place.segment
        if payload.uses == 0:
            self._live_payloads[segment] = self._live_payloads.get(segment, 0) + 1
        payload.uses += 1
        payload.live_rows += rows
        self.live_bytes[segment] = self.live_bytes.get(segment, 0.0) + payload.bytes_of(rows)

    def release(self, payload: Payload, rows: int) -> None:
        """Counts one slice less; the last one lets the payload go."""
        segment = payload.place.segment
        payload.uses -= 1
        payload.live_rows -= rows
        self.live_bytes[segment] -= payload.bytes_of(rows)
        if payload.uses == 0:
            self._forget(payload)
            self._live_payloads[segment] -= 1
            if self._live_payloads[segment] == 0:
                del self._live_payloads[segment], self.live_bytes[segment]
                if segment != self._journal.active_segment:
                    self.emptied[segment] = self._journal.next_number - 1

    def is_live(self, segment: int) -> bool:
        return segment in self._live_payloads

    def hold(self, payload: Payload, batch: pa.RecordBatch) -> None:
        """Keeps the batch in memory, at the expense of the oldest ones."""
        size = payload.place.length
        if size > self.memory_budget_bytes or not payload.uses:
            return
        payload.batch = batch
        self._held[payload] = None
        self.memory_bytes += size
        while self.memory_bytes > self.memory_budget_bytes:
            self._forget(next(iter(self._held)))

    def _forget(self, payload: Payload) -> None:
        if payload.batch is not None:
            payload.batch = None
            del self._held[payload]
            self.memory_bytes -= payload.place.length

    def batch(self, payload: Payload) -> pa.RecordBatch:
        """The rows, from memory or from the mapped segment."""
        if payload.batch is not None:
            return payload.batch
        self.spilled_reads += 1
        data = self._journal.read(payload.place, verify=not payload.verified)
        payload.verified = True
        return pa.ipc.read_record_batch(data, self.schemas.by_number[payload.schema])

    def resolve(self, slices: Iterable[Slice]) -> list[Rows]:
        """What `table_of` needs, while the store's lock keeps segments from being deleted."""
        return [Rows(self.batch(payload), parts) for payload, parts in _runs(slices)]


class Rows(NamedTuple):
    """Ranges (offset, rows) of one batch. It stays readable whatever happens to its payload."""

    batch: pa.RecordBatch
    parts: Sequence[tuple[int, int]]

    def taken(self) -> pa.RecordBatch:
        if len(self.parts) == 1:
            offset, rows = self.parts[0]
            return self.batch if rows == self.batch.num_rows else self.batch.slice(offset, rows)
        return self.batch.take(pa.array(np.concatenate([np.arange(o, o + n) for o, n in self.parts])))


def table_of(rows: Iterable[Rows], schema: pa.Schema) -> pa.Table:
    """All rows in order, without copying where neighbours lie side by side."""
    return pa.Table.from_batches([part.taken() for part in rows], schema=schema)


def _runs(slices: Iterable[Slice]) -> list[tuple[Payload, Sequence[tuple[int, int]]]]:
    """Joins neighbouring slices; many separate ones of the same payload stay together, to be taken by index."""
    grouped: list[tuple[Payload, list[tuple[int, int]]]] = []
    for payload, offset, rows in slices:
        if not rows:
            continue
        if grouped and grouped[-1][0] is payload:
            parts = grouped[-1][1]
            last_offset, last_rows = parts[-1]
            if last_offset + last_rows == offset:
                parts[-1] = (last_offset, last_rows + rows)
            else:
                parts.append((offset, rows))
        else:
            grouped.append((payload, [(offset, rows)]))
    runs: list[tuple[Payload, Sequence[tuple[int, int]]]] = []
    for payload, parts in grouped:
        runs += [(payload, [part]) for part in parts] if len(parts) < TAKEN_FROM_SLICES else [(payload, parts)]
    return runs
