"""Ingest: tuples of all streams into the channels of the fragments that read them, exactly once.

A tick polls the sources and makes one commit: the tuples of each stream with their hidden columns as one append, a
watermark for each producer, and the position of each source. After a crash the sources go on from there.
When the store fills up, sources wait; nothing is dropped.

The thread ticks when a source says that something has come, when the next tuple of one is due, and now and then for
sources that tell neither (`pace` says how it rests in between).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId
from meander.model.locks import reentrant_lock
from meander.model.streams import Stream
from meander.run.connectors import source_for
from meander.run.connectors.base import SourceConnector, Surroundings
from meander.run.ingest.pace import Pace
from meander.run.ingest.poll_times import SELDOM
from meander.run.ingest.source_task import SourceTask, SourceTaskMetrics
from meander.run.store.commit import Commit, CommitConflictError, Writer
from meander.run.store.journal import JournalError
from meander.run.store.store import Store

WRITER = Writer("ingest")
_log = logging.getLogger(__name__)

ChannelMap = Mapping[tuple[str, str], tuple[ChannelId, ...]]
"""By stream and producing node: one channel for each fragment that reads it there."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The interval and the size of ingestion."""

    interval_ms: int = 100
    """The time after which sources are polled that neither know when their next tuples come nor announce them."""
    most_rows: int = 50_000
    """About how many tuples of one stream a tick takes."""
    pause_above: float = 0.9
    """Pressure of the store at which sources wait."""


@dataclass(frozen=True, slots=True)
class IngestMetrics:
    """The totals of ingestion."""

    ticks: int
    paused_ticks: int
    """Ticks in which sources had to wait because the store was full."""
    rows: int
    malformed: int
    streams: Mapping[str, SourceTaskMetrics]


class Ingest:
    """The streams of one site host. `tick` may be called by hand, or by the thread that `start` begins."""

    def __init__(
        self,
        store: Store,
        streams: Iterable[Stream],
        channels: ChannelMap,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        options: IngestOptions | None = None,
        surroundings: Surroundings | None = None,
        sources: Mapping[str, SourceConnector] | None = None,
    ) -> None:
        """Checks connectors and options of all streams; `sources` overrides the connector of a stream."""
        self._store, self._clock = store, clock
        self.options = options or IngestOptions()
        around = surroundings or Surroundings(Path.cwd(), Path.cwd() / "work")
        given = sources or {}
        self._tasks = {
            s.name: SourceTask(s, given.get(s.name) or source_for(s, around), store, around.work) for s in streams
        }
        self._lock = reentrant_lock("ingest")
        self._ticks = self._paused_ticks = 0
        self._told: set[str] = set()
        """Refusals that have been logged already."""
        self._batch = (store.last_batch(WRITER) or 0) + 1
        self._stopping, self._arrival = threading.Event(), threading.Event()
        self._pace = Pace(store, self._stopping, self.options.interval_ms / 1000)
        self._thread: threading.Thread | None = None
        for task in self._tasks.values():
            task.times.announce(self._arrival.set)
        self.rewire(channels)

    # Channels

    def rewire(self, channels: ChannelMap) -> None:
        """Replaces the channel map between two ticks. A channel that is new gets its producer's watermark at once."""
        by_stream: dict[str, dict[str, tuple[ChannelId, ...]]] = {name: {} for name in self._tasks}
        for (stream, node), readers in channels.items():
            if stream not in by_stream:
                raise unknown("stream", stream, by_stream)
            by_stream[stream][node] = tuple(readers)
        with self._lock:
            for name, readers_of in by_stream.items():
                self._tasks[name].check(readers_of)
            for name, readers_of in by_stream.items():
                self._tasks[name].rewire(readers_of)
        self._arrival.set()

    def open(self) -> None:
        """Opens the sources of all streams that are read, so that what does not fit is raised before the first tick."""
        with self._lock:
            for task in self._tasks.values():
                task.open(self._clock())

    # Ticks

    def tick(self) -> int:
        """Takes in arrived tuples; returns the number of committed ones."""
        return self._take_in(lambda task, now_ms: True)

    def _take_in(self, is_wanted: Callable[[SourceTask, int], bool]) -> int:
        """Polls the wanted sources and commits what came."""
        with self._lock:
            self._ticks += 1
            if self._store.pressure() >= self.options.pause_above:
                self._paused_ticks += 1
                return 0
            now_ms, held = self._clock(), self._store.held()
            for task in self._tasks.values():
                if is_wanted(task, now_ms):
                    task.poll(now_ms, self.options.most_rows, held)
            return self._commit()

    def _commit(self) -> int:
        """Commits what the feeds hold. Refused tuples stay with them for the next tick."""
        waiting = [f for f in self._tasks.values() if f.waiting]
        if not waiting:
            return 0
        if (self._store.last_batch(WRITER) or 0) < self._batch:
            whole = self._whole(waiting)
            try:
                self._store.commit(whole)
                self._pace.took_in(whole.appends)
            except JournalError as error:
                _log.warning("tuples wait, because a commit was refused: %s", error)
                return 0
            except (CommitConflictError, InputError) as error:
                waiting = self._commit_what_fits(waiting, str(error))
        self._batch += 1
        self._store.throttle(self._stopping.is_set)
        return sum(f.settle() for f in waiting)

    def _whole(self, tasks: Iterable[SourceTask], known: Collection[ChannelId] | None = None) -> Commit:
        found = list(tasks)
        appends = [a for a in (f.append(known) for f in found) if a is not None]
        records = tuple(r for f in found for r in f.records())
        return Commit(WRITER, self._batch, appends=tuple(appends), records=records)

    def _commit_what_fits(self, tasks: Iterable[SourceTask], reason: str) -> list[SourceTask]:
        """Leaves out channels that do not exist, and streams that do not fit even so; says which streams did."""
        known, fitting = set(self._store.exchange.channels()), list[SourceTask]()
        for task in tasks:
            try:
                self._store.check(self._whole([task], known))
            except (CommitConflictError, InputError) as error:
                reason = str(error)
            else:
                fitting.append(task)
        if reason not in self._told:
            _log.warning("some tuples wait or have no reader, because a commit was refused: %s", reason)
            self._told.add(reason)
        if fitting:
            try:
                self._store.commit(self._whole(fitting, known))
            except (JournalError, CommitConflictError, InputError):
                return []
        return fitting

    # Thread

    def start(self) -> None:
        """Ticks in a thread of its own until `stop`."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._arrival.clear()  # what comes from here on is seen by this tick, or by the next one
            rows, began = 0, time.monotonic()
            try:
                rows = self._take_in(lambda task, now_ms: task.times.are_due(now_ms))
                if rows and not self._behind():
                    self._pace.rest(began)
            except Exception:
                _log.exception("a tick of ingest failed; the next one tries again")
            if not (rows and self._behind()):
                self._arrival.wait(self._pause_s())

    def _pause_s(self) -> float:
        """The time until a source gives something by itself, or may do so."""
        interval_ms = self.options.interval_ms
        if self._store.pressure() >= self.options.pause_above:
            return interval_ms / 1000
        now_ms = self._clock()
        longest = now_ms + SELDOM * interval_ms
        with self._lock:
            due = min((task.due_again(now_ms, interval_ms) for task in self._tasks.values()), default=longest)
        return max(0, min(longest, due) - now_ms) / 1000

    def _behind(self) -> bool:
        """Whether more was waiting at a source than the last tick took."""
        return any(task.is_behind for task in self._tasks.values())

    def stop(self) -> None:
        """Ends the thread after its tick and closes all sources. Committed tuples stay, the rest is read again."""
        self._stopping.set()
        self._arrival.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            for task in self._tasks.values():
                task.close()

    def __enter__(self) -> Ingest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Asking

    def resume(self, stream: str) -> None:
        """Lets a stream go on that was paused; its malformed rows are counted anew."""
        if stream not in self._tasks:
            raise unknown("stream", stream, self._tasks)
        with self._lock:
            self._tasks[stream].resume()
        self._arrival.set()

    @property
    def ended(self) -> bool:
        """Whether every stream has ended and all of it is committed."""
        with self._lock:
            return all(f.ended and not f.waiting for f in self._tasks.values())

    def metrics(self) -> IngestMetrics:
        with self._lock:
            streams = {name: task.metrics() for name, task in self._tasks.items()}
            return IngestMetrics(
                self._ticks,
                self._paused_ticks,
                sum(s.rows for s in streams.values()),
                sum(s.malformed for s in streams.values()),
                streams,
            )
