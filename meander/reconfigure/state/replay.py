"""State is built anew: upstream sends the tuples of the open windows again, and the operators' own steps take them.

Nothing has to be read at the old place, so it works when that is gone. It costs the work of all those tuples: how much
depends on where one can begin to read, and on how many buffers of tuples make windows fire again (best none, average
half of them, worst all). Results are not sent on, as they were before. Where upstream has kept a base, the state of an
earlier moment, the tuples continue that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.model.locks import lock
from meander.reconfigure.state.hops import Hop, Timetable
from meander.reconfigure.state.in_process import monotonic_ms
from meander.reconfigure.state.job import Job, MoveState, TimedMove
from meander.reconfigure.state.strategy import StateStrategy
from meander.reconfigure.state.transfer import cancel_transfer
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.execution.runner import Runner
from meander.run.fragments.routing import Installed, Routing
from meander.run.frames import BEGIN, WM
from meander.run.step.step import MOST_ROWS, Stepper
from meander.run.store.commit import Commit, RemoveChannel, StateCopy, StateRename, transfer_writer
from meander.run.store.journal import JournalError
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.record import forget_all
from meander.run.store.store import Store

_log = logging.getLogger(__name__)

_SCRATCH = 1 << 40
"""Channels for tuples that are replayed are numbered from here on: the fragment's own ones wait untouched."""
_MOST_PORTS = 1 << 16


class Triggering(Enum):
    """Which share of the buffers makes windows fire again."""

    BEST = 0.0
    AVERAGE = 0.5
    WORST = 1.0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Tuples of one port as channels carry them, in their old order, with the watermarks they came with."""

    port: int
    table: pa.Table
    hops: Sequence[Hop] | None = None
    """Its own route from its sender; the job's if it has none."""


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """The fragment, and what upstream has kept for it.

    Its state is built under the fragment's own number. Where that is not where the job wants the state, the state keys
    that the job names go there at the end, all at once.
    """

    installed: Installed
    buffers: Sequence[Buffer]
    runner: Runner
    triggering: Triggering = Triggering.BEST
    most_rows: int = MOST_ROWS
    """Tuples in a step at most, while no window fires."""
    base: FragmentId | None = None
    """The fragment number under which upstream keeps the state of an earlier moment, which the tuples continue."""
    reached: Sequence[int] = ()
    """The watermark that each port had consumed in the end: windows before it have been answered."""
    floor: int | None = None
    """The watermark that was reached without inputs that were cut off for too long, if so."""
    idle_timeout_ms: int | None = None
    """How long the fragment waits for an input that is cut off."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Buffers that run together, once they have arrived."""

    arrival_ms: float
    buffers: Sequence[Buffer]
    fires: bool
    is_last: bool = False
    """Whether watermarks follow, as far as they were."""


class StateReplay(TimedMove):
    """Implements `StateMove` with tuples. A poll runs the steps of the buffers that have arrived."""

    def __init__(
        self, job: Job, given: ReplayInput, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True
    ) -> None:
        self.bytes = self.tuples = self.steps = 0
        super().__init__(clock_ms)
        self._job, self._given, self._background = job, given, background
        self._batches: list[_Batch] = []
        self._taken = self._base_bytes = 0
        self._is_clean = True
        """Whether nothing is left behind that only this replay needs."""
        self._built = given.installed.fragment
        ports = given.installed.ports
        self._channels = scratch_channels(job.into, len(ports))
        routing = Routing(1)
        outputs = tuple(() for _ in given.installed.outputs)
        # What was late has been counted and put aside before.
        silent = replace(given.installed, slot=0, ports=self._channels, outputs=outputs, late={}, is_beside=True)
        routing.install([silent])
        self._stepper = Stepper(job.target, routing, given.runner, given.most_rows, given.idle_timeout_ms)
        self._lock = lock("state replay")
        self._ended = threading.Event()

    @property
    def progress(self) -> float:
        return 1.0 if self.done else self._taken / max(1, len(self._batches))

    def start(self) -> None:
        """Sends the tuples on their way; whatever state is at the target gives way to what they build."""
        if self._state is not MoveState.WAITING:
            raise InputError(f"transfer {self._job.transfer!r} has started already; make another one to move again")
        given, into = self._given, self._job.into
        schemas = {b.port: b.table.schema for b in given.buffers}
        if missing := [p for p in range(len(self._channels)) if p not in schemas]:
            raise InputError(
                f"transfer {self._job.transfer!r}: port {missing[0]} has no buffer; give an empty one for it"
            )
        self._started_ms, self._state = self._clock_ms(), MoveState.MOVING
        self._batches = list(self._scheduled())
        self._is_clean = False
        self._remove_channels()
        specs = (ChannelSpec(c, schemas[p], None, into) for p, c in enumerate(self._channels))
        self._job.target.commit(
            Commit(
                retire=tuple({into, self._built}),
                add=tuple(specs),
                state_copies=() if given.base is None else (StateCopy(given.base, self._built),),
                records=() if given.floor is None else (FloorRecord(self._built, given.floor),),
            )
        )
        if self._background:
            threading.Thread(target=self._run, name=f"replay {self._job.transfer}", daemon=True).start()

    def _scheduled(self) -> Iterator[_Batch]:
        """Batches with the time when they have arrived: the base first, then the tuples in their order."""
        given, routes = self._given, dict[tuple[Hop, ...], Timetable]()

        def arrival_ms(hops: Sequence[Hop], size: int) -> float:
            route = tuple(hops)
            return routes.setdefault(route, Timetable(route, self._started_ms)).arrival_ms(size)

        latest = self._started_ms
        if given.base is not None:
            self._base_bytes = self._job.target.state.size(given.base).bytes
            latest = arrival_ms(self._job.hops, self._base_bytes)
        for buffers, fires in self._grouped():
            own = (self._job.hops if b.hops is None else b.hops for b in buffers)
            latest = max(latest, *(arrival_ms(h, b.table.nbytes) for h, b in zip(own, buffers, strict=True)))
            yield _Batch(latest, buffers, fires)
        if given.reached:
            yield _Batch(latest, (), fires=True, is_last=True)

    def poll(self) -> float | None:
        with self._lock:
            try:
                return self._poll()
            except Exception as problem:  # nobody else would hear of it: the change is aborted then
                _log.exception("transfer %r could not be replayed", self._job.transfer)
                self.error = str(problem)
                self._end(MoveState.FAILED)
            return None

    def _poll(self) -> float | None:
        while self._state is MoveState.MOVING:
            if self._taken == len(self._batches):
                self._hand_over()
                self._end(MoveState.DONE)
                break
            batch = self._batches[self._taken]
            wait_ms = batch.arrival_ms - self._clock_ms()
            if wait_ms > 0:
                return wait_ms
            self._replay(batch)
        return None

    def cancel(self) -> bool:
        with self._lock:
            if self.done:
                return False
            if not self._state.ended:
                keys = self._job.target.state.operators(self._job.into)
                cancel_transfer(self._job.target, self._job.into, self._job.transfer, keys)
                self._end(MoveState.CANCELLED)
            self._clean()
            return True

    def wait(self, timeout_s: float | None = None) -> bool:
        self._ended.wait(timeout_s)
        return self.done

    def _grouped(self) -> Iterator[tuple[list[Buffer], bool]]:
        """Buffers that run as one step: all up to the next one that lets windows fire, or that fill a step."""
        group: list[Buffer] = []
        rows, owed = 0, 0.0
        for buffer in self._given.buffers:
            group.append(buffer)
            rows += len(buffer.table)
            owed += self._given.triggering.value
            fires = owed >= 1
            if fires or rows >= self._stepper.reader.most_rows:
                yield group, fires
                group, rows, owed = [], 0, owed % 1
        if group:
            yield group, False

    def _replay(self, batch: _Batch) -> None:
        target, buffers = self._job.target, batch.buffers
        ports = range(len(self._channels))
        appends = [self._reached(p) if batch.is_last else self._append(p, buffers, batch.fires) for p in ports]
        target.commit(Commit(appends=tuple(a for a in appends if a is not None)))
        while self._has_work():
            self.steps += 1
            self._stepper.step(0, self.steps, transfer_writer(self._job.into, f"{self._job.transfer} replay"))
            if self._stepper.routing.paused:
                self.error = "; ".join(self._stepper.routing.paused.values())
                return self._end(MoveState.FAILED)
        self._taken += 1
        self.bytes += sum(b.table.nbytes for b in buffers)
        self.tuples += sum(len(b.table) for b in buffers)
        return None

    def _has_work(self) -> bool:
        starts, ends = self._job.target.exchange.bounds(self._channels)
        return bool((starts != ends).any())

    def _append(self, port: int, buffers: Sequence[Buffer], fires: bool) -> ChannelAppend | None:
        tables = [b.table for b in buffers if b.port == port and len(b.table)]
        if not tables:
            return None
        table = pa.concat_tables(tables)
        reached = pc.max(table.column(WM)).as_py() if fires else BEGIN
        return ChannelAppend.one(self._channels[port], table, None if reached == BEGIN else reached)

    def _reached(self, port: int) -> ChannelAppend | None:
        watermark = self._given.reached[port]
        return None if watermark == NO_WATERMARK else ChannelAppend.one(self._channels[port], None, watermark)

    def _hand_over(self) -> None:
        """Puts the state that was built where the job wants it, in one commit."""
        self.bytes += self._base_bytes
        if self._built == self._job.into:
            return
        target, keys = self._job.target, self._job.keys
        if keys is None:
            keys = {key: key for key in target.state.operators(self._built)}
        renames = (StateRename(self._built, old, self._job.into, new) for old, new in keys.items())
        target.commit(Commit(state_renames=tuple(renames)))

    def _end(self, state: MoveState) -> None:
        self._state, self._ended_ms = state, self._clock_ms()
        try:
            self._clean()
        except JournalError as problem:  # whoever aborts the change tries again
            _log.warning("transfer %r left its channels for now: %s", self._job.transfer, problem)
        self._ended.set()

    def _clean(self) -> None:
        """Removes what only the replay itself needed."""
        if not self._is_clean:
            retire = () if self._built == self._job.into else (self._built,)
            remove_scratch(self._job.target, self._channels, retire)
            self._is_clean = True

    def _remove_channels(self) -> None:
        """Those that an attempt before a crash left."""
        remove_scratch(self._job.target, self._channels)

    def _run(self) -> None:
        while (wait_ms := self.poll()) is not None:
            self._ended.wait(wait_ms / 1000)


def scratch_channels(into: FragmentId, ports: int) -> tuple[ChannelId, ...]:
    """The channels by which tuples are replayed for a fragment number."""
    return tuple(ChannelId(_SCRATCH + _MOST_PORTS * into + p) for p in range(ports))


def remove_scratch(store: Store, channels: Sequence[ChannelId], built: Sequence[FragmentId] = ()) -> None:
    """Removes what a replay used to build state: its channels, the state under numbers of its own, their floors."""
    known = store.views.channels.by_id
    remove = tuple(RemoveChannel(c, discard=True) for c in channels if c in known)
    if remove or built:
        store.commit(Commit(remove=remove, retire=tuple(built), records=tuple(forget_all(FloorRecord, built))))


def begin(job: Job, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True) -> StateReplay:
    if not isinstance(job.replay, ReplayInput):
        raise InputError(f"transfer {job.transfer!r} is to be replayed; give the tuples that upstream has kept")
    return StateReplay(job, job.replay, clock_ms=clock_ms, background=background)


REPLAY = StateStrategy("replay", "build the state anew from tuples that upstream has kept", begin, needs_input=True)
