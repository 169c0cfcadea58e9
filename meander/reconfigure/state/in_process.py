"""A migration query inside one process: the same chunks and sink as between sites, the hops as a matter of time.

A chunk is encoded when it leaves and taken when it arrives, which its path decides from latency and bandwidth. In the
background a thread sleeps until the next arrival; without one the owner calls `poll` by its own clock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from meander.model.errors import InputError
from meander.model.locks import reentrant_lock
from meander.reconfigure.state.hops import Forwarding, Timetable
from meander.reconfigure.state.job import Job, MoveState, TimedMove
from meander.reconfigure.state.manifest import Manifest
from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.source import open_source
from meander.reconfigure.state.transfer import Export, TransferError
from meander.run.store.journal import JournalError

FEW_CHUNKS = 2
"""So little is moved at once: a thread would take longer to start."""


def monotonic_ms() -> float:
    return time.perf_counter() * 1000


class Migration(TimedMove):
    """Implements `StateMove` with chunks."""

    def __init__(
        self,
        job: Job,
        forwarding: Forwarding = Forwarding.PIPELINED,
        *,
        clock_ms: Callable[[], float] = monotonic_ms,
        background: bool = True,
        on_end: Callable[[Migration], None] | None = None,
    ) -> None:
        """`on_end` is called once, from the thread that did the last piece of work."""
        super().__init__(clock_ms)
        self.job, self.forwarding, self.background = job, forwarding, background
        self.bytes = 0
        self.chunks = 0
        self._on_end = on_end
        after = None if job.after is None else job.after.digest
        self._sink = StateSink(job.target, job.into, job.transfer, job.keys, after)
        self._export: Export | None = None
        self._timetable: Timetable | None = None
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._lock = reentrant_lock("state move")
        self._wake, self._ended = threading.Event(), threading.Event()

    @property
    def progress(self) -> float:
        if self._export is None:
            return 0.0
        return 1.0 if self.done else self.chunks / len(self._export)

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the target when this is done."""
        return None if self._export is None else self._export.manifest

    def start(self) -> None:
        """Fixes the state that moves; chunks that the target has from an earlier attempt are not sent again."""
        with self._lock:
            if self._state is not MoveState.WAITING:
                raise InputError(f"transfer {self.job.transfer!r} has started already; make another one to move again")
            job = self.job
            keys = None if job.keys is None else set(job.keys)
            self._export = open_source(job.source, job.fragment, keys, job.hops, job.options, job.after)
            self._started_ms = self._clock_ms()
            self._timetable = Timetable(job.hops, self._started_ms)
            self._state = MoveState.MOVING
            self.chunks = self._sink.next(self._export.digest)
            if self.chunks == len(self._export):
                self._end(MoveState.DONE)
        self._announce()
        if self.background and not self._state.ended:
            if len(self._export) <= FEW_CHUNKS and self.poll() is None:
                return
            threading.Thread(target=self._run, name=f"migration {self.job.transfer}", daemon=True).start()

    def poll(self) -> float | None:
        """Takes what has arrived by now; says in how many ms the next chunk arrives, None after the end."""
        wait_ms = None
        with self._lock:
            try:
                wait_ms = self._take_arrived()
            except (TransferError, InputError, JournalError, OSError) as problem:
                self.error = str(problem)
                self._end(MoveState.FAILED)
        self._announce()
        return wait_ms

    def cancel(self) -> bool:
        with self._lock:
            gone = self._sink.cancel()
            if gone and not self._state.ended:
                self._end(MoveState.CANCELLED)
        self._announce()
        return gone

    def wait(self, timeout_s: float | None = None) -> bool:
        self._ended.wait(timeout_s)
        return self.done

    def _take_arrived(self) -> float | None:
        while self._state is MoveState.MOVING:
            arrival_ms, chunk = self._next()
            wait_ms = arrival_ms - self._clock_ms()
            if wait_ms > 0:
                return wait_ms
            arrival = self._sink.take(chunk)
            self._under_way.popleft()
            self.bytes += len(chunk)
            self.chunks = arrival.chunk + 1
            if arrival.last:
                self._end(MoveState.DONE)
        return None

    def _next(self) -> tuple[float, bytes]:
        """The chunk that arrives next. A hop that waits for the whole keeps the whole; otherwise one is under way."""
        assert self._export is not None
        assert self._timetable is not None
        if not self._under_way:
            if self.forwarding is Forwarding.PIPELINED:
                chunk = self._export.chunk(self.chunks)
                self._under_way.append((self._timetable.arrival_ms(len(chunk)), chunk))
            else:
                chunks = [self._export.chunk(n) for n in range(self.chunks, len(self._export))]
                arrivals = self._timetable.whole_arrivals_ms([len(c) for c in chunks])
                self._under_way.extend(zip(arrivals, chunks, strict=True))
        return self._under_way[0]

    def _end(self, state: MoveState) -> None:
        self._state, self._ended_ms = state, self._clock_ms()
        self._under_way.clear()
        self._wake.set()
        self._ended.set()

    def _announce(self) -> None:
        """Tells the end once, and with no lock held."""
        if self._state.ended and self._on_end is not None:
            with self._lock:
                told, self._on_end = self._on_end, None
            if told is not None:
                told(self)

    def _run(self) -> None:
        while (wait_ms := self.poll()) is not None:
            self._wake.wait(wait_ms / 1000)
