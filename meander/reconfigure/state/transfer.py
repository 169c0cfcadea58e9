"""Transfers: a fragment's state as a stream of self-checking chunks, and its arrival elsewhere.

An export is the state at one moment, cut into chunks; each can be encoded at any time, and again. A chunk is one frame
with rows of some partitions. Chunks are taken in order and each takes effect once, so a transfer that broke goes on at
the first chunk that is missing. The first chunk replaces what an earlier attempt may have left at its place, unless
the export is what changed since another one (`manifest`): then it drops only what is not valid any more.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import FragmentId
from meander.reconfigure.state.manifest import Manifest, pieces_of
from meander.run.channels.flight.untrusted import read_untrusted
from meander.run.store.commit import Commit, StateAppend, StateDrop, Writer, transfer_writer
from meander.run.store.encoding import schema_from, schema_text
from meander.run.store.framing import Frame, Section, encode, scan, section
from meander.run.store.gather import Gather, Gathered
from meander.run.store.partitions import ALL_BUCKETS, WIDTH, FragmentState, PartitionKey
from meander.run.store.payloads import Payloads, one_batch
from meander.run.store.store import Store

CHUNK_BYTES = 1_000_000
MOST_BYTES = 1_000_000_000
"""The size to which one part of a chunk may unpack: a chunk is larger than usual where one row is."""
_CHUNK_KIND = 3
_LAST = 1 << 40
"""Added to the batch id of an export's last chunk, so that the store itself knows what is complete."""


class TransferError(Exception):
    """A chunk did not arrive as it was sent. Nothing of it took effect; send it again."""


class Compression(Enum):
    """How the rows of a chunk are packed."""

    NONE = "none"
    ZSTD = "zstd"

    @property
    def codec(self) -> pa.Codec | None:
        match self:
            case Compression.ZSTD:
                return pa.Codec("zstd", 1)
        return None


@dataclass(frozen=True, slots=True)
class Arrival:
    """The content of a chunk that arrived."""

    chunk: int
    rows: int
    last: bool
    repeated: bool


@dataclass(slots=True)
class _Part:
    """Rows of one operator that travel in one chunk."""

    schema: pa.Schema
    buckets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    gather: Gather = field(default_factory=Gather)
    found: Gathered | None = None

    def add(self, bucket: int, payload: int, offset: int, rows: int) -> None:
        if not self.buckets or self.buckets[-1] != bucket:
            self.buckets.append(bucket)
            self.lengths.append(0)
        self.lengths[-1] += rows
        self.gather.add(payload, offset, rows, len(self.buckets) - 1)

    def batch(self) -> pa.RecordBatch:
        """The rows, partition by partition."""
        assert self.found is not None
        table, owners = self.found.table(self.schema)
        if not (np.diff(owners) >= 0).all():
            table = table.combine_chunks().take(pa.array(np.argsort(owners, kind="stable")))
        return one_batch(table, "state")


@dataclass(slots=True)
class _Load:
    """The content of one chunk, by operator."""

    parts: dict[int, _Part] = field(default_factory=dict)
    bytes: float = 0.0


class Export:
    """A fragment's state as of this moment, whatever happens to it afterwards. There is always at least one chunk."""

    def __init__(
        self,
        store: Store,
        fragment: FragmentId,
        *,
        operators: Collection[int] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        compression: Compression = Compression.NONE,
        after: Manifest | None = None,
    ) -> None:
        """`operators` restricts it to some state keys; `after` to what changed since an export of the same ones."""
        if chunk_bytes < 1:
            raise InputError(f"chunk_bytes is {chunk_bytes}; a chunk needs at least 1 byte")
        self._codec, self._compression = compression.codec, compression
        with store.lock:
            state = store.views.state.fragments.get(fragment)
            known = sorted(state.operators if state else ())
            named = known if operators is None else sorted(operators)
            chosen = [o for o in named if o in known]
            cut = _Cut(store, state, chunk_bytes)
            places = {o: place for place, o in enumerate(named)}
            self._pieces = pieces_of(state, named)
            self.after = None if after is None else after.digest
            """The export that it continues."""
            stale = {p for p in after.pieces if p not in self._pieces} if after is not None else set()
            keys = [PartitionKey(fragment, o, b) for o in chosen for b in state.operators[o].buckets] if state else []
            for key in keys:
                partition = places[key.operator], key.bucket
                has = 0 if after is None else after.known(partition, cut.pieces(key))
                if has is None:
                    stale.add(partition)
                cut.take(key, has or 0)
            self._drops = sorted((named[place], bucket) for place, bucket in stale)
            self.operators: tuple[int, ...] = tuple(sorted({*chosen, *(o for o, _ in self._drops)}))
            for load in cut.loads:
                for part in load.parts.values():
                    part.found = part.gather.resolve(store.payloads)
        self._loads = cut.loads or [_Load()]
        self.bytes = round(sum(load.bytes for load in self._loads))
        """About how large the state is; chunks have headers, and may be compressed."""
        self.rows = sum(sum(p.lengths) for load in self._loads for p in load.parts.values())
        told = [] if after is None else [after.digest, *(n for drop in self._drops for n in drop)]
        self.digest = zlib.crc32(np.array([*cut.layout, *told], np.int64).tobytes())
        """The same for two exports only if their chunks are the same."""

    def __len__(self) -> int:
        return len(self._loads)

    @property
    def manifest(self) -> Manifest:
        """The manifest of a place that took all of it, together with the pieces it had before."""
        return Manifest(self.digest, self._pieces)

    def __iter__(self) -> Iterator[bytes]:
        return (self.chunk(number) for number in range(len(self)))

    def chunk(self, number: int) -> bytes:
        """One chunk, encoded."""
        sections: list[Section] = []
        parts: list[dict[str, Any]] = []
        for operator, part in self._loads[number].parts.items():
            header: dict[str, Any] = {
                "operator": operator,
                "schema": schema_text(part.schema),
                "buckets": part.buckets,
                "lengths": part.lengths,
            }
            data = part.batch().serialize()
            if self._codec is None:
                sections.append(section(data))
            else:
                header |= {"codec": self._compression.value, "bytes": data.size}
                sections.append(section(self._codec.compress(data)))
            parts.append(header)
        described = {"export": self.digest, "chunks": len(self), "operators": self.operators, "parts": parts}
        if self.after is not None:
            described |= {"after": self.after, "drops": self._drops if number == 0 else []}
        buffers, _, _ = encode(number, number, _CHUNK_KIND, json.dumps(described).encode(), sections)
        return b"".join(buffers)


class _Cut:
    """Shares pieces of partitions out among chunks; a piece that is too large for one is cut."""

    def __init__(self, store: Store, state: FragmentState | None, chunk_bytes: int) -> None:
        self.loads: list[_Load] = []
        self.layout: list[int] = []
        self._payloads: Payloads = store.payloads
        self._schemas = store.views.schemas.by_number
        self._state, self._chunk_bytes = state, chunk_bytes

    def pieces(self, key: PartitionKey) -> array[int]:
        assert self._state is not None
        return self._state.operators[key.operator].pieces[key.bucket]

    def take(self, key: PartitionKey, has: int) -> None:
        """Takes a partition's pieces, but for the oldest ones that the other place has."""
        assert self._state is not None
        table = self._state.operators[key.operator]
        pieces = table.pieces[key.bucket]
        for at in range(has * WIDTH, len(pieces), WIDTH):
            payload, offset, rows, record = pieces[at : at + WIDTH]
            width = max(self._payloads.by_number[payload].row_bytes, 1e-9)
            while rows:
                fit = self._fitting(rows, width)
                load = self.loads[-1]
                part = load.parts.get(key.operator)
                if part is None:
                    part = load.parts[key.operator] = _Part(self._schemas[table.schema])
                part.add(key.bucket, payload, offset, fit)
                load.bytes += fit * width
                self.layout += (len(self.loads), key.operator, key.bucket, record, offset, fit)
                offset, rows = offset + fit, rows - fit

    def _fitting(self, rows: int, width: float) -> int:
        """How many rows go into the last chunk; opens another one if none does."""
        if self.loads:
            fit = int(min(rows, (self._chunk_bytes - self.loads[-1].bytes) / width))
            if fit > 0:
                return fit
        self.loads.append(_Load())
        return max(1, int(min(rows, self._chunk_bytes / width)))


def import_state(
    store: Store,
    fragment: FragmentId,
    transfer: str,
    chunk: bytes | bytearray,
    keys: Mapping[int, int] | None = None,
    after: int | None = None,
) -> Arrival:
    """Takes a chunk's rows into the fragment; `keys` gives each operator's state key its new one.

    `after` is the export that is there as a whole. Chunks of an export must come in order; one that came before has no
    second effect. Raises TransferError for a damaged, early, cancelled or unfit one, without any effect.
    """
    frame = next(scan(chunk, 0), None)
    if not isinstance(frame, Frame) or frame.kind != _CHUNK_KIND or frame.end != len(chunk):
        raise TransferError(f"a chunk of transfer {transfer!r} arrived damaged; send it again")
    header = json.loads(frame.header)
    if is_cancelled(store, fragment, transfer):
        raise TransferError(f"transfer {transfer!r} was cancelled; begin another one under a new name")
    if header.get("after", after) != after:
        raise TransferError(
            f"transfer {transfer!r} brings what changed since a state that is not here; ask for all of it"
        )
    taken = chunks_taken(store, fragment, transfer, header["export"])
    if frame.number > taken:
        raise TransferError(
            f"chunk {frame.number} of transfer {transfer!r} arrived before an earlier one; send in order"
        )
    last = frame.number == header["chunks"] - 1
    rows = sum(sum(part["lengths"]) for part in header["parts"])
    if frame.number < taken:
        return Arrival(frame.number, rows, last, repeated=True)
    new_key = _renamed(header["operators"], transfer, keys)
    appends = []
    for part, place in zip(header["parts"], frame.places, strict=True):
        data = pa.py_buffer(chunk).slice(place.offset, place.length)
        if "codec" in part:
            if not 0 <= part["bytes"] <= MOST_BYTES:
                raise TransferError(f"a chunk of transfer {transfer!r} says to unpack to {part['bytes']:,} bytes")
            data = pa.Codec(part["codec"]).decompress(data, part["bytes"])
        batch = read_untrusted(data, schema_from(part["schema"]), sum(part["lengths"]))
        fragments = np.full(len(part["buckets"]), fragment, np.int64)
        appends.append(
            StateAppend.sliced(batch, new_key[part["operator"]], fragments, part["buckets"], part["lengths"])
        )
    drops: tuple[StateDrop, ...] = ()
    if "after" in header:
        drops = _exactly(fragment, [(new_key[operator], bucket) for operator, bucket in header["drops"]])
    elif frame.number == 0:
        drops = _everything(fragment, keys.values() if keys else new_key.values())
    writer = _chunks_of(fragment, transfer, header["export"])
    commit = Commit(writer, frame.number + (_LAST if last else 0), state_drops=drops, state_appends=tuple(appends))
    return Arrival(frame.number, rows, last, store.commit(commit).repeated)


def chunks_taken(store: Store, fragment: FragmentId, transfer: str, export: int) -> int:
    """How many chunks of an export have taken effect: the number of the first one that is missing."""
    last = store.last_batch(_chunks_of(fragment, transfer, export))
    return 0 if last is None else last % _LAST + 1


def is_complete(store: Store, fragment: FragmentId, transfer: str) -> bool:
    """Whether all chunks of a transfer have taken effect, also after a restart."""
    begins = str(transfer_writer(fragment, f"{transfer} export "))
    with store.lock:
        if _cancelled(fragment, transfer) in store.views.writers:
            return False
        return any(last.batch_id >= _LAST for w, last in store.views.writers.items() if w.startswith(begins))


def is_cancelled(store: Store, fragment: FragmentId, transfer: str) -> bool:
    return store.last_batch(_cancelled(fragment, transfer)) is not None


def cancel_transfer(store: Store, fragment: FragmentId, transfer: str, operators: Iterable[int]) -> None:
    """Drops what a transfer brought to these state keys; its chunks are refused from now on."""
    store.commit(Commit(_cancelled(fragment, transfer), state_drops=_everything(fragment, operators)))


def _everything(fragment: FragmentId, operators: Iterable[int]) -> tuple[StateDrop, ...]:
    chosen = sorted(operators)
    return (StateDrop.of(chosen, np.full(len(chosen), fragment), ALL_BUCKETS, below=True),) if chosen else ()


def _exactly(fragment: FragmentId, partitions: Sequence[tuple[int, int]]) -> tuple[StateDrop, ...]:
    if not partitions:
        return ()
    operators, buckets = zip(*partitions, strict=True)
    return (StateDrop.of(operators, np.full(len(partitions), fragment), buckets),)


def _renamed(operators: Collection[int], transfer: str, keys: Mapping[int, int] | None) -> dict[int, int]:
    if keys is None:
        return {operator: operator for operator in operators}
    if missing := sorted(set(operators) - set(keys)):
        raise InputError(
            f"transfer {transfer!r} brings state of keys {', '.join(map(str, missing))}, which have no new key; "
            f"export keys {', '.join(map(str, sorted(keys)))} only, or name the others too"
        )
    if len(set(keys.values())) < len(keys):
        raise InputError(f"transfer {transfer!r}: two state keys get the same new one; give each its own")
    return {operator: keys[operator] for operator in operators}


def _chunks_of(fragment: FragmentId, transfer: str, export: int) -> Writer:
    return transfer_writer(fragment, f"{transfer} export {export:08x}")


def _cancelled(fragment: FragmentId, transfer: str) -> Writer:
    return transfer_writer(fragment, f"{transfer} cancelled")
