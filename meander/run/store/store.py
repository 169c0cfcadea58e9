"""The store: the durable core of a site host. Commits go to the journal first, then to the views.

Opening a directory gives back exactly the views that the last commit left, whatever stopped the process. `exchange`
and `state` are the two faces of the store; a step's `Commit` changes both in one record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from meander.model.clock import wall_clock_ms
from meander.model.ids import ChannelId, FragmentId
from meander.model.locks import reentrant_lock
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.store.commit import Commit, CommitResult, Writer
from meander.run.store.commit_check import CommitCheck, repeated
from meander.run.store.encoding import Numbers, Prepared, decode, prepare
from meander.run.store.framing import FrameKind, Place
from meander.run.store.journal import LOCK_NAME, Durability, Journal, JournalError, JournalSegments
from meander.run.store.mapped_files import SystemFiles
from meander.run.store.openings import may_have_lost, remember
from meander.run.store.payloads import Payloads, Schemas
from meander.run.store.records.record import RecordType, UnknownRecordError
from meander.run.store.snapshot import SnapshotDraft, load, program
from meander.run.store.state import StateTables
from meander.run.store.syncing import Syncer
from meander.run.store.views import Views
from meander.run.store.wakeups import Wakeups, kinds_of

_log = logging.getLogger(__name__)
K = TypeVar("K")
R = TypeVar("R")
VACATE_BELOW = 0.5
"""A segment of which a smaller share is live is emptied by the next snapshot: it frees more than it copies."""
SNAPSHOT_FACTOR = 4
"""A segment holds at least so many times its own snapshot, so that snapshots stay a small share of what is written."""
SYNC_INTERVAL_S = 1.0
STATE_FREE_SHARE = 0.125
"""Channels may always fill this share of the budget: state alone must not stop sources, or time would stand still."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How much a store may use, and what a commit survives."""

    durability: Durability = Durability.PROCESS
    segment_bytes: int = 64_000_000
    segment_records: int = 8192
    memory_budget_bytes: int = 256_000_000
    disk_budget_bytes: int = 4_000_000_000
    sync_interval_s: float | None = SYNC_INTERVAL_S
    """The time after which what was committed is on the disk, if nobody waited for it; None if it is not by itself."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """For metrics: what the store holds, and how it does."""

    commits: int
    refused_writes: int
    channels: int
    segments: int
    disk_bytes: int
    live_bytes: int
    channel_bytes: int
    state_bytes: int
    memory_bytes: int
    spilled_reads: int
    snapshots: int
    snapshot_problem: str | None
    """Why the last snapshot was put off, if it was: disk use and the time to open grow until one succeeds."""
    pressure: float


class Store:
    """One directory, one process, many slots."""

    def __init__(self, journal: Journal, options: StoreOptions, clock: Callable[[], int]) -> None:
        """Use `Store.open`."""
        self.lock = reentrant_lock("store")
        self.wakeups = Wakeups()
        self.options = options
        self._clock = clock
        self._now_ms = 0
        self._journal = journal
        schemas = Schemas()
        self.payloads = Payloads(journal, schemas, options.memory_budget_bytes)
        self.views = Views(schemas, self.payloads)
        self.exchange = EmbeddedExchange(self)
        self.state = StateTables(self)
        self.syncer = Syncer(journal, self._delete_emptied, options.sync_interval_s)
        self._roll_after_bytes = 0
        self._commits = self._refused = self._snapshots = 0
        self._snapshot_problem: str | None = None
        self.segments = JournalSegments(journal, self.lock)
        """The journal's end that replicas follow."""
        self.throttle: Callable[[Callable[[], bool]], None] = lambda is_over: None
        """Returns when more may be taken in from outside, as replicas may have to catch up, or when it is over."""
        self.released: Callable[[ChannelId, int], int] = lambda channel, end: end
        """How much of a channel that ends somewhere may leave this host: what its replicas have, if it has some."""
        self.processed: Callable[[ChannelId, int], int] = lambda channel, head: head
        """How far a sender elsewhere may forget what was processed here up to a position."""
        self.held: Callable[[], Set[ChannelId]] = frozenset
        """Channels into which nothing more is to be taken in, as some are beyond their budget."""
        self._told_incarnation = 0
        """The newest one that the journal has."""

    @property
    def directory(self) -> Path:
        return self._journal.directory

    @staticmethod
    def open(
        directory: Path | str,
        options: StoreOptions | None = None,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        files: SystemFiles | None = None,
    ) -> Store:
        """Opens a directory, new or old, and recovers what was committed. `clock` gives milliseconds."""
        options = options or StoreOptions()
        journal = Journal(Path(directory), files=files, durability=options.durability)
        try:
            store = Store(journal, options, clock)
            store._recover()
        except BaseException:
            journal.close()
            raise
        return store

    def _recover(self) -> None:
        try:
            self._replay()
        except UnknownRecordError as problem:
            raise UnknownRecordError(
                f"{problem}; Meander {self.views.program} wrote {self._journal.directory}, and this is {program()}: "
                "open it with that one or a newer one"
            ) from problem
        missing = [s for s in self.payloads.live_bytes() if s not in self._journal.segments]
        if missing:
            self._journal.read(Place(missing[0], 0, 0, 0), verify=False)  # raises with what to do
        directory, kept = self._journal.directory, self._journal.directory / LOCK_NAME
        is_another_life = may_have_lost(directory, kept)
        if is_another_life:
            self.views.begin_next()
        if not self._journal.active_segment:
            self.snapshot()
        elif is_another_life or self.views.program != program():
            self._bring_up_to_date()
        if is_another_life and self._snapshot_problem is None:  # else the incarnation is not written down yet
            remember(directory, kept)
        self._journal.sync()
        self.payloads.emptied.clear()
        self.payloads.note_emptied()
        self.payloads.delete_emptied()

    def _replay(self) -> None:
        for frame in self._journal.replay():
            numbers = np.frombuffer(self._journal.read(frame.places[0], verify=False), dtype=np.int64)
            if frame.kind == FrameKind.SNAPSHOT:
                load(self.views, frame.header, numbers, frame.places[1:])
            else:
                envelope, content = decode(frame.header)
                self.views.apply(frame.number, envelope, content, Numbers(numbers), frame.places[1:])

    def _bring_up_to_date(self) -> None:
        """Begins a segment in which all records are of this program's versions."""
        try:
            self.snapshot()
        except JournalError as problem:  # for want of room: it is read as it is, and written anew later
            self._snapshot_problem = str(problem)

    # Committing

    def commit(self, commit: Commit) -> CommitResult:
        """Makes a commit durable and visible as a whole. A repeated one has no second effect.

        Raises without any effect: InputError or CommitConflictError if it does not fit, DiskFullError without room.
        """
        prepared = prepare(commit)
        with self.lock:
            last = repeated(self.views, prepared)
            if last is not None:
                outcome = CommitResult(last.number, repeated=True)
            else:
                outcome = CommitResult(self._write(prepared))
        if last is None:
            self.wakeups.happened(kinds_of(commit), (c for a in commit.appends for c in a.channels.tolist()))
        if commit.settles:
            self._journal.settle(outcome.number)
        with self.lock:
            self._tidy()
        return outcome

    def check(self, commit: Commit) -> None:
        """Raises what committing it would raise, apart from want of room; changes nothing."""
        prepared = prepare(commit)
        with self.lock:
            CommitCheck(self.views, prepared).envelope()

    def _write(self, prepared: Prepared) -> int:
        envelope = CommitCheck(self.views, prepared).envelope()
        envelope["now"] = self.now_ms()
        if self._told_incarnation != self.views.incarnation:
            envelope["incarnation"] = self.views.incarnation
        try:
            written = self._journal.append(prepared.header(envelope), prepared.sections)
        except JournalError:
            self._refused += 1
            raise
        numbers, places = Numbers(prepared.numbers), written.places[1:]
        self.views.apply(written.number, envelope, prepared.content, numbers, places, prepared.tables, prepared.records)
        self._told_incarnation = self.views.incarnation
        self._commits += 1
        self.syncer.wake()
        return written.number

    def _tidy(self) -> None:
        """Deletes segments that are empty for good, and begins a new one when it is time."""
        self._delete_emptied()
        room = max(self.options.segment_bytes, SNAPSHOT_FACTOR * self._journal.snapshot_bytes, self._roll_after_bytes)
        many = self._journal.frames_in_segment >= self.options.segment_records
        grown = self._journal.active_bytes >= max(
            SNAPSHOT_FACTOR * self._journal.snapshot_bytes, self._roll_after_bytes
        )
        if self._journal.active_bytes >= room or (many and grown):
            try:
                self.snapshot()
            except JournalError as problem:  # the commits are safe where they are: go on, and try again later
                self._snapshot_problem = str(problem)
                self._roll_after_bytes = self._journal.active_bytes + self.options.segment_bytes // 8

    def _delete_emptied(self) -> None:
        with self.lock:
            self.payloads.delete_emptied()

    def snapshot(self) -> None:
        """Begins a new segment with all that is known, and deletes the segments that nothing needs any more."""
        with self.lock:
            live = self.payloads.live_bytes()
            vacate = [s for s in live if live[s] < VACATE_BELOW * self._journal.size_of(s)]
            draft = SnapshotDraft(self.views, vacate)
            try:
                written = self._journal.roll(draft.header, draft.sections)
            except JournalError:
                self._refused += 1
                raise
            draft.adopt(written)
            self._roll_after_bytes, self._snapshot_problem = 0, None
            self._told_incarnation = self.views.incarnation
            self.payloads.note_emptied()
            self._snapshots += 1

    # Asking

    def now_ms(self) -> int:
        """The clock, never going back."""
        self._now_ms = max(self._now_ms, self._clock())
        return self._now_ms

    def last_batch(self, writer: Writer) -> int | None:
        """The newest committed batch id of a writer: it and all before it need not be computed again."""
        last = self.views.writers.get(writer)  # written last of a commit: whoever sees it sees all of it
        return last.batch_id if last else None

    def version(self, fragment: FragmentId) -> int | None:
        """The newest version a fragment has committed as."""
        with self.lock:
            return self.views.versions.get(fragment)

    def counter(self, fragment: FragmentId, name: str) -> int:
        with self.lock:
            return self.views.counters.get((fragment, name), 0)

    def acknowledged(self, sink: str) -> int:
        """The position up to which a sink has taken its results; 0 before the first."""
        with self.lock:
            return self.views.acknowledged.get(sink, 0)

    @overload
    def record(self, of: RecordType[None, R]) -> R | None: ...

    @overload
    def record(self, of: RecordType[K, R], key: K) -> R | None: ...

    def record(self, of: RecordType[Any, Any], key: Any = None) -> Any:
        """The record of a type that has this key, or None; types without a key have one record at most."""
        with self.lock:
            return self.views.records.by_kind[of.kind].get(key)

    def records(self, of: RecordType[K, R]) -> dict[K, R]:
        """All records of a type by key, those with lower keys first."""
        with self.lock:
            found: dict[Any, Any] = dict(self.views.records.by_kind[of.kind])
        return dict(sorted(found.items()))

    @property
    def commits(self) -> int:
        """Commits since the store was opened."""
        return self._commits

    @property
    def changes(self) -> int:
        """Commits and wake-ups since the store was opened: whoever looked at this before anything else misses none."""
        return self.wakeups.count()

    def wait(self, seen_changes: int, timeout_s: float) -> int:
        """Sleeps until there are more changes than `seen_changes`, or for the timeout; says how many there are."""
        return self.wakeups.wait(seen_changes, timeout_s)

    def wake_readers(self) -> None:
        """Wakes everybody who waits, for changes that are not commits."""
        self.wakeups.happened()

    def pressure(self) -> float:
        """How full the channels are, 0 to 1, of the disk budget that state leaves to them."""
        with self.lock:
            budget = self.options.disk_budget_bytes
            room = max(budget - self.views.state.bytes, STATE_FREE_SHARE * budget)
            return min(1.0, max(0.0, self._channel_bytes()) / room)

    def _channel_bytes(self) -> float:
        return self.payloads.slice_bytes - self.views.state.bytes

    def stats(self) -> StoreStats:
        with self.lock:
            return StoreStats(
                commits=self._commits,
                refused_writes=self._refused,
                channels=len(self.views.channels.by_id),
                segments=len(self._journal.segments),
                disk_bytes=self._journal.disk_bytes,
                live_bytes=round(sum(self.payloads.live_bytes().values())),
                channel_bytes=round(self._channel_bytes()),
                state_bytes=round(self.views.state.bytes),
                memory_bytes=self.payloads.memory_bytes,
                spilled_reads=self.payloads.spilled_reads,
                snapshots=self._snapshots,
                snapshot_problem=self._snapshot_problem,
                pressure=self.pressure(),
            )

    def close(self) -> None:
        """Gives the directory back, with everything on the disk; what was read stays readable."""
        with self.lock:
            self.syncer.end()
        self.syncer.stop()
        with self.lock:
            try:
                self._journal.sync()
            except JournalError as problem:
                _log.warning("%s is closed before everything is on the disk: %s", self._journal.directory, problem)
            finally:
                self._journal.close()
