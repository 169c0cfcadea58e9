"""The embedded exchange: the channels of one host, as they are read. They change by commits to its store.

Every tuple, every watermark and every marker of a channel has its own position, without gaps. A channel keeps all
records that its receiver has not committed yet. Ranges include the start, not the end.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from meander.deploy.markers import Marker
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import (
    NO_WATERMARK,
    ChannelCounters,
    ChannelSpec,
    Chunk,
    Int64s,
    Reading,
    int64s,
)
from meander.run.store.channel_log import ChannelLog
from meander.run.store.gather import Gather, Gathered, resolve
from meander.run.store.incarnations import Lineage

if TYPE_CHECKING:
    from meander.run.store.store import Store


class EmbeddedExchange:
    """All channels of a store. Reading takes the lock only to find the rows, not to copy them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channels = store.views.channels

    def channels(self) -> tuple[ChannelId, ...]:
        with self._store.lock:
            return tuple(ChannelId(c) for c in self._channels.by_id)

    def spec(self, channel: ChannelId) -> ChannelSpec:
        """The channel as it is wired now."""
        with self._store.lock:
            view = self._channels[channel]
            return ChannelSpec(channel, self._schema(view), view.sender, view.receiver, view.delay_ms)

    def _schema(self, view: ChannelLog) -> pa.Schema:
        return self._store.views.schemas.by_number[view.schema]

    # Reading

    def start(self, channel: ChannelId) -> int:
        """The first position that is kept: where the receiver has committed up to."""
        with self._store.lock:
            return self._channels[channel].head

    def end(self, channel: ChannelId) -> int:
        """The position behind the last readable record."""
        with self._store.lock:
            return self._channels[channel].end(self._store.now_ms())

    def tail(self, channel: ChannelId) -> int:
        """The position behind the last record, readable or not."""
        with self._store.lock:
            return self._channels[channel].tail

    def bounds(self, channels: Sequence[ChannelId]) -> tuple[Int64s, Int64s]:
        """Start and end of many channels, as of one moment."""
        with self._store.lock:
            now = self._store.now_ms()
            views = self._channels.many(channels)
            starts = np.array([v.head for v in views], np.int64)
            ends = [v.end(now) if v.cut_since_ms or v.ready_ms > now else v.tail for v in views]
            return starts, np.array(ends, np.int64)

    def lineage(self, channel: ChannelId) -> Lineage:
        """The incarnations of a log."""
        with self._store.lock:
            return self._channels[channel].lineage

    def cuts(self, channels: Sequence[ChannelId], reconfigurations: Container[int]) -> Int64s:
        """Position of the first readable marker of these reconfigurations in each channel, or -1."""
        with self._store.lock:
            now = self._store.now_ms()
            return np.array([_first(self._channels[c], reconfigurations, now) for c in channels], np.int64)

    def behind_marker(self, channel: ChannelId, reconfiguration: int) -> int:
        """The position behind a reconfiguration's marker, readable or not; behind everything if there is none."""
        with self._store.lock:
            view = self._channels[channel]
            found = (p for p, marker in view.markers if marker.reconfiguration == reconfiguration)
            return next(found, view.tail - 1) + 1

    def cut_ms(self, channels: Sequence[ChannelId]) -> Int64s:
        """For how long there has been no way; 0 where there is one."""
        with self._store.lock:
            now = self._store.now_ms()
            since = [self._channels[c].cut_since_ms for c in channels]
            return np.array([now - s if s else 0 for s in since], np.int64)

    def is_cut(self, channel: ChannelId) -> bool:
        """Whether there is no way at the moment."""
        with self._store.lock:
            return self._channels[channel].is_cut

    def is_passable(self, channel: ChannelId) -> bool:
        """Whether tuples may go through at once: nothing waits, no latency is emulated, the way is there."""
        with self._store.lock:
            view = self._channels[channel]
            return view.head == view.tail and not (view.delay_ms or view.is_cut or view.keeps)

    def watermarks(self, channels: Sequence[ChannelId]) -> Int64s:
        """The highest watermark that each channel's receiver has consumed, or NO_WATERMARK."""
        with self._store.lock:
            return np.array([v.consumed_watermark for v in self._channels.many(channels)], np.int64)

    def newest(self, channels: Sequence[ChannelId], column: str) -> Int64s:
        """The largest value of a column among all that waits in each channel, readable or not; or NO_WATERMARK."""
        with self._store.lock:
            tails = [self._channels[c].tail for c in channels]
        found = [self.read(c, self.start(c), tail).table for c, tail in zip(channels, tails, strict=True)]
        largest = [int(t.column(column).to_numpy().max()) if len(t) else NO_WATERMARK for t in found]
        return np.array(largest, np.int64)

    def told(self, channels: Sequence[ChannelId]) -> Int64s:
        """The highest watermark that was appended to each channel, or NO_WATERMARK."""
        with self._store.lock:
            return np.array([self._channels[c].watermark for c in channels], np.int64)

    def next_ready_ms(self) -> int | None:
        """The time at which the emulated latency releases the next record; None if it holds nothing back."""
        with self._store.lock:
            now = self._store.now_ms()
            waiting = [next(v.overlapping(v.end(now), v.tail)).ready_ms for v in self._held_back(now)]
            return min(waiting, default=None)

    def _held_back(self, now: int) -> list[ChannelLog]:
        return [v for v in self._channels.by_id.values() if v.entries and v.ready_ms > now and not v.is_cut]

    def read(self, channel: ChannelId, start: int, stop: int, *, cut_at_marker: bool = False) -> Chunk:
        """The records of a range; with `cut_at_marker` up to and including the first marker."""
        gather = Gather()
        with self._store.lock:
            view = self._channels[channel]
            stop = _cut(view, start, stop, cut_at_marker)
            view.collect(start, stop, gather, 0)
            records = [(e.first + e.rows, e.watermark) for e in view.overlapping(start, stop)]
            markers = tuple(view.markers_in(start, stop))
            found = gather.resolve(self._store.payloads)
            schema = self._schema(view)
        watermarks = tuple((p, value) for p, value in records if value != NO_WATERMARK and start <= p < stop)
        return Chunk(channel, start, stop, found.table(schema)[0], watermarks, markers)

    def read_many(
        self, channels: Sequence[ChannelId], starts: Sequence[int], stops: Sequence[int], *, cut_at_marker: bool = False
    ) -> Reading:
        """The records of ranges of many channels with the same types, as one table under the names of the first."""
        if not channels:
            raise InputError("read_many needs at least one channel, to know the schema")
        markers: dict[ChannelId, tuple[tuple[int, Marker], ...]] = {}
        with self._store.lock:
            views = self._channels.many(channels)
            schema = self._schema(views[0])
            entries = self._channels.whole(views, starts, stops)
            if entries is not None:
                rows, payloads, offsets, watermarks = (np.ascontiguousarray(c) for c in entries.T[1:5])
                some, ends = np.flatnonzero(rows), int64s(stops)
                gathered = resolve(self._store.payloads, payloads[some], offsets[some], rows[some], some)
            else:
                ranges = [_cut(v, a, b, cut_at_marker) for v, a, b in zip(views, starts, stops, strict=True)]
                ends = int64s(ranges)
                gathered, rows, watermarks = self._gathered(views, starts, ranges)
                for view, start, stop in zip(views, starts, ranges, strict=True):
                    if view.markers and (found := view.markers_in(start, stop)):
                        markers[view.channel] = tuple(found)
        table, owners = gathered.table(schema)
        return Reading(tuple(channels), table, owners, rows, ends, watermarks, markers)

    def _gathered(
        self, views: Sequence[ChannelLog], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Gathered, Int64s, Int64s]:
        """Slices in the ranges, and for each channel the rows and the highest watermark among them."""
        gather, rows, watermarks = Gather(), [], []
        number, schemas = views[0].schema, self._store.views.schemas.by_number
        for owner, (view, start, stop) in enumerate(zip(views, starts, stops, strict=True)):
            if view.schema != number and schemas[view.schema].types != schemas[number].types:
                raise InputError(
                    f"channels {views[0].channel} and {view.channel} differ in schema; read them separately"
                )
            count, watermark = view.collect(start, stop, gather, owner)
            rows.append(count)
            watermarks.append(watermark)
        return gather.resolve(self._store.payloads), int64s(rows), int64s(watermarks)

    def kept(self, channel: ChannelId) -> pa.Table:
        """The bytes that the channel has kept although its receiver has consumed them."""
        gather = Gather()
        with self._store.lock:
            view = self._channels[channel]
            if view.keeps:
                view.collect(view.kept_from, view.head, gather, 0)
            found = gather.resolve(self._store.payloads)
            schema = self._schema(view)
        return found.table(schema)[0]

    def counters(self, channel: ChannelId) -> ChannelCounters:
        """The counters of a channel."""
        with self._store.lock:
            return self._channels[channel].counters(self._store.now_ms())


def _first(view: ChannelLog, reconfigurations: Container[int], now: int) -> int:
    if not view.markers:
        return -1
    found = view.markers_in(view.head, view.end(now))
    return next((position for position, marker in found if marker.reconfiguration in reconfigurations), -1)


def _cut(view: ChannelLog, start: int, stop: int, cut_at_marker: bool) -> int:
    view.check_range(start, stop)
    markers = view.markers_in(start, stop) if cut_at_marker and view.markers else ()
    return markers[0][0] + 1 if markers else stop
