"""Transfers: a fragment's state as a stream of self-checking chunks, and its arrival elsewhere.

A chunk is one frame with some partitions of one operator. Chunks may arrive again after a crash: each takes effect
once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.run.commit import Commit, StateAppend, transfer_writer
from meander.run.framing import Frame, encode, scan
from meander.run.gather import Gather, Gathered
from meander.run.partitions import PartitionKey
from meander.run.payloads import Sealed, one_batch
from meander.run.record import schema_from, schema_text
from meander.run.store import Store

CHUNK_BYTES = 4_000_000
_CHUNK_KIND = 3


class TransferError(Exception):
    """A chunk did not arrive as it was sent. Nothing of it took effect; send it again."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a chunk brought."""

    chunk: int
    rows: int
    last: bool
    repeated: bool


@dataclass(slots=True)
class _Load:
    """Partitions of one operator that travel together."""

    operator: int
    schema: pa.Schema
    buckets: list[int]
    lengths: list[int]
    gather: Gather
    bytes: float
    found: Gathered | None = None


def export_state(
    store: Store, fragment: FragmentId, *, newest_first: bool = False, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """The fragment's state as of this moment. There is always a last chunk, also for no state."""
    loads = _loads(store, fragment, newest_first, chunk_bytes)

    def chunks() -> Iterator[bytes]:
        for number, load in enumerate(loads):
            yield _encoded(number, load, last=number == len(loads) - 1)
        if not loads:
            yield _frame(0, {"last": True}, None)

    return chunks()


def _loads(store: Store, fragment: FragmentId, newest_first: bool, chunk_bytes: int) -> list[_Load]:
    """Finds all rows under the lock; they stay readable afterwards, whatever is dropped."""
    loads: list[_Load] = []
    with store.lock:
        state = store.views.state.fragments.get(fragment)
        keys = (
            [
                PartitionKey(fragment, operator, bucket)
                for operator, table in sorted(state.operators.items())
                for bucket in table.buckets
            ]
            if state
            else []
        )
        if newest_first:
            keys.sort(key=lambda k: k.bucket, reverse=True)
        for key in keys:
            table = state.operators[key.operator] if state else None
            assert table is not None
            width = sum(p.rows * store.payloads.by_number[p.payload].row_bytes for p in store.views.state.pieces(*key))
            if not loads or loads[-1].operator != key.operator or loads[-1].bytes + width > chunk_bytes:
                loads.append(_Load(key.operator, store.views.schemas.by_number[table.schema], [], [], Gather(), 0.0))
            load = loads[-1]
            load.lengths.append(table.collect(key.bucket, load.gather, len(load.buckets)))
            load.buckets.append(key.bucket)
            load.bytes += width
        for load in loads:
            load.found = load.gather.resolve(store.payloads)
    return loads


def _encoded(number: int, load: _Load, *, last: bool) -> bytes:
    assert load.found is not None
    table, owners = load.found.table(load.schema)
    ordered = table.combine_chunks().take(pa.array(np.argsort(owners, kind="stable")))  # by partition
    header = {
        "operator": load.operator,
        "schema": schema_text(load.schema),
        "buckets": load.buckets,
        "lengths": load.lengths,
        "last": last,
    }
    return _frame(number, header, one_batch(ordered, "state"))


def _frame(number: int, header: dict[str, object], batch: pa.RecordBatch | None) -> bytes:
    sections = [] if batch is None else [Sealed.of(batch).section]
    buffers, _, _ = encode(number, number, _CHUNK_KIND, json.dumps(header).encode(), sections)
    return b"".join(buffers)


def import_state(store: Store, fragment: FragmentId, transfer: str, chunk: bytes) -> Arrival:
    """Appends a chunk's partitions to the fragment; each chunk of a transfer takes effect once, in order."""
    frame = next(scan(chunk, 0), None)
    if not isinstance(frame, Frame) or frame.kind != _CHUNK_KIND or frame.end != len(chunk):
        raise TransferError(f"a chunk of transfer {transfer!r} arrived damaged; send it again")
    writer = transfer_writer(fragment, transfer)
    last = store.last_batch(writer)
    if frame.number > (-1 if last is None else last) + 1:
        raise TransferError(
            f"chunk {frame.number} of transfer {transfer!r} arrived before an earlier one; send in order"
        )
    header = json.loads(frame.header)
    appends: tuple[StateAppend, ...] = ()
    if frame.places:
        place = frame.places[0]
        data = pa.py_buffer(chunk).slice(place.offset, place.length)
        batch = pa.ipc.read_record_batch(data, schema_from(header["schema"]))
        fragments = np.full(len(header["buckets"]), fragment, np.int64)
        appends = (StateAppend.sliced(batch, header["operator"], fragments, header["buckets"], header["lengths"]),)
    outcome = store.commit(Commit(writer, frame.number, state_appends=appends))
    return Arrival(frame.number, sum(header.get("lengths", [])), header["last"], outcome.repeated)
