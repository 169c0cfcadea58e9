"""Channels as a view over the journal: what each one holds, as slices of shared payloads.

One entry per append: some rows, then perhaps a watermark, then perhaps a marker. There is no file, thread or buffer
per channel, so thousands cost as much as what is appended to them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import NamedTuple

from meander.deploy.markers import Marker
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.exchange.base import NO_WATERMARK, ChannelCounters
from meander.run.payloads import Payload, Payloads, Slice

_FIRST = itemgetter(0)
_READY = attrgetter("ready_ms")


class Entry(NamedTuple):
    """`rows` rows of a payload from sequence number `first` on, then a watermark and a marker if there are any."""

    first: int
    rows: int
    payload: Payload | None
    offset: int
    watermark: int
    marker: Marker | None
    ready_ms: int

    @property
    def stop(self) -> int:
        return self.first + self.rows + (self.watermark != NO_WATERMARK) + (self.marker is not None)

    @property
    def marker_position(self) -> int:
        return self.first + self.rows + (self.watermark != NO_WATERMARK)


class Channel:
    """One channel: `head` is the first kept position, `tail` the next free one."""

    __slots__ = (
        "appended_tuples",
        "channel",
        "consumed_tuples",
        "delay_ms",
        "entries",
        "head",
        "marker_count",
        "pending_bytes",
        "ready_ms",
        "receiver",
        "schema",
        "sender",
        "tail",
        "watermark",
    )

    def __init__(
        self, channel: ChannelId, schema: int, sender: FragmentId | None, receiver: FragmentId | None, delay_ms: int
    ) -> None:
        self.channel, self.schema, self.sender, self.receiver = channel, schema, sender, receiver
        self.delay_ms = delay_ms
        self.head = self.tail = 0
        self.watermark = NO_WATERMARK
        self.entries: list[Entry] = []
        self.ready_ms = 0
        self.appended_tuples = self.consumed_tuples = self.marker_count = 0
        self.pending_bytes = 0.0

    def end(self, now_ms: int) -> int:
        """The position behind the last readable record."""
        if not self.entries or self.ready_ms <= now_ms:
            return self.tail
        ready = bisect_right(self.entries, now_ms, key=_READY)
        return self.entries[ready].first if ready else self.head

    def overlapping(self, start: int, stop: int) -> Iterator[Entry]:
        """Entries that have a record in the range, oldest first."""
        index = max(bisect_right(self.entries, start, key=_FIRST) - 1, 0)
        while index < len(self.entries) and self.entries[index].first < stop:
            if self.entries[index].stop > start:
                yield self.entries[index]
            index += 1

    def next_marker(self, start: int, stop: int) -> tuple[int, Marker] | None:
        """The first marker in a range."""
        if self.marker_count:
            for entry in self.overlapping(start, stop):
                if entry.marker is not None and start <= entry.marker_position < stop:
                    return entry.marker_position, entry.marker
        return None

    def check_range(self, start: int, stop: int) -> None:
        if not self.head <= start <= stop <= self.tail:
            raise InputError(
                f"channel {self.channel} holds positions {self.head} to {self.tail}, not {start} to {stop}; "
                "what its receiver has committed is gone"
            )

    def append(
        self, rows: int, payload: Payload | None, offset: int, watermark: int, marker: Marker | None, now: int
    ) -> None:
        """Takes records over; the payload's use has been counted."""
        ready = max(self.ready_ms, now + self.delay_ms) if self.delay_ms else self.ready_ms  # order is kept
        entry = Entry(self.tail, rows, payload, offset, watermark, marker, ready)
        self.entries.append(entry)
        self.ready_ms = ready
        self.tail = entry.stop
        self.appended_tuples += rows
        if watermark > self.watermark:
            self.watermark = watermark
        if marker is not None:
            self.marker_count += 1
        if payload is not None:
            self.pending_bytes += payload.bytes_of(rows)

    def restore(self, entry: Entry) -> None:
        """Puts an entry back that a snapshot kept; positions and totals are set already."""
        self.entries.append(entry)
        self.marker_count += entry.marker is not None
        if entry.payload is not None:
            self.pending_bytes += entry.payload.bytes_of(entry.rows)

    def pass_through(self, rows: int, watermark: int) -> None:
        """Counts tuples that were consumed as soon as they were appended."""
        self.tail += rows + (watermark != NO_WATERMARK)
        self.head = self.tail
        self.appended_tuples += rows
        self.consumed_tuples += rows
        if watermark > self.watermark:
            self.watermark = watermark

    def consume(self, position: int, payloads: Payloads) -> None:
        """Lets go of everything before a position."""
        entries, done = self.entries, 0
        for entry in entries:
            rows = min(max(position - entry.first, 0), entry.rows) - min(max(self.head - entry.first, 0), entry.rows)
            self.consumed_tuples += rows
            if entry.stop > position:
                break
            done += 1
            if entry.marker is not None:
                self.marker_count -= 1
            if entry.payload is not None:
                self.pending_bytes -= entry.payload.bytes_of(entry.rows)
                payloads.release(entry.payload, entry.rows)
        del entries[:done]
        self.head = position
        if not entries:
            self.pending_bytes = 0.0

    def slices(self, start: int, stop: int) -> Iterator[Slice]:
        """The rows of a range."""
        for entry in self.overlapping(start, stop):
            skipped = max(start - entry.first, 0)
            rows = min(stop - entry.first, entry.rows) - skipped
            if rows > 0 and entry.payload is not None:
                yield Slice(entry.payload, entry.offset + skipped, rows)

    def collect(self, start: int, stop: int, into: list[Slice]) -> tuple[int, int, list[tuple[int, Marker]]]:
        """Adds the rows of a range; says how many, the highest watermark among them, and the markers."""
        count, highest, markers = 0, NO_WATERMARK, []
        for entry in self.overlapping(start, stop):
            first, length, payload, offset, watermark, marker, _ = entry
            skipped = max(start - first, 0)
            rows = min(stop - first, length) - skipped
            if rows > 0 and payload is not None:
                into.append(Slice(payload, offset + skipped, rows))
                count += rows
            if watermark > highest and start <= first + length < stop:
                highest = watermark
            if marker is not None and start <= entry.marker_position < stop:
                markers.append((entry.marker_position, marker))
        return count, highest, markers

    def tuples_from(self, position: int) -> int:
        """How many tuples lie at or after a position."""
        return sum(part.rows for part in self.slices(position, self.tail))

    def counters(self, now_ms: int) -> ChannelCounters:
        end = self.end(now_ms)
        held_back = sum(e.rows for e in self.overlapping(end, self.tail) if e.first >= end) if end < self.tail else 0
        pending = self.appended_tuples - self.consumed_tuples
        return ChannelCounters(
            appended_tuples=self.appended_tuples,
            consumed_tuples=self.consumed_tuples,
            pending_tuples=pending,
            readable_tuples=pending - held_back,
            pending_bytes=round(self.pending_bytes),
            watermark=self.watermark,
        )


class Channels:
    """All channels of a site host, and what they have in common. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.by_id: dict[int, Channel] = {}

    def __getitem__(self, channel: int) -> Channel:
        found = self.by_id.get(channel)
        if found is None:
            raise InputError(f"no channel {channel}; {_known(self.by_id)}")
        return found

    def release_all(self, channel: int, payloads: Payloads) -> None:
        """Removes a channel and lets go of what waits in it."""
        view = self.by_id.pop(channel)
        view.consume(view.tail, payloads)


def _known(ids: Iterable[int]) -> str:
    known = sorted(ids)
    shown = ", ".join(map(str, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    return f"known channels: {shown}" if known else "there are no channels yet"
