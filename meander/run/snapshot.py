"""Snapshots: all views as one record, with which every segment begins.

A snapshot refers to payloads where they lie. From segments that are mostly dead it takes the living rows along,
packed, so that those segments can be deleted: disk use stays below about twice what is live. The views are changed
only after the snapshot has become valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId, FragmentId
from meander.run.exchange.base import Int64s
from meander.run.exchange.channels import Channel, Entry
from meander.run.frames import Place, Section, section
from meander.run.journal import Written
from meander.run.partitions import Piece
from meander.run.payloads import Payload, Sealed, Slice, one_batch, table_of
from meander.run.record import Numbers, schema_from, schema_text
from meander.run.views import LastBatch, Views

PACK_BYTES = 32_000_000
_NOWHERE = -1
_PAYLOAD_COLUMNS, _CHANNEL_COLUMNS, _ENTRY_COLUMNS, _PIECE_COLUMNS = 6, 11, 8, 7


@dataclass(slots=True)
class _Pack:
    """Living rows of one schema that move into the new segment as one payload."""

    schema: int
    slices: list[Slice] = field(default_factory=list)
    rows: int = 0
    bytes: float = 0.0


@dataclass(slots=True)
class _Move:
    """Entry `index` of a channel's entries or of a partition's pieces goes to a pack."""

    items: list[Any]
    index: int
    pack: int
    offset: int


class Draft:
    """A snapshot in the making. `header` and `sections` are to be written; then `adopt` moves the views over."""

    def __init__(self, views: Views, vacate: Iterable[int]) -> None:
        self._views = views
        self._vacate = frozenset(vacate)
        self._payloads: dict[Payload, int] = {}
        self._packs: list[_Pack] = []
        self._open: dict[int, int] = {}
        self._moves: list[_Move] = []
        self._markers: list[dict[str, Any]] = []
        # First the references to all slices, which decides what is packed; then everything in columns.
        entries = [self._entry(i, c, k) for i, c in enumerate(self._channels) for k in range(len(c.entries))]
        pieces = [
            [
                *key,
                *self._slice(items, k, items[k].payload, items[k].offset, items[k].rows),
                items[k].rows,
                items[k].record,
            ]
            for key, items in views.state.partitions()
            for k in range(len(items))
        ]
        self._sealed = [self._seal(pack) for pack in self._packs]
        payloads = [[*p.place, p.schema, p.rows] for p in self._payloads]
        channels = [_channel_row(c) for c in self._channels]
        tables = (
            _columns(payloads, _PAYLOAD_COLUMNS),
            _columns(channels, _CHANNEL_COLUMNS),
            _columns(entries, _ENTRY_COLUMNS),
            _columns(pieces, _PIECE_COLUMNS),
        )
        self.sections: list[Section] = [section(np.concatenate(tables)), *(s.section for s in self._sealed)]
        self.header = self._header([len(payloads), len(channels), len(entries), len(pieces)])

    @property
    def _channels(self) -> list[Channel]:
        return list(self._views.channels.by_id.values())

    def _entry(self, channel_index: int, channel: Channel, index: int) -> list[int]:
        entry = channel.entries[index]
        payload, offset = _NOWHERE, 0
        if entry.payload is not None:
            payload, offset = self._slice(channel.entries, index, entry.payload, entry.offset, entry.rows)
        marker = _NOWHERE
        if entry.marker is not None:
            marker = len(self._markers)
            self._markers.append(entry.marker.to_json())
        return [channel_index, entry.first, entry.rows, payload, offset, entry.watermark, entry.ready_ms, marker]

    def _slice(self, items: list[Any], index: int, payload: Payload, offset: int, rows: int) -> tuple[int, int]:
        """Number of the payload (packs count down from -2) and offset in it."""
        if payload.place.segment not in self._vacate:
            return self._payloads.setdefault(payload, len(self._payloads)), offset
        number = self._open.get(payload.schema)
        if number is None or self._packs[number].bytes > PACK_BYTES:
            number = self._open[payload.schema] = len(self._packs)
            self._packs.append(_Pack(payload.schema))
        pack, new_offset = self._packs[number], self._packs[number].rows
        pack.slices.append(Slice(payload, offset, rows))
        pack.rows += rows
        pack.bytes += payload.bytes_of(rows)
        self._moves.append(_Move(items, index, number, new_offset))
        return _NOWHERE - 1 - number, new_offset

    def _seal(self, pack: _Pack) -> Sealed:
        schema = self._views.schemas.by_number[pack.schema]
        return Sealed.of(one_batch(table_of(self._views.payloads.resolve(pack.slices), schema), "snapshot"))

    def _header(self, counts: list[int]) -> bytes:
        views = self._views
        used = {p.schema for p in self._payloads} | {c.schema for c in self._channels} | {p.schema for p in self._packs}
        return json.dumps(
            {
                "counts": counts,
                "packs": [[p.schema, p.rows] for p in self._packs],
                "schemas": [[n, schema_text(views.schemas.by_number[n])] for n in sorted(used)],
                "markers": self._markers,
                "writers": [[w, *last] for w, last in views.writers.items()],
                "versions": list(views.versions.items()),
                "counters": [[f, name, n] for (f, name), n in views.counters.items()],
                "acknowledged": views.acknowledged,
                "notes": views.notes,
            },
            separators=(",", ":"),
        ).encode()

    def adopt(self, written: Written) -> None:
        """Points the views at the rows that moved."""
        held = self._views.payloads
        moved = [
            Payload(place, pack.schema, pack.rows, verified=False)
            for pack, place in zip(self._packs, written.places[1:], strict=True)
        ]
        for move in self._moves:
            item, payload = move.items[move.index], moved[move.pack]
            move.items[move.index] = item._replace(payload=payload, offset=move.offset)
            held.use(payload, item.rows)
            held.release(item.payload, item.rows)
        for payload, sealed in zip(moved, self._sealed, strict=True):
            held.hold(payload, sealed.batch)


def load(views: Views, header: bytes, numbers: Numbers, places: tuple[Place, ...]) -> None:
    """Fills empty views from a snapshot; `places` are those of its packs."""
    data = json.loads(header)
    for number, text in data["schemas"]:
        views.schemas.add(number, schema_from(text))
    counts = data["counts"]
    payloads = [
        Payload(Place(*row[:4]), row[4], row[5], verified=False) for row in _rows(numbers, counts[0], _PAYLOAD_COLUMNS)
    ]
    packs = [
        Payload(place, schema, rows, verified=True) for (schema, rows), place in zip(data["packs"], places, strict=True)
    ]

    def found(number: int) -> Payload:
        return payloads[number] if number >= 0 else packs[_NOWHERE - 1 - number]

    channels = [_channel_from(row) for row in _rows(numbers, counts[1], _CHANNEL_COLUMNS)]
    views.channels.by_id.update((c.channel, c) for c in channels)
    markers = [Marker.from_json(m) for m in data["markers"]]
    for at, first, rows, number, offset, watermark, ready_ms, marker in _rows(numbers, counts[2], _ENTRY_COLUMNS):
        payload = found(number) if rows else None
        mark = markers[marker] if marker >= 0 else None
        channels[at].restore(Entry(first, rows, payload, offset, watermark, mark, ready_ms))
        if payload is not None:
            views.payloads.use(payload, rows)
    for fragment, operator, bucket, number, offset, rows, record in _rows(numbers, counts[3], _PIECE_COLUMNS):
        views.payloads.use(found(number), rows)
        views.state.append(fragment, operator, bucket, Piece(found(number), offset, rows, record))
    views.writers.update((w, LastBatch(*last)) for w, *last in data["writers"])
    views.versions.update(map(tuple, data["versions"]))
    views.counters.update(((f, name), n) for f, name, n in data["counters"])
    views.acknowledged.update(data["acknowledged"])
    views.notes.update(data["notes"])


def _channel_row(c: Channel) -> list[int]:
    ends = [_NOWHERE if e is None else e for e in (c.sender, c.receiver)]
    done = [c.appended_tuples, c.consumed_tuples]
    return [c.channel, c.schema, *ends, c.delay_ms, c.head, c.tail, c.watermark, c.ready_ms, *done]


def _channel_from(row: tuple[int, ...]) -> Channel:
    channel, schema, sender, receiver, delay_ms, head, tail, watermark, ready_ms, appended, consumed = row
    ends = [None if e == _NOWHERE else FragmentId(e) for e in (sender, receiver)]
    view = Channel(ChannelId(channel), schema, ends[0], ends[1], delay_ms)
    view.head, view.tail, view.watermark, view.ready_ms = head, tail, watermark, ready_ms
    view.appended_tuples, view.consumed_tuples = appended, consumed
    return view


def _columns(rows: list[list[int]], count: int) -> Int64s:
    return np.array(rows, np.int64).reshape(-1, count).T.reshape(-1)


def _rows(numbers: Numbers, count: int, columns: int) -> Iterable[tuple[int, ...]]:
    return zip(*(numbers.take(count) for _ in range(columns)), strict=True)
