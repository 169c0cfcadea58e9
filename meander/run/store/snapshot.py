"""Snapshots: all views as one record, with which every segment begins.

A snapshot refers to payloads where they lie. From segments that are mostly dead it takes the living rows along,
packed, so that those segments can be deleted: disk use stays below about twice what is live. The views are changed
only after the snapshot has become valid. Everything that comes per entry is done on columns.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import Int64s
from meander.run.store import channel_log as entries_of
from meander.run.store.channel_log import ChannelLog
from meander.run.store.encoding import schema_from, schema_text
from meander.run.store.framing import Place, Section, section
from meander.run.store.gather import resolve
from meander.run.store.incarnations import Incarnation
from meander.run.store.journal import Written
from meander.run.store.partitions import WIDTH as PIECE_WIDTH
from meander.run.store.payloads import NO_PAYLOAD, Payload, Sealed, one_batch
from meander.run.store.records.former_notes import changes_of
from meander.run.store.records.record import UnknownRecordError
from meander.run.store.records.table import read_record
from meander.run.store.views import UNKNOWN_PROGRAM, LastBatch, Views

PACK_BYTES = 32_000_000
ENTRY_WIDTH = entries_of.WIDTH
FORMAT = 1
"""The version of journal, snapshots and state; records have versions of their own. This and the one before are read."""
_CHANNEL_WIDTH, _KEY_WIDTH, _PAYLOAD_WIDTH, _LINEAGE_WIDTH = 15, 5, 6, 3
_NOBODY = -1


@cache
def program() -> str:
    """The version of this program, so that stores can say which one knows their records."""
    return version("meander")


@dataclass(slots=True)
class _Pack:
    """Living rows of one schema that move into the new segment as one payload."""

    schema: int
    sealed: Sealed


class SnapshotDraft:
    """A snapshot in the making. `header` and `sections` are to be written; then `adopt` moves the views over."""

    def __init__(self, views: Views, vacate: Iterable[int]) -> None:
        self._views = views
        self._channels = list(views.channels.by_id.values())
        self._partitions = list(views.state.all())
        self._entries = _joined([c.entries for c in self._channels]).reshape(-1, ENTRY_WIDTH)
        self._pieces = _joined([numbers for _, numbers in self._partitions]).reshape(-1, PIECE_WIDTH)
        self._lineages = [[c.channel, *each] for c in self._channels for each in c.lineage]
        self._packs: list[_Pack] = []
        self._vacated: list[Payload] = []
        gone = frozenset(vacate)
        kept: list[Payload] = []
        for number in sorted(views.payloads.by_number):
            payload = views.payloads.by_number[number]
            (self._vacated if payload.place.segment in gone else kept).append(payload)
        # Slices of all views, as columns: payload, offset, rows. They get a place in a pack, or keep theirs.
        self._slices = np.concatenate([self._entries[:, [2, 3, 1]], self._pieces[:, [0, 1, 2]]])
        self._pack_of = np.full(len(self._slices), -1, np.int64)
        self._pack()
        numbers = np.array([p.number for p in kept], np.int64)
        self.sections: list[Section] = [
            section(self._columns(kept, numbers)),
            *(pack.sealed.section for pack in self._packs),
        ]
        self._used = {p.schema for p in views.payloads.by_number.values()} | {c.schema for c in self._channels}
        self.header = self._header(len(kept))

    def _pack(self) -> None:
        """Gives each slice of a vacated payload a pack and an offset in it; equal slices share their rows."""
        by_schema: dict[int, list[Payload]] = {}
        for payload in self._vacated:
            by_schema.setdefault(payload.schema, []).append(payload)
        for schema, payloads in by_schema.items():
            members = np.flatnonzero(np.isin(self._slices[:, 0], [p.number for p in payloads]))
            unique, inverse = np.unique(self._slices[members], axis=0, return_inverse=True)
            width = {p.number: p.row_bytes for p in payloads}
            sizes = unique[:, 2] * np.array([width[n] for n in unique[:, 0].tolist()])
            group = ((np.cumsum(sizes) - sizes) // PACK_BYTES).astype(np.int64)
            starts = np.cumsum(unique[:, 2]) - unique[:, 2]
            inverse = inverse.reshape(-1)
            for number in np.unique(group).tolist():
                chosen = np.flatnonzero(group == number)
                self._pack_of[members[group[inverse] == number]] = len(self._packs)
                self._packs.append(_Pack(schema, self._sealed(schema, unique[chosen])))
                starts[chosen] -= starts[chosen[0]]
            self._slices[members, 1] = starts[inverse]

    def _sealed(self, schema: int, slices: Int64s) -> Sealed:
        numbers, offsets, rows = (np.ascontiguousarray(column) for column in slices.T)
        found = resolve(self._views.payloads, numbers, offsets, rows, np.zeros(rows.size, np.int64))
        table, _ = found.table(self._views.schemas.by_number[schema])
        return Sealed.of(one_batch(table, "snapshot"))

    def _columns(self, kept: Sequence[Payload], numbers: Int64s) -> Int64s:
        """All integers of the snapshot. Payloads are numbered by their place in it, packs last."""
        moved = self._pack_of >= 0
        index = np.searchsorted(numbers, self._slices[:, 0]) if len(kept) else np.zeros(len(moved), np.int64)
        index = np.where(moved, len(kept) + self._pack_of, index)
        index[self._slices[:, 0] == NO_PAYLOAD] = NO_PAYLOAD
        entries, pieces = self._entries.copy(), self._pieces.copy()
        entries[:, 2], pieces[:, 0] = index[: len(entries)], index[len(entries) :]
        entries[:, 3], pieces[:, 1] = self._slices[: len(entries), 1], self._slices[len(entries) :, 1]
        find = self._views.state.find
        keys = [[*k, len(n) // PIECE_WIDTH, _schema(find(k.fragment, k.operator))] for k, n in self._partitions]
        tables: list[Any] = [
            [[*p.place, p.schema, p.rows] for p in kept],
            [_channel_row(c) for c in self._channels],
            keys,
            entries,
            pieces,
            self._lineages,
        ]
        return np.concatenate([np.asarray(t, np.int64).reshape(-1) for t in tables])

    def _header(self, payloads: int) -> bytes:
        views = self._views
        parts: tuple[Sized, ...] = (self._channels, self._partitions, self._entries, self._pieces, self._lineages)
        counts = [payloads, *(len(part) for part in parts)]
        markers = [[c.channel, position, m.to_json()] for c in self._channels for position, m in c.markers]
        return json.dumps(
            {
                "counts": counts,
                "packs": [[p.schema, p.sealed.batch.num_rows] for p in self._packs],
                "schemas": [[n, schema_text(views.schemas.by_number[n])] for n in sorted(self._used)],
                "markers": markers,
                "writers": [[w, *last] for w, last in views.writers.items()],
                "versions": list(views.versions.items()),
                "counters": [[f, name, n] for (f, name), n in views.counters.items()],
                "acknowledged": views.acknowledged,
                "program": program(),
                "format": FORMAT,
                "incarnation": views.incarnation,
                "records": views.records.to_plain(),
            },
            separators=(",", ":"),
        ).encode()

    def adopt(self, written: Written) -> None:
        """Points the views at the rows that moved, and lets the old payloads go."""
        payloads = self._views.payloads
        self._views.schemas.keep(self._used)
        moved = [
            Payload(place, pack.schema, pack.sealed.batch.num_rows, verified=False)
            for pack, place in zip(self._packs, written.places[1:], strict=True)
        ]
        numbers = np.array([payloads.add(p) for p in moved], np.int64)
        changed = np.flatnonzero(self._pack_of >= 0)
        self._slices[changed, 0] = numbers[self._pack_of[changed]]
        rows = self._slices[changed, 2]
        for index, payload in enumerate(moved):
            mine = self._pack_of[changed] == index
            payloads.use(payload.number, int(mine.sum()), int(rows[mine].sum()))
        border = len(self._entries)
        self._entries[:, 2:4] = self._slices[:border, :2]
        self._pieces[:, 0:2] = self._slices[border:, :2]
        if changed.size:
            _give_back([c.entries for c in self._channels], self._entries)
            _give_back([n for _, n in self._partitions], self._pieces)
            self._views.state.recount(payloads)
        for payload in self._vacated:
            payloads.discard(payload)
        for payload, pack in zip(moved, self._packs, strict=True):
            payloads.settle(payload, pack.sealed.batch)


def load(views: Views, header: bytes, numbers: Int64s, places: Sequence[Place]) -> None:
    """Fills empty views from a snapshot; `places` are those of its packs."""
    data = json.loads(header)
    if data.get("format", FORMAT) > FORMAT:
        views.program = data.get("program", "a newer version")
        raise UnknownRecordError(f"the store has format {data['format']}, known here are those up to {FORMAT}")
    for number, text in data["schemas"]:
        views.schemas.add(number, schema_from(text))
    widths = (_PAYLOAD_WIDTH, _CHANNEL_WIDTH, _KEY_WIDTH, ENTRY_WIDTH, PIECE_WIDTH, _LINEAGE_WIDTH)
    counts = [*data["counts"], 0][: len(widths)]  # older ones have no lineages
    bounds = np.cumsum([0, *(n * w for n, w in zip(counts, widths, strict=True))]).tolist()
    parts = [numbers[a:b].reshape(-1, w) for a, b, w in zip(bounds, bounds[1:], widths, strict=False)]
    payload_rows, channel_rows, keys, entries, pieces, lineages = parts
    payloads = [Payload(Place(*row[:4]), row[4], row[5], verified=False) for row in payload_rows.tolist()]
    for (schema, rows), place in zip(data["packs"], places, strict=True):
        payloads.append(Payload(place, schema, rows, verified=True))
    for payload in payloads:
        views.payloads.add(payload)
    _count_uses(views, payloads, np.concatenate([entries[:, [2, 1]], pieces[:, [0, 2]]]))
    _load_channels(views, channel_rows, entries, data["markers"])
    for channel, *incarnation in lineages.tolist():
        views.channels.by_id[channel].lineage += (Incarnation(*incarnation),)
    views.incarnation = data.get("incarnation", 0)
    _load_state(views, payloads, keys, pieces)
    views.writers.update((w, LastBatch(*last)) for w, *last in data["writers"])
    views.versions.update(map(tuple, data["versions"]))
    views.counters.update(((f, name), n) for f, name, n in data["counters"])
    views.acknowledged.update(data["acknowledged"])
    views.program = data.get("program", UNKNOWN_PROGRAM)
    views.records.apply(changes_of(data.get("notes", {})))
    views.records.apply(read_record(*row) for row in data.get("records", ()))


def _count_uses(views: Views, payloads: Sequence[Payload], slices: NDArray[np.int64]) -> None:
    slices = slices[slices[:, 0] != NO_PAYLOAD]
    uses = np.bincount(slices[:, 0], minlength=len(payloads)).tolist()
    rows = np.bincount(slices[:, 0], weights=slices[:, 1], minlength=len(payloads)).tolist()
    for payload, count, total in zip(payloads, uses, rows, strict=True):
        views.payloads.use(payload.number, count, int(total))


def _load_channels(
    views: Views, rows: NDArray[np.int64], entries: NDArray[np.int64], markers: Iterable[tuple[int, int, Any]]
) -> None:
    start = 0
    for row in rows.tolist():
        channel = _channel_from(row)
        channel.entries.frombytes(entries[start : start + row[-1]].tobytes())
        start += row[-1]
        views.channels.by_id[channel.channel] = channel
    for number, position, marker in markers:
        views.channels.by_id[number].markers.append((position, Marker.from_json(marker)))


def _load_state(views: Views, payloads: Sequence[Payload], keys: NDArray[np.int64], pieces: NDArray[np.int64]) -> None:
    widths = np.array([p.row_bytes for p in payloads])
    sizes = widths[pieces[:, 0]] * pieces[:, 2] if len(pieces) else np.empty(0)
    start = 0
    for fragment, operator, bucket, count, schema in keys.tolist():
        mine = slice(start, start + count)
        start += count
        rows, size = int(pieces[mine, 2].sum()), float(sizes[mine].sum())
        views.state.append(fragment, operator, bucket, schema, pieces[mine].tobytes(), rows, size)


def _channel_row(c: ChannelLog) -> list[int]:
    ends = [_NOBODY if e is None else e for e in (c.sender, c.receiver)]
    done = [c.appended_tuples, c.consumed_tuples, len(c.entries) // ENTRY_WIDTH]
    return [
        c.channel,
        c.schema,
        *ends,
        c.delay_ms,
        c.cut_since_ms,
        c.kept_from,
        c.head,
        c.tail,
        c.watermark,
        c.consumed_watermark,
        c.ready_ms,
        *done,
    ]


def _channel_from(row: Sequence[int]) -> ChannelLog:
    (
        channel,
        schema,
        sender,
        receiver,
        delay_ms,
        cut_since_ms,
        kept_from,
        head,
        tail,
        watermark,
        passed,
        ready_ms,
        *done,
        _,
    ) = row
    ends = [None if e == _NOBODY else FragmentId(e) for e in (sender, receiver)]
    view = ChannelLog(ChannelId(channel), schema, ends[0], ends[1], delay_ms)
    view.head, view.tail, view.watermark, view.ready_ms = head, tail, watermark, ready_ms
    view.cut_since_ms, view.kept_from, view.consumed_watermark = cut_since_ms, kept_from, passed
    view.appended_tuples, view.consumed_tuples = done
    return view


def _schema(table: Any) -> int:
    return int(table.schema)


def _joined(arrays: Sequence[array[int]]) -> Int64s:
    """A copy of all arrays, one after the other."""
    return np.frombuffer(b"".join([a.tobytes() for a in arrays]), np.int64).copy()


def _give_back(arrays: Sequence[array[int]], rows: NDArray[np.int64]) -> None:
    """Writes the rows back into the arrays they came from."""
    flat, start = rows.reshape(-1), 0
    for numbers in arrays:
        stop = start + len(numbers)
        numbers[:] = array("q", flat[start:stop].tobytes())
        start = stop
