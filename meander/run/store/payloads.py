"""Payloads: Arrow batches in the journal, shared by all channels and state partitions that hold slices of them.

A payload is one record batch, written once, without its schema. New ones are also kept in memory up to a budget; an
older one is read back from the mapped segment, so spilling is nothing but forgetting. A payload dies with its last
slice, a segment with its last payload.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import pyarrow as pa

from meander.model.errors import InputError
from meander.run.store.framing import Place, Section, section
from meander.run.store.journal import Journal

NO_PAYLOAD = -1
PINNED_FACTOR = 2.0
"""A batch whose buffers are that much larger than its rows is a slice of something big: its serialised form is kept."""


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

    def keep(self, numbers: set[int]) -> None:
        """Forgets all others: a snapshot does not list them, so no later record may refer to them."""
        for number in self.by_number.keys() - numbers:
            del self._numbers[self.by_number.pop(number).serialize().to_pybytes()]

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

    __slots__ = ("batch", "live_rows", "number", "place", "row_bytes", "rows", "schema", "uses", "verified")

    def __init__(self, place: Place, schema: int, rows: int, *, verified: bool) -> None:
        self.place, self.schema, self.rows, self.verified = place, schema, rows, verified
        self.row_bytes = place.length / max(rows, 1)
        self.number = NO_PAYLOAD
        self.uses = 0
        self.live_rows = 0
        self.batch: pa.RecordBatch | None = None

    @property
    def live_bytes(self) -> float:
        """Rows that two slices share count once at most."""
        return min(self.live_rows, self.rows) * self.row_bytes


class Payloads:
    """All payloads by number, what is in memory, and which segments still hold one. Guarded by the store's lock.

    Numbers grow in the order of appending. Views hold numbers, not objects, which spares the garbage collector.
    """

    def __init__(self, journal: Journal, schemas: Schemas, memory_budget_bytes: int) -> None:
        self.schemas = schemas
        self.by_number: dict[int, Payload] = {}
        self.memory_bytes = 0
        self.memory_budget_bytes = memory_budget_bytes
        self.spilled_reads = 0
        self.slice_bytes = 0.0
        """Bytes of all slices; one that several share counts for each."""
        self.emptied: dict[int, int] = {}
        """Closed segments without payloads, each with the number of the record that emptied it."""
        self._next = 0
        self._in_segment: dict[int, int] = {}
        self._journal = journal
        self._held: OrderedDict[Payload, None] = OrderedDict()

    def add(self, payload: Payload) -> int:
        """Gives a payload its number. Its slices are counted with `use`; without any, `settle` lets it go again."""
        payload.number = self._next
        self._next += 1
        self.by_number[payload.number] = payload
        segment = payload.place.segment
        self._in_segment[segment] = self._in_segment.get(segment, 0) + 1
        return payload.number

    def use(self, number: int, slices: int, rows: int) -> None:
        """Counts more slices with so many rows in all."""
        payload = self.by_number[number]
        payload.uses += slices
        payload.live_rows += rows
        self.slice_bytes += rows * payload.row_bytes

    def release(self, number: int, rows: int, slices: int = 1) -> float:
        """Counts slices less, says how many bytes they had; the last one lets the payload go."""
        payload = self.by_number[number]
        payload.uses -= slices
        payload.live_rows -= rows
        size = rows * payload.row_bytes
        self.slice_bytes -= size
        if payload.uses == 0:
            self.discard(payload)
        return size

    def discard(self, payload: Payload) -> None:
        """Lets a payload go whatever still points to it; the caller sees to that."""
        self.slice_bytes -= payload.live_rows * payload.row_bytes
        self._forget(payload)
        del self.by_number[payload.number]
        segment = payload.place.segment
        self._in_segment[segment] -= 1
        if self._in_segment[segment] == 0:
            del self._in_segment[segment]
            if segment != self._journal.active_segment:
                self.emptied[segment] = self._journal.next_number - 1

    def note_emptied(self) -> None:
        """Older segments in which nothing is needed may go when the newest record, which says so, is on the disk."""
        for segment in self._journal.segments:
            if segment != self._journal.active_segment and segment not in self._in_segment:
                self.emptied.setdefault(segment, self._journal.next_number - 1)

    def delete_emptied(self) -> None:
        """Deletes segments of which it is known on the disk that nothing in them is needed."""
        settled = self._journal.settled
        for segment in [s for s, record in self.emptied.items() if record < settled]:
            del self.emptied[segment]
            self._journal.delete(segment)

    def live_bytes(self) -> dict[int, float]:
        """The live payloads of each segment."""
        sizes = dict.fromkeys(self._in_segment, 0.0)
        for payload in self.by_number.values():
            sizes[payload.place.segment] += payload.live_bytes
        return sizes

    def settle(self, payload: Payload, batch: pa.RecordBatch | None) -> None:
        """After its slices are counted: keeps the batch in memory, at the expense of the oldest ones."""
        if not payload.uses:
            if payload.number in self.by_number:
                self.discard(payload)
            return
        size = payload.place.length
        if batch is None or size > self.memory_budget_bytes:
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

    def batch(self, number: int) -> pa.RecordBatch:
        """The rows, from memory or from the mapped segment. They stay readable when the payload is gone."""
        payload = self.by_number[number]
        if payload.batch is not None:
            return payload.batch
        self.spilled_reads += 1
        data = self._journal.read(payload.place, verify=not payload.verified)
        payload.verified = True
        return pa.ipc.read_record_batch(data, self.schemas.by_number[payload.schema])
