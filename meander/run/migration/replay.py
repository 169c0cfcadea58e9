"""State is built anew: upstream sends the tuples of the open windows again, and the operators' own steps take them.

Nothing has to be read at the old place, so it works when that is gone. It costs the work of all those tuples: how much
depends on where one can begin to read, and on how many buffers of tuples make windows fire again (best none, average
half of them, worst all). Results are not sent on, as they were before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.commit import Commit, RemoveChannel, transfer_writer
from meander.run.exchange.base import ChannelAppend, ChannelSpec
from meander.run.frames import BEGIN, WM
from meander.run.migration.hops import Timetable
from meander.run.migration.in_process import monotonic_ms
from meander.run.migration.job import Job, MoveState
from meander.run.migration.strategy import StateStrategy
from meander.run.routing import Installed, Routing
from meander.run.runner import Runner
from meander.run.step import MOST_ROWS, Stepper
from meander.run.transfer import cancel_transfer

_SCRATCH = 1 << 40
"""Channels for tuples that are replayed are numbered from here on: the fragment's own ones wait untouched."""


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


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """The fragment as it will run at its new place, and what upstream has kept for it."""

    installed: Installed
    buffers: Sequence[Buffer]
    runner: Runner
    triggering: Triggering = Triggering.BEST
    most_rows: int = MOST_ROWS
    """Tuples in a step at most, while no window fires."""


class Replay:
    """Implements `StateMove` with tuples. A poll runs the steps of the buffers that have arrived."""

    def __init__(
        self, job: Job, given: ReplayInput, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True
    ) -> None:
        self.bytes = self.tuples = self.steps = 0
        self.error: str | None = None
        self._job, self._given, self._clock_ms, self._background = job, given, clock_ms, background
        self._state = MoveState.WAITING
        self._started_ms = self._ended_ms = 0.0
        self._batches: list[tuple[float, list[Buffer], bool]] = []
        self._taken = 0
        ports = given.installed.ports
        self._channels = tuple(ChannelId(_SCRATCH + 64 * job.into + p) for p in range(len(ports)))
        routing = Routing(1)
        outputs = tuple(() for _ in given.installed.outputs)
        routing.install([replace(given.installed, slot=0, ports=self._channels, outputs=outputs)])
        self._stepper = Stepper(job.target, routing, given.runner, given.most_rows)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def state(self) -> MoveState:
        return self._state

    @property
    def done(self) -> bool:
        return self._state is MoveState.DONE

    @property
    def progress(self) -> float:
        return 1.0 if self.done else self._taken / max(1, len(self._batches))

    @property
    def seconds(self) -> float:
        if self._state is MoveState.WAITING:
            return 0.0
        return ((self._ended_ms if self._state.ended else self._clock_ms()) - self._started_ms) / 1000

    def start(self) -> None:
        """Sends the tuples on their way; whatever state is at the target gives way to what they build."""
        if self._state is not MoveState.WAITING:
            raise InputError(f"transfer {self._job.transfer!r} has started already; make another one to move again")
        self._started_ms, self._state = self._clock_ms(), MoveState.MOVING
        timetable = Timetable(self._job.hops, self._started_ms)
        for buffers, fires in self._grouped():
            arrival = max((timetable.arrival_ms(b.table.nbytes) for b in buffers), default=self._started_ms)
            self._batches.append((arrival, buffers, fires))
        schemas = {b.port: b.table.schema for b in self._given.buffers}
        if missing := [p for p in range(len(self._channels)) if p not in schemas]:
            raise InputError(
                f"transfer {self._job.transfer!r}: port {missing[0]} has no buffer; give an empty one for it"
            )
        self._remove_channels()
        specs = (ChannelSpec(c, schemas[p], None, self._job.into) for p, c in enumerate(self._channels))
        self._job.target.commit(Commit(retire=(self._job.into,), add=tuple(specs)))
        if self._background:
            threading.Thread(target=self._run, name=f"replay {self._job.transfer}", daemon=True).start()

    def poll(self) -> float | None:
        with self._lock:
            while self._state is MoveState.MOVING:
                if self._taken == len(self._batches):
                    self._end(MoveState.DONE)
                    break
                arrival_ms, buffers, fires = self._batches[self._taken]
                wait_ms = arrival_ms - self._clock_ms()
                if wait_ms > 0:
                    return wait_ms
                self._replay(buffers, fires)
            return None

    def cancel(self) -> bool:
        with self._lock:
            if self.done:
                return False
            if not self._state.ended:
                keys = self._job.target.state.operators(self._job.into)
                cancel_transfer(self._job.target, self._job.into, self._job.transfer, keys)
                self._end(MoveState.CANCELLED)
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
            if fires or rows >= self._stepper.most_rows:
                yield group, fires
                group, rows, owed = [], 0, owed % 1
        if group:
            yield group, False

    def _replay(self, buffers: Sequence[Buffer], fires: bool) -> None:
        target = self._job.target
        appends = [self._append(port, buffers, fires) for port in range(len(self._channels))]
        target.commit(Commit(appends=tuple(a for a in appends if a is not None)))
        while True:
            starts, ends = target.exchange.bounds(self._channels)
            if (starts == ends).all():
                break
            self.steps += 1
            self._stepper.step(0, self.steps, transfer_writer(self._job.into, f"{self._job.transfer} replay"))
            if self._stepper.routing.paused:
                self.error = "; ".join(self._stepper.routing.paused.values())
                return self._end(MoveState.FAILED)
        self._taken += 1
        self.bytes += sum(b.table.nbytes for b in buffers)
        self.tuples += sum(len(b.table) for b in buffers)
        return None

    def _append(self, port: int, buffers: Sequence[Buffer], fires: bool) -> ChannelAppend | None:
        tables = [b.table for b in buffers if b.port == port and len(b.table)]
        if not tables:
            return None
        table = pa.concat_tables(tables)
        reached = pc.max(table.column(WM)).as_py() if fires else BEGIN
        return ChannelAppend.one(self._channels[port], table, None if reached == BEGIN else reached)

    def _end(self, state: MoveState) -> None:
        self._remove_channels()
        self._state, self._ended_ms = state, self._clock_ms()
        self._ended.set()

    def _remove_channels(self) -> None:
        """Also those that an attempt before a crash left."""
        known = self._job.target.views.channels.by_id
        removed = tuple(RemoveChannel(c, discard=True) for c in self._channels if c in known)
        if removed:
            self._job.target.commit(Commit(remove=removed))

    def _run(self) -> None:
        while (wait_ms := self.poll()) is not None:
            self._ended.wait(wait_ms / 1000)


def begin(job: Job, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True) -> Replay:
    if not isinstance(job.replay, ReplayInput):
        raise InputError(f"transfer {job.transfer!r} is to be replayed; give the tuples that upstream has kept")
    return Replay(job, job.replay, clock_ms=clock_ms, background=background)


REPLAY = StateStrategy("replay", "build the state anew from tuples that upstream has kept", begin)
