"""Pre-copies: the bulk of a state is sent to its next place while its operator still runs where it is.

The first round sends everything, each later one what changed since the one before. When little is left, or rounds do
not get smaller any more, it is ready: the fragment may stop, and what is left is the difference to the last round. A
pre-copy is only ever an advantage: whatever goes wrong with it, the state moves as a whole after the marker.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from meander.model.ids import FragmentId
from meander.model.locks import reentrant_lock
from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.in_process import Migration
from meander.reconfigure.state.job import Job, StateMove
from meander.reconfigure.state.manifest import Manifest, missing_bytes
from meander.run.store.commit import Commit
from meander.run.store.store import Store

AHEAD = 1 << 43
"""State that is sent ahead waits under a fragment number from here on."""
SMALL_BYTES = 64_000
"""So little is sent after the marker: another round would take longer than that."""
MOST_ROUNDS = 6
SHRINKS = 0.5
"""A round that is not smaller than this share of the one before is the last one."""
WATCH_MS = 10.0


class PrecopyRounds(Protocol):
    """The way of one state to its next place."""

    most_bytes: float
    """More is not sent in all, for a change that is only expected."""

    def begin(self, *, is_first: bool, sent: int) -> StateMove | None:
        """The next round, not started; None if too little is missing, or too much beside what was sent."""

    def ended(self, move: StateMove) -> Manifest | None:
        """The manifest of the place after a round that is done; None if nothing was sent."""


class Precopy:
    """One operator's state on its way ahead. `advance` does what is due; a thread may do that."""

    def __init__(
        self,
        into: FragmentId,
        store: Store,
        rounds: PrecopyRounds,
        clock_ms: Callable[[], float],
        *,
        background: bool,
        refresh_ms: float | None = None,
    ) -> None:
        """`refresh_ms` is how often it is looked at again after it is ready, for one whose change has not begun."""
        self.into, self.bytes, self.rounds = into, 0, 0
        self.ready = False
        """Whether nothing is gained by waiting longer."""
        self.error: str | None = None
        self.refresh_ms = refresh_ms
        self._store, self._rounds, self._clock_ms = store, rounds, clock_ms
        self._manifest: Manifest | None = None
        self._move: StateMove | None = None
        self._is_over = False
        self._due_ms = clock_ms()
        self._last, self._left = math.inf, MOST_ROUNDS
        self._lock, self._wake = reentrant_lock("pre-copy"), threading.Event()
        self._background = background
        self._thread: threading.Thread | None = None
        self._go()

    def _go(self) -> None:
        if not self._background:
            self.advance()
        elif self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=f"pre-copy {self.into - AHEAD}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (wait_ms := self.advance()) is not None:
            self._wake.wait(wait_ms / 1000)
            self._wake.clear()

    def poll(self) -> bool:
        """Whether it is ready; without a thread of its own it goes on here."""
        if not self._background:
            self.advance()
        return self.ready

    def advance(self) -> float | None:
        """Does what is due; says in how many ms there is more to do, None after the end."""
        with self._lock:
            while not self._is_over:
                if self._move is None:
                    if self.ready and self.refresh_ms is None:
                        return None
                    wait_ms = self._due_ms - self._clock_ms()
                    if wait_ms > 0:
                        return wait_ms
                    if not self._begin():
                        continue
                assert self._move is not None
                wait = self._move.poll()
                if not self._move.state.ended:
                    return WATCH_MS if wait is None else min(wait, WATCH_MS)
                self._end(self._move)
            return None

    def hurry(self) -> None:
        """Its change has begun: what is missing by now is sent now."""
        with self._lock:
            if self._is_over:
                return
            self.refresh_ms, self.ready, self._due_ms = None, False, self._clock_ms()
            self._last, self._left = math.inf, MOST_ROUNDS
        self._wake.set()
        self._go()

    def take(self) -> Manifest | None:
        """Ends it; says what is there, None if that is not a whole."""
        with self._lock:
            self._is_over = True
            if self._move is not None:
                self._move.cancel()
                self._manifest = None
        self._wake.set()
        return self._manifest

    def drop(self) -> None:
        """Ends it, and gives back the room of what has arrived."""
        self.take()
        self._store.commit(Commit(retire=(self.into,)))

    def _begin(self) -> bool:
        try:
            move = self._rounds.begin(is_first=self._manifest is None, sent=self.bytes)
            if move is not None:
                move.start()
                self._move = move
            else:
                self._rest()
            return move is not None
        except Exception as error:  # it is an advantage, not a need
            self.error, self._is_over, self.ready = str(error), True, True
            return False

    def _rest(self) -> None:
        """Nothing to send now: another look later, if its change has not begun."""
        self.ready, self._last, self._left = True, math.inf, MOST_ROUNDS
        self._due_ms = self._clock_ms() + (self.refresh_ms or 0.0)

    def _end(self, move: StateMove) -> None:
        self._move = None
        if not move.done:
            self.error, self._manifest, self._is_over, self.ready = move.error or "it did not arrive", None, True, True
            return
        self._manifest = self._rounds.ended(move) or self._manifest
        self.rounds, self._left = self.rounds + 1, self._left - 1
        self.bytes += move.bytes
        if move.bytes < SMALL_BYTES or move.bytes > SHRINKS * self._last or not self._left:
            self._rest()
        else:
            self._last = move.bytes


@dataclass(eq=False)
class LocalRounds:
    """Implements `PrecopyRounds` between two nodes of one host."""

    store: Store
    fragment: FragmentId
    keys: Sequence[int]
    """The numbers of the operator's state tables at the source, in their order."""
    into: FragmentId
    hops: Callable[[], Sequence[Hop] | None]
    clock_ms: Callable[[], float]
    least_bytes: float
    """A smaller state is not worth a round."""
    most_bytes: float = math.inf
    """A larger one is not wanted."""
    _manifest: Manifest | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)

    def begin(self, *, is_first: bool, sent: int) -> Migration | None:
        missing = missing_bytes(self.store, self.fragment, self.keys, self._manifest)
        hops = self.hops()
        least = self.least_bytes if is_first else min(SMALL_BYTES, self.least_bytes)
        if hops is None or not least <= missing <= self.most_bytes - sent:
            return None
        self._number += 1
        to = {key: place for place, key in enumerate(sorted(self.keys))}
        name = f"ahead {self._number}"
        job = Job(self.store, self.fragment, self.store, self.into, name, to, hops, after=self._manifest)
        return Migration(job, clock_ms=self.clock_ms, background=False)

    def ended(self, move: StateMove) -> Manifest | None:
        assert isinstance(move, Migration)
        self._manifest = move.manifest
        return self._manifest
