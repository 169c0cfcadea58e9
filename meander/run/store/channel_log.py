"""Channels as a view over the journal: what each one holds, as slices of shared payloads.

One entry per append: some rows, then perhaps a watermark, then perhaps a marker. Entries are plain integers in one
array per channel; there is no file, thread or object per entry, so thousands of channels cost what is appended to
them.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from meander.deploy.markers import Marker
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK, ChannelCounters, Int64s
from meander.run.store.gather import Gather
from meander.run.store.incarnations import Lineage, moved
from meander.run.store.payloads import NO_PAYLOAD, Payloads

WIDTH = 6
"""Integers per entry: first position, rows, payload, offset in it, watermark, when it becomes readable."""
_READY = 5
_packed = struct.Struct(f"={WIDTH}q").pack


class LogEntry(NamedTuple):
    """Rows from position `first` on, then a watermark if there is one; `stop` is where the next entry begins."""

    first: int
    rows: int
    payload: int
    offset: int
    watermark: int
    ready_ms: int
    stop: int


class ChannelLog:
    """One channel: `head` is the first kept position, `tail` the next free one."""

    __slots__ = (
        "appended_tuples",
        "channel",
        "consumed_tuples",
        "consumed_watermark",
        "cut_since_ms",
        "delay_ms",
        "entries",
        "head",
        "kept_from",
        "lineage",
        "markers",
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
        self.cut_since_ms = 0
        """Since when there is no way; 0 while there is one."""
        self.kept_from = -1
        """From where on entries stay although they are consumed, until they are forgotten; -1 if they need not."""
        self.head = self.tail = 0
        self.watermark = NO_WATERMARK
        self.consumed_watermark = NO_WATERMARK
        self.entries = array("q")
        self.markers: list[tuple[int, Marker]] = []
        self.ready_ms = 0
        self.appended_tuples = self.consumed_tuples = 0
        self.lineage: Lineage = ()
        """The incarnations of the log: of this one, or of the one elsewhere of which this is the copy."""

    @property
    def keeps(self) -> bool:
        return self.kept_from >= 0

    @property
    def is_cut(self) -> bool:
        return self.cut_since_ms > 0

    def end(self, now_ms: int) -> int:
        """The position behind the last readable record."""
        if self.cut_since_ms > 0:
            return self.head
        if self.ready_ms <= now_ms or not self.entries:
            return self.tail
        entries = self.entries
        ready = bisect_right(range(_READY, len(entries), WIDTH), now_ms, key=entries.__getitem__)
        return max(self.head, entries[ready * WIDTH]) if ready else self.head

    def _index(self, position: int) -> int:
        """Where in `entries` the entry begins that holds a position, or would."""
        entries, size = self.entries, len(self.entries)
        if size <= WIDTH or entries[WIDTH] > position:
            return 0
        return (bisect_right(range(0, size, WIDTH), position, key=entries.__getitem__) - 1) * WIDTH

    def overlapping(self, start: int, stop: int) -> Iterator[LogEntry]:
        """Entries that have a record in the range, oldest first."""
        entries, size, at = self.entries, len(self.entries), self._index(start)
        while at < size and entries[at] < stop:
            end = entries[at + WIDTH] if at + WIDTH < size else self.tail
            if end > start:
                first, rows, payload, offset, watermark, ready_ms = entries[at : at + WIDTH]
                yield LogEntry(first, rows, payload, offset, watermark, ready_ms, end)
            at += WIDTH

    def markers_in(self, start: int, stop: int) -> list[tuple[int, Marker]]:
        if not self.markers:
            return []
        return [m for m in self.markers[bisect_left(self.markers, start, key=lambda m: m[0]) :] if m[0] < stop]

    def check_range(self, start: int, stop: int) -> None:
        if not self.head <= start <= stop <= self.tail:
            raise InputError(
                f"channel {self.channel} holds positions {self.head} to {self.tail}, not {start} to {stop}; "
                "what its receiver has committed is gone"
            )

    def append(self, rows: int, payload: int, offset: int, watermark: int, marker: Marker | None, now_ms: int) -> None:
        """Takes records over; the payload's use has been counted."""
        if self.delay_ms:
            self.ready_ms = max(self.ready_ms, now_ms + self.delay_ms)  # never before an earlier record: order is kept
        self.entries.frombytes(_packed(self.tail, rows, payload, offset, watermark, self.ready_ms))
        self.tail += rows
        self.appended_tuples += rows
        if watermark != NO_WATERMARK:
            self.tail += 1
            if watermark > self.watermark:
                self.watermark = watermark
        if marker is not None:
            self.markers.append((self.tail, marker))
            self.tail += 1

    def pass_through(self, rows: int, watermark: int) -> None:
        """Counts tuples that were consumed as soon as they were appended."""
        self.tail += rows + (watermark != NO_WATERMARK)
        self.head = self.tail
        self.appended_tuples += rows
        self.consumed_tuples += rows
        if watermark > self.watermark:
            self.watermark = watermark
        if watermark > self.consumed_watermark:
            self.consumed_watermark = watermark

    def become(self, other: ChannelLog, payloads: Payloads) -> None:
        """Holds, instead of what it held, what waits in another channel, at the same positions."""
        for entry in self.overlapping(0, self.tail):
            if entry.payload != NO_PAYLOAD:
                payloads.release(entry.payload, entry.rows)
        self.entries = array("q")
        for entry in other.overlapping(other.head, other.tail):
            self.entries.frombytes(_packed(*entry[:WIDTH]))
            if entry.payload != NO_PAYLOAD:
                payloads.use(entry.payload, 1, entry.rows)
        self.head, self.tail, self.ready_ms = other.head, other.tail, other.ready_ms
        self.kept_from = self.head if self.keeps else -1
        self.watermark, self.consumed_watermark = other.watermark, other.consumed_watermark
        self.appended_tuples, self.consumed_tuples = other.appended_tuples, other.consumed_tuples
        self.markers = [m for m in other.markers if m[0] >= other.head]
        self.lineage = other.lineage

    def consume(self, position: int, payloads: Payloads) -> None:
        """Lets go of everything before a position, or only passes it if the channel keeps what was consumed."""
        head, tail = self.head, self.tail
        if position == tail and self.kept_from < 0:
            self._consume_all(payloads)
            return
        entries, size = self.entries, len(self.entries)
        at = self._index(head) if self.keeps else 0
        while at < size:
            first, rows, payload, _, watermark, _ = entries[at : at + WIDTH]
            if first >= position:
                break
            if watermark > self.consumed_watermark and first + rows < position:
                self.consumed_watermark = watermark
            if head <= first and first + rows <= position:
                self.consumed_tuples += rows
            else:
                self.consumed_tuples += max(0, min(position - first, rows) - min(max(head - first, 0), rows))
            if (entries[at + WIDTH] if at + WIDTH < size else tail) > position:
                break
            if payload != NO_PAYLOAD and not self.keeps:
                payloads.release(payload, rows)
            at += WIDTH
        if at and not self.keeps:
            del entries[:at]
        if self.markers:
            del self.markers[: bisect_left(self.markers, position, key=lambda m: m[0])]
        self.head = position

    def _consume_all(self, payloads: Payloads) -> None:
        """The usual case, for thousands of channels in a step."""
        entries = self.entries
        for at in range(0, len(entries), WIDTH):
            if entries[at + 2] != NO_PAYLOAD:
                payloads.release(entries[at + 2], entries[at + 1])
        del entries[:]
        self.markers.clear()
        self.consumed_tuples = self.appended_tuples
        if self.watermark > self.consumed_watermark:
            self.consumed_watermark = self.watermark
        self.head = self.tail

    def forget(self, payloads: Payloads) -> None:
        """Lets go of what was kept although it is consumed."""
        if self.keeps:
            self.kept_from = self.head
        entries, size, at = self.entries, len(self.entries), 0
        while at < size and (entries[at + WIDTH] if at + WIDTH < size else self.tail) <= self.head:
            if entries[at + 2] != NO_PAYLOAD:
                payloads.release(entries[at + 2], entries[at + 1])
            at += WIDTH
        if at:
            del entries[:at]

    def cut(self, position: int, payloads: Payloads) -> None:
        """Lets go of everything from a position on."""
        entries, at = self.entries, len(self.entries)
        while at and entries[at - WIDTH] >= position:
            at -= WIDTH
            self._release(at, entries[at + 1], payloads)
        del entries[at:]
        if at:
            first, rows, _, _, watermark, _ = entries[at - WIDTH :]
            if watermark != NO_WATERMARK and first + rows >= position:
                entries[at - 2] = NO_WATERMARK
            if first + rows > position:
                self._release(at - WIDTH, first + rows - position, payloads, slices=0)
                entries[at - WIDTH + 1] = position - first
        del self.markers[bisect_left(self.markers, position, key=lambda m: m[0]) :]
        self.tail = position
        self.watermark = max([self.consumed_watermark, *entries[4::WIDTH]])

    def _release(self, at: int, rows: int, payloads: Payloads, slices: int = 1) -> None:
        if self.entries[at + 2] != NO_PAYLOAD:
            payloads.release(self.entries[at + 2], rows, slices)
        self.appended_tuples -= rows

    def pass_over(self, position: int) -> None:
        """Goes on at a later position; there is nothing at those in between."""
        if position > self.tail:
            if self.head == self.tail:
                self.head = position
            self.tail = position

    def renumber(self, first: int, to: int, payloads: Payloads) -> None:
        """Lets go of everything before `first`, where an entry begins, and numbers what follows from `to` on."""
        self.consume(first, payloads)
        self.forget(payloads)
        by = to - first
        for at in range(0, len(self.entries), WIDTH):
            self.entries[at] += by
        self.markers = [(position + by, marker) for position, marker in self.markers]
        self.head, self.tail = to, self.tail + by
        self.kept_from = to if self.keeps else -1
        self.lineage = moved(self.lineage, first, by)

    def collect(self, start: int, stop: int, into: Gather, owner: int) -> tuple[int, int]:
        """Adds the rows of a range; says how many they are, and the highest watermark among them."""
        count, highest = 0, NO_WATERMARK
        entries, size = self.entries, len(self.entries)
        at = self._index(start) if size > WIDTH else 0
        while at < size:
            first, rows, payload, offset, watermark, _ = entries[at : at + WIDTH]
            if first >= stop:
                break
            if watermark > highest and start <= first + rows < stop:
                highest = watermark
            if first < start:
                offset, rows, first = offset + start - first, first + rows - start, start
            if first + rows > stop:
                rows = stop - first
            if rows > 0:
                into.add(payload, offset, rows, owner)
                count += rows
            at += WIDTH
        return count, highest

    def tuples_from(self, position: int) -> int:
        """How many tuples lie at or after a position."""
        entries = self.overlapping(position, self.tail)
        return sum(max(e.rows - max(position - e.first, 0), 0) for e in entries)

    def counters(self, now_ms: int) -> ChannelCounters:
        pending = self.appended_tuples - self.consumed_tuples
        end = self.end(now_ms)
        return ChannelCounters(
            appended_tuples=self.appended_tuples,
            consumed_tuples=self.consumed_tuples,
            pending_tuples=pending,
            readable_tuples=pending - (self.tuples_from(end) if end < self.tail else 0),
            watermark=self.watermark,
        )


class Channels:
    """All channels of a site host. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.by_id: dict[int, ChannelLog] = {}

    def __getitem__(self, channel: int) -> ChannelLog:
        found = self.by_id.get(channel)
        if found is None:
            raise InputError(f"no channel {channel}; {self._known()}")
        return found

    def many(self, channels: Iterable[int]) -> list[ChannelLog]:
        """Thousands in a step."""
        by_id = self.by_id
        try:
            return [by_id[channel] for channel in channels]
        except KeyError as error:
            return [self[error.args[0]]]

    def consume(self, channels: Iterable[int], positions: Iterable[int], payloads: Payloads) -> None:
        """Lets go of everything before a position in each. Mostly that is all there is: one entry."""
        by_id = self.by_id
        slices: dict[int, int] = {}
        rows: dict[int, int] = {}
        for channel, position in zip(channels, positions, strict=True):
            view = by_id[channel]
            entries = view.entries
            if position != view.tail or len(entries) != WIDTH or view.kept_from >= 0 or view.markers:
                view.consume(position, payloads)
                continue
            payload = entries[2]
            if payload != NO_PAYLOAD:
                slices[payload] = slices.get(payload, 0) + 1
                rows[payload] = rows.get(payload, 0) + entries[1]
            del entries[:]
            view.head, view.consumed_tuples = position, view.appended_tuples
            if view.watermark > view.consumed_watermark:
                view.consumed_watermark = view.watermark
        for payload, count in slices.items():
            payloads.release(payload, rows[payload], count)

    def whole(self, views: Sequence[ChannelLog], starts: Sequence[int], stops: Sequence[int]) -> Int64s | None:
        """The only entry of each channel, one below the other, if that is what lies in the ranges; else nothing."""
        schema = views[0].schema
        for view, start, stop in zip(views, starts, stops, strict=True):
            is_all = start == view.head and stop == view.tail and len(view.entries) == WIDTH
            if not is_all or view.entries[0] != start or view.markers or view.schema != schema:
                return None
        found = array("q")
        for view in views:
            found.extend(view.entries)
        return np.frombuffer(found, np.int64).reshape(-1, WIDTH)

    def remove(self, channel: int, payloads: Payloads) -> None:
        """Removes a channel and lets go of what waits in it."""
        view = self.by_id.pop(channel)
        view.consume(view.tail, payloads)

    def _known(self) -> str:
        known = sorted(self.by_id)
        shown = ", ".join(map(str, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        return f"known channels: {shown}" if known else "there are no channels yet"
