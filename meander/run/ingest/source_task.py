"""A source task: brings the tuples of one stream into channels. It knows the source, the producers' watermarks and the
readers.

A batch that was polled waits here until it is committed, so a refused commit loses nothing. Only one small record has
to survive a crash: the source's offset, the producers' newest event times, and counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId
from meander.model.streams import Stream
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, Int64s
from meander.run.connectors.base import ConnectorError, Malformed, Polled, SourceConnector
from meander.run.connectors.cut_file import CutFile
from meander.run.connectors.options import ConnectorOptions
from meander.run.frames import BEGIN, END, HIDDEN, channel_schema, event_times
from meander.run.ingest.poll_times import PollTimes
from meander.run.ingest.watermarks import newest_before, packed, unpacked, watermarks
from meander.run.store.journal import is_full
from meander.run.store.records.progress import IngestNodesRecord, IngestRecord
from meander.run.store.records.record import Record
from meander.run.store.store import Store

_LONGEST_ROW = 10_000
"""Characters of a malformed row that are kept."""
HELD = "what it feeds holds more than its budget"
MOST_MALFORMED_BYTES, OLDER = 64_000_000, ".older.jsonl"
"""The size at which a file of malformed rows is put aside, in place of the one before: there are never more."""


@dataclass(frozen=True, slots=True)
class SourceTaskMetrics:
    """The totals of one stream, since the store was made."""

    rows: int
    unread: int
    """Tuples of producers without readers; they were dropped. Since the process began."""
    malformed: int
    behind: bool
    """Whether more was waiting at the source than a tick takes."""
    ended: bool
    paused: str | None
    """The reason why the stream is paused, if it is."""
    waits: str | None = None
    """The reason why it does not go on now although it is not paused."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Polled and not committed."""

    table: pa.Table
    starts: Int64s
    counts: Int64s
    polled: bool


class SourceTask:
    """One stream. Not for several threads."""

    def __init__(self, stream: Stream, source: SourceConnector, store: Store, work: Path) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self.stream, self._source, self._work = stream, source, work
        self.times = PollTimes(source)
        self._disorder_ms = options.duration("disorder", 0) or 0
        self._idle_ms = options.duration("idle_timeout")
        self._ahead_ms = options.duration("ahead")
        self._limit = options.whole("malformed", 0) if "malformed" in options.values else None
        self._schema = channel_schema(stream.schema)
        saved, nodes = store.record(IngestRecord, stream.name), store.record(IngestNodesRecord, stream.name)
        self._offset: Any = None
        self._rows = self._malformed = self._forgiven = self._malformed_bytes = 0
        self._newest = np.full(len(stream.nodes), BEGIN, np.int64)
        if saved is not None:
            self._offset, self._newest = saved.offset, self._restored(saved, nodes)
            self._rows, self._malformed = saved.rows, saved.malformed
            self._forgiven, self._malformed_bytes = saved.forgiven, saved.aside_bytes
        self._has_saved_nodes = nodes is not None and nodes.nodes == tuple(stream.nodes)
        self._last_ms: Int64s | None = None
        self._entry_producer, self._entry_channel = np.empty(0, np.int64), np.empty(0, np.int64)
        self._sent = np.empty(0, np.int64)
        self._sending: tuple[Int64s, Int64s] = (self._entry_channel, self._sent)
        self._batch: _Batch | None = None
        self._polled: Polled | None = None
        """The batch of the source that could not be taken yet."""
        self._waits: str | None = None
        self._opened = self._behind = self.ended = False
        self._unread = 0
        self._malformed_file: CutFile | None = None
        self.paused: str | None = None
        self._check_limit()

    def _restored(self, saved: IngestRecord, nodes: IngestNodesRecord | None) -> Int64s:
        """Newest event times by node, also when the stream has other nodes now."""
        newest = unpacked(saved.newest)
        if nodes is None or nodes.nodes == tuple(self.stream.nodes):
            return newest
        known = dict(zip(nodes.nodes, newest.tolist(), strict=True))
        return np.array([known.get(n, BEGIN) for n in self.stream.nodes], np.int64)

    # Channels

    def check(self, readers: Mapping[str, tuple[ChannelId, ...]]) -> None:
        known = set(self.stream.nodes)
        for node in readers:
            if node not in known:
                raise InputError(f"stream {self.stream.name!r}: {unknown('producer', node, known).message}")

    def rewire(self, readers: Mapping[str, tuple[ChannelId, ...]]) -> None:
        sent = dict(zip(self._entry_channel.tolist(), self._sent.tolist(), strict=True))
        entries = [(i, c) for i, node in enumerate(self.stream.nodes) for c in readers.get(node, ())]
        self._entry_producer = np.array([i for i, _ in entries], np.int64)
        self._entry_channel = np.array([c for _, c in entries], np.int64)
        self._sent = np.array([sent.get(c, NO_WATERMARK) for _, c in entries], np.int64)
        self.times.reset()

    # Polling

    @property
    def is_behind(self) -> bool:
        """Whether more was waiting at the source than the last poll took."""
        return self._behind

    @property
    def waiting(self) -> bool:
        """Whether there is something to commit."""
        return self._batch is not None

    def due_again(self, now_ms: int, interval_ms: int) -> int:
        """The time from which a poll may give something, if nothing is announced before."""
        waits = self._batch is not None or self._polled is not None or not self._opened
        if waits or self.paused or self._waits == HELD:
            return self.times.again(now_ms, now_ms + interval_ms)
        if self._behind:
            return self.times.again(now_ms, now_ms)
        return self.times.again(now_ms, None, interval_ms, seldom=self._idle_ms is None)

    def poll(self, now_ms: int, most_rows: int, held: Set[ChannelId] = frozenset()) -> None:
        """Takes the next batch from the source, unless one waits to be committed or a channel of it is held."""
        self.times.polled(now_ms)
        if self._batch is not None or self.paused:
            return
        if held and not held.isdisjoint(self._entry_channel.tolist()):
            self._waits, self._behind = HELD, False
            return
        if self._waits == HELD:
            self._waits = None
        try:
            self.open(now_ms)
            polled = self._polled
            if polled is None and self._opened and not self.ended:
                polled = self._polled = self._source.poll(now_ms, most_rows)
            if polled is not None:
                self._take(polled, now_ms)
                self._polled = self._waits = None
        except (InputError, ConnectorError, OSError) as error:
            if self._polled is not None and is_full(error):  # no room for malformed rows: they are taken next time
                self._waits = f"there is no room to put malformed rows aside ({error})"
            else:
                self._polled = None
                self._pause(str(error))
            return
        except Exception as error:  # whatever else a source raises must not stop the others
            self._polled = None
            self._pause(f"{type(error).__name__}: {error}")
            return
        self._behind = polled is not None and polled.more
        raised = self._raise_idle(now_ms) if self._opened and not self._behind and not self.ended else False
        if self._batch is None and (raised or self._unsent()):
            none = np.zeros(len(self.stream.nodes), np.int64)
            self._batch = _Batch(self._schema.empty_table(), none, none, polled=False)

    def open(self, now_ms: int) -> None:
        """Opens the source, when the stream has or had readers. Passes on the source's errors."""
        if not self._opened and (self._entry_channel.size or self._offset is not None):
            self._source.open(self.stream, self._offset, now_ms)
            self._opened = True
            self.ended = bool(len(self._newest)) and bool((self._newest >= END).all())

    def _take(self, polled: Polled, now_ms: int) -> None:
        count = len(self.stream.nodes)
        polled, times = self._without_future(polled, now_ms)
        counts = np.bincount(polled.producers, minlength=count).astype(np.int64)
        before, newest = newest_before(times, counts, self._newest)
        hidden = (times, watermarks(before, self._disorder_ms), times)
        columns = [*(pa.array(h, pa.int64()) for h in hidden), *polled.table.columns]
        table = pa.table(columns, [*HIDDEN, *polled.table.column_names])
        if polled.malformed:
            self._write_malformed(polled.malformed, now_ms)
        self._batch = _Batch(table, np.cumsum(counts) - counts, counts, polled=True)
        self._offset, self.ended = polled.offset, polled.ended
        self._newest = np.full(count, END, np.int64) if polled.ended else newest
        self._rows += len(times)
        if self._idle_ms is not None:
            self._arrived(counts, now_ms)

    def _without_future(self, polled: Polled, now_ms: int) -> tuple[Polled, Int64s]:
        """One event time far ahead would make everything after it late."""
        times = event_times(polled.table, self.stream.event_time)
        if self._ahead_ms is None or not (ahead := times > now_ms + self._ahead_ms).any():
            return polled, times
        rows = polled.table.filter(pa.array(ahead)).to_pylist()
        reason = f"column {self.stream.event_time!r} is further ahead of the clock than option 'ahead' allows"
        malformed = (*polled.malformed, *(Malformed(reason, json.dumps(row, default=str)) for row in rows))
        table = polled.table.filter(pa.array(~ahead))
        return replace(polled, table=table, producers=polled.producers[~ahead], malformed=malformed), times[~ahead]

    # Idle producers

    def _arrived(self, counts: Int64s, now_ms: int) -> None:
        if self._last_ms is None:
            self._last_ms = np.full(counts.size, now_ms, np.int64)
        self._last_ms[counts > 0] = now_ms

    def _raise_idle(self, now_ms: int) -> bool:
        """Lets the watermark of producers that have been idle for too long go on with the clock."""
        if self._idle_ms is None:
            return False
        if self._last_ms is None:
            self._last_ms = np.full(len(self.stream.nodes), now_ms, np.int64)
        idle = now_ms - self._last_ms >= self._idle_ms
        raised = idle & (self._newest < now_ms - self._idle_ms)
        self._newest = np.where(raised, now_ms - self._idle_ms, self._newest)
        return bool(raised.any())

    # Committing

    def _watermarks(self) -> Int64s:
        """The watermark for each channel that has not had it yet."""
        reached = watermarks(self._newest, self._disorder_ms)[self._entry_producer]
        return np.where((reached > self._sent) & (reached > BEGIN), reached, NO_WATERMARK)

    def _unsent(self) -> bool:
        return bool((self._watermarks() != NO_WATERMARK).any())

    def append(self, known: Iterable[ChannelId] | None = None) -> ChannelAppend | None:
        """The waiting batch for all its channels, or only for those that are known: readers share its rows."""
        assert self._batch is not None
        batch, reached = self._batch, self._watermarks()
        self._sending = (self._entry_channel, reached)
        lengths = batch.counts[self._entry_producer]
        used = (lengths > 0) | (reached != NO_WATERMARK)
        if known is not None:
            used &= np.isin(self._entry_channel, np.fromiter(known, np.int64))
        if not used.any():
            return None
        producers = self._entry_producer[used]
        table = batch.table if len(batch.table) else None
        return ChannelAppend(table, self._entry_channel[used], batch.starts[producers], lengths[used], reached[used])

    def records(self) -> list[Record[str]]:
        """The records that must survive a crash."""
        name, counts = self.stream.name, (self._rows, self._malformed, self._forgiven, self._malformed_bytes)
        saved = IngestRecord(name, self._offset, packed(self._newest), *counts)
        return [saved] if self._has_saved_nodes else [saved, IngestNodesRecord(name, tuple(self.stream.nodes))]

    def settle(self) -> int:
        """The waiting batch is durable; says how many tuples it had."""
        assert self._batch is not None
        batch = self._batch
        channels, reached = self._sending
        if channels is self._entry_channel:
            self._sent = np.maximum(self._sent, reached)
        else:  # rewired since: what is new has not had its watermark
            sent = dict(zip(channels.tolist(), reached.tolist(), strict=True))
            known = [sent.get(c, NO_WATERMARK) for c in self._entry_channel.tolist()]
            self._sent = np.maximum(self._sent, np.array(known, np.int64))
        self._has_saved_nodes = True
        self._batch = None
        unread = batch.counts.copy()
        unread[self._entry_producer] = 0
        self._unread += int(unread.sum())
        if batch.polled:
            self._source.committed()
        self._check_limit()
        return len(batch.table)

    # Malformed rows

    def _write_malformed(self, rows: tuple[Malformed, ...], now_ms: int) -> None:
        """Into a file beside the store, cut back after a crash as sinks are."""
        if self._malformed_file is None:
            self._malformed_file = self._open_malformed()
        if self._malformed_bytes >= MOST_MALFORMED_BYTES:
            self._malformed_file.close()
            path = self._malformed_file.path
            path.replace(path.with_suffix(OLDER))
            self._malformed_file = CutFile(path, 0)
        lines = [json.dumps({"at_ms": now_ms, "reason": m.reason, "row": m.row[:_LONGEST_ROW]}) + "\n" for m in rows]
        self._malformed_bytes = self._malformed_file.append("".join(lines).encode())
        self._malformed += len(rows)

    def _open_malformed(self) -> CutFile:
        """The file, cut back to what was acknowledged; one that was begun anew just before a crash is emptied."""
        path = self._work / f"malformed-{self.stream.name}.jsonl"
        older = path.with_suffix(OLDER)
        if older.exists() and older.stat().st_size >= self._malformed_bytes > _size(path):
            self._malformed_bytes = 0
        return CutFile(path, self._malformed_bytes)

    def _check_limit(self) -> None:
        new = self._malformed - self._forgiven
        if self._limit is not None and new > self._limit:
            self._pause(
                f"{new} malformed rows, more than the {self._limit} that option 'malformed' allows; "
                f"see malformed-{self.stream.name}.jsonl, then `meander resume {self.stream.name}`"
            )

    # Life

    def _pause(self, reason: str) -> None:
        self.paused = reason
        if self._opened and self._batch is None:
            self._source.close()
            self._opened = False

    def resume(self) -> None:
        self.times.reset()
        self.paused, self._forgiven = None, self._malformed

    def close(self) -> None:
        if self._opened:
            self._source.close()
            self._opened = False
        if self._malformed_file is not None:
            self._malformed_file.close()
            self._malformed_file = None

    def metrics(self) -> SourceTaskMetrics:
        return SourceTaskMetrics(
            self._rows, self._unread, self._malformed, self._behind, self.ended, self.paused, self._waits
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
