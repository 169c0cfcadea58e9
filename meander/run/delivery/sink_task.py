"""A sink task: delivers one sink binding's results from its channel into its sink, with retries and a pause when
they do not help."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.run.channels.base import Chunk
from meander.run.connectors.base import SinkBinding, SinkConnector, SourcePosition
from meander.run.connectors.options import ConnectorOptions
from meander.run.delivery.latency import LatencyHistogram
from meander.run.frames import HIDDEN, NEWEST
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError, is_full
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
CONTROL_RECORDS = 1000
"""So many watermarks may wait in a channel without tuples before they are worth a commit."""
SLOWEST_TPS = 10_000
"""A sink at work is given time for its rows at this rate before it counts as one that does not come back."""


@dataclass(frozen=True, slots=True)
class SinkTaskMetrics:
    """The totals of one sink binding, since the store was made."""

    rows: int
    pending: int
    failures: int
    """Writes that failed since the process began."""
    paused: str | None
    """The reason why the sink binding is paused, if it is."""


class SinkTask:
    """One sink binding. One thread at a time delivers; others need not wait for it to ask, rewire or close."""

    def __init__(
        self,
        store: Store,
        binding: SinkBinding,
        sink: SinkConnector,
        clock: Callable[[], int],
        latency: LatencyHistogram,
    ) -> None:
        options = ConnectorOptions(binding.target.options, f"sink {binding.target.name!r}")
        self._store, self.binding, self.sink, self._clock, self._latency = store, binding, sink, clock, latency
        self._event_time = options.truth("event_time")
        self._retries = options.whole("retries", 5)
        self._backoff_ms = options.duration("backoff", 200) or 0
        self._name = binding.name
        self._open = False
        self._attempts = self._failures = 0
        self._retry_ms = 0
        self.paused: str | None = None
        self._turn = lock("sink task")
        """Held while the sink is at work."""
        self._began: float | None = None
        self._rows_at_work = 0
        self._closed = False

    @property
    def overdue_s(self) -> float:
        """For how long the sink has been at work beyond what its rows may take; 0 when it is not."""
        began = self._began
        return 0.0 if began is None else max(0.0, time.monotonic() - began - self._rows_at_work / SLOWEST_TPS)

    @property
    def _saved(self) -> DeliveryRecord:
        return self._store.record(DeliveryRecord, self._name) or DeliveryRecord(self._name)

    @property
    def has_more(self) -> bool:
        """Whether results wait that a later try may hand over, without anything being appended before."""
        if self.paused or self._closed:
            return False
        try:
            return self._store.exchange.counters(self.binding.channel).pending_tuples > 0
        except InputError:  # the channel is gone, or not there yet: it comes with a change
            return False

    def deliver(self, most_rows: int) -> int:
        """Hands over waiting results, up to `most_rows` records; returns the number of acknowledged rows.

        While another thread is at it there is nothing to do here.
        """
        if not self._turn.acquire(blocking=False):
            return 0
        try:
            self._rows_at_work, self._began = 0, time.monotonic()
            return 0 if self._closed else self._deliver(most_rows)
        finally:
            self._began = None
            self._turn.release()
            if self._closed:  # meanwhile, and the sink could not be closed
                self.close()

    def _deliver(self, most_rows: int) -> int:
        channel, exchange = self.binding.channel, self._store.exchange
        now_ms = self._clock()
        if self.paused or now_ms < self._retry_ms:
            return 0
        try:
            start = exchange.start(channel)
            end = max(start, self._store.released(channel, exchange.end(channel)))
            if start == end or (end - start < CONTROL_RECORDS and not exchange.counters(channel).readable_tuples):
                return 0
        except InputError:  # the channel is gone, or not there yet: there is nothing to deliver, and others wait
            return 0
        try:
            stop = self._range(start, min(end, start + most_rows))
            chunk = exchange.read(channel, start, stop)
            self._rows_at_work = len(chunk.table)
            self._hand_over(chunk)
        except Exception as error:  # whatever a sink raises is its failure, not ours
            self._failed(error, now_ms)
            return 0
        self._attempts = self._retry_ms = 0
        return len(chunk.table)

    def _range(self, start: int, stop: int) -> int:
        """Up to where to read. For sinks that need it, a range is fixed by a commit before it is written."""
        if not self.sink.fixed_ranges:
            return stop
        saved = self._saved
        if saved.begun is not None and saved.begun[:2] == (self.binding.channel, start):
            return saved.begun[2]
        self._store.commit(Commit(records=(replace(saved, begun=(self.binding.channel, start, stop)),)))
        return stop

    def _hand_over(self, chunk: Chunk) -> None:
        saved = self._saved
        rows, note = saved.rows, saved.note
        if len(chunk.table):
            if not self._open:
                self.sink.open(self.binding, self._visible(chunk.table.slice(0, 0)).schema, SourcePosition(rows, note))
                self._open = True
            self._store.syncer.settle()
            note = self.sink.write(self._visible(chunk.table), rows)
        if self._closed:  # meanwhile: the next task of this sink binding writes it again from here
            raise InputError(f"sink binding {self.binding.name!r} was closed before its sink came back")
        self._store.commit(
            Commit(
                consumed={chunk.channel: chunk.stop},
                acknowledged={self.binding.name: rows + len(chunk.table)},
                records=(DeliveryRecord(self._name, rows + len(chunk.table), note),),
            )
        )
        if NEWEST in chunk.table.column_names:
            self._latency.add(self._clock() - np.asarray(chunk.table.column(NEWEST), np.int64))

    def _visible(self, table: pa.Table) -> pa.Table:
        """The user's columns, with the newest event time if it is wanted."""
        hidden = [n for n in HIDDEN if n in table.column_names and not (self._event_time and n == NEWEST)]
        return table.drop_columns(hidden)

    def _failed(self, error: Exception, now_ms: int) -> None:
        """Waits longer after each failure, then pauses. A mistake of the user's or a bug is not tried again."""
        self._failures += 1
        self._close()
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, InputError) else str(error)
        if isinstance(error, JournalError) or is_full(error):  # not the sink's failure: it goes on when there is room
            self._retry_ms = now_ms + self._backoff_ms
        elif isinstance(error, InputError) or self._attempts >= self._retries:
            self.paused = reason
            _log.warning("sink binding %s is paused: %s", self.binding.name, reason)
        else:
            self._retry_ms = now_ms + self._backoff_ms * 2**self._attempts
            self._attempts += 1

    def resume(self) -> None:
        self.paused = None
        self._attempts = self._retry_ms = 0

    def rewire(self, binding: SinkBinding) -> None:
        """Reads from another channel from the next time on."""
        with self._turn:
            self.binding = binding

    def _close(self) -> None:
        try:
            self.sink.close()
        except Exception as error:
            _log.warning("sink of %s did not close: %s", self.binding.name, error)
        self._open = False

    def close(self) -> None:
        """Stops delivering. A sink that is at work is closed when it returns; the caller does not wait for that."""
        self._closed = True
        if self._turn.acquire(blocking=False):
            try:
                if self._open:
                    self._close()
            finally:
                self._turn.release()

    def metrics(self) -> SinkTaskMetrics:
        pending = 0
        with suppress(InputError):  # its channel may be gone
            pending = self._store.exchange.counters(self.binding.channel).pending_tuples
        rows = self._store.acknowledged(self.binding.name)
        return SinkTaskMetrics(rows, pending, self._failures, self.paused)
