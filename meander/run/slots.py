"""The slots of a host, kept running: steps, wake-ups, and starts after failures.

Each slot is a streaming query that makes steps for as long as work comes. A thread wakes the ones that have work, and
starts those again that ended, later and later. Whatever changes what a slot runs does so between two of its steps.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.errors import OutsideError
from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.run.java_errors import said
from meander.run.session import has_ended
from meander.run.slot import OnBatch, Slot
from meander.run.step.step import Stepper
from meander.run.step.work import StepReport
from meander.run.store.journal import JournalError
from meander.run.store.wakeups import APPENDED, OTHER

_log = logging.getLogger(__name__)
SWITCH_S = 0.0005
"""After so long a thread that computes lets others have the interpreter; 5 ms by default, and a step gives it away, to
Spark or to a file, a hundred times: beside a thread that places operators it would wait that long each time."""
RETRY_S = 0.5
POLL_S = 0.05
IDLE_S = 0.1
"""The time after which a slot without work looks whether there is some that nothing has told it of."""
SLOTS_START_S = 300.0
"""The time that slots may take to start before the host gives up."""
LET_THROUGH_S = 0.05
NEW_WORK = APPENDED | OTHER
"""The changes that may give a slot something to do."""
LONGEST_PAUSE_S, MOST_DOUBLINGS = 30.0, 6
"""The longest pause before a slot that failed again and again is started once more."""
STEPS_PER_BATCH = 1_000_000
"""Steps in one micro-batch at most; a step's number is its batch's id times this, plus its place in the batch."""


@dataclass(slots=True)
class StepTotals:
    """Steps added up."""

    steps: int = 0
    tuples_in: int = 0
    tuples_out: int = 0
    late: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def add(self, report: StepReport) -> None:
        self.steps += 1
        self.tuples_in += report.tuples_in
        self.tuples_out += report.tuples_out
        self.late += report.late
        self.rounds += report.rounds
        self.seconds += report.seconds


class Slots:
    """All slots of a host."""

    def __init__(
        self,
        directory: Path,
        count: int,
        stepper: Stepper,
        spark: Callable[[], SparkSession],
        linger_ms: int,
        housekeeping: Callable[[], None],
        label: str = "",
    ) -> None:
        """`spark` gives the session to run on; `housekeeping` is done now and then between wake-ups."""
        self.stepper, self.store, self.routing = stepper, stepper.store, stepper.routing
        self.all = tuple(Slot(n, directory / "slots", label) for n in range(count))
        self.totals = StepTotals()
        self.waits_for_disk: str | None = None
        """The reason why a step cannot be committed now, if it cannot."""
        self.ended: str | None = None
        """The reason why nothing here can go on before the process is started again, if so."""
        self._spark, self._linger_ms, self._housekeeping = spark, linger_ms, housekeeping
        self._stopping = threading.Event()
        self._waker = threading.Thread(target=self._wake_slots, name="waker", daemon=True)
        self._counting = lock("host totals")

    def start(self) -> None:
        """Starts the streaming queries; those that do not start are tried again."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
        for slot in self.all:
            try:
                slot.start(self._spark(), self._batch_of(slot))
            except (PySparkException, Py4JError) as error:
                _log.warning("slot %d did not start and is tried again: %s", slot.number, error)
                slot.trouble = said(error)
        self._waker.start()

    def stop_waking(self) -> None:
        """Ends the wake-ups, and with them starts after failures."""
        self._stopping.set()
        if self._waker.is_alive():
            self._waker.join()

    def stop(self) -> None:
        """Stops the streaming queries."""
        for slot in self.all:
            slot.stop()

    def problems(self) -> list[str]:
        """Slots that ended, or that were started again and do nothing."""
        ended = [
            f"slot {s.number} ended: {s.failure or s.trouble or 'stopped'}"
            for s in self.all
            if (s.query or s.trouble) and not s.is_alive
        ]
        return ended + [
            f"slot {s.number} was started {s.revivals} times and did nothing since: {s.trouble}"
            for s in self.all
            if s.is_alive and s.revivals > 1
        ]

    @property
    def are_idle(self) -> bool:
        """Whether no slot is in a step or has work for one."""
        return not any(self.stepper.has_work(s.number) or s.step_lock.locked() for s in self.all)

    def wait_until_running(self, timeout_s: float = SLOTS_START_S) -> None:
        """Waits until every slot has done a first batch, however long a busy machine takes for that.

        Raises OutsideError when a slot does not get there: without it nothing would come out.
        """
        deadline = time.monotonic() + timeout_s
        for slot in self.all:
            slot.wake()
        while waiting := [slot for slot in self.all if not slot.has_run]:
            if time.monotonic() >= deadline or self.ended is not None:
                slot = waiting[0]
                reason = self.ended or slot.failure or slot.trouble or "Spark is still starting it"
                raise OutsideError(
                    f"slot {slot.number} did not begin to run within {timeout_s:g} s: {reason}; see that this machine "
                    "has cores and memory to spare, and try again"
                )
            time.sleep(POLL_S)

    def wake(self, slots: Iterable[int] | None = None) -> None:
        """Asks slots (all of them by default) for a step."""
        for number in range(len(self.all)) if slots is None else slots:
            if not self.all[number].is_busy and self.stepper.has_work(number):
                self.all[number].wake()
        self.store.wake_readers()

    @contextmanager
    def between_steps(self, fragments: Iterable[FragmentId]) -> Iterator[tuple[int, ...]]:
        """Inside, the slots of these fragments (given) are between two steps, and the fragments stay bound to them."""
        wanted = tuple(fragments)
        while True:
            slots = self.routing.slots_of(wanted)
            with ExitStack() as stack:
                for slot in slots:
                    stack.enter_context(self.all[slot].step_lock)
                if set(self.routing.slots_of(wanted)) <= set(slots):  # no fragment moved while this waited
                    yield slots
                    return

    # ---------------------------------------------------------------- steps

    def _batch_of(self, slot: Slot) -> OnBatch:
        """One micro-batch of a slot: steps, one after the other, whenever there is work, until its time is over.

        The next one follows at once, so that a slot is in a micro-batch also while it has nothing to do: otherwise
        Spark looks for one a hundred times a second, and takes as long as many steps to begin it.
        """

        def batch(batch_id: int) -> None:
            deadline = time.monotonic() + self._linger_ms / 1000
            before = batch_id * STEPS_PER_BATCH
            done = self.store.last_batch(slot.writer)  # after a crash, by this batch or those before it
            for number in range(before if done is None else max(before, done + 1), before + STEPS_PER_BATCH):
                with slot.step_lock:
                    report = self._step(slot, number)
                if report is not None:
                    slot.did_well()
                    with self._counting:
                        self.totals.add(report)
                    if report.drained:
                        self._let_through()
                if not self._work_before(slot, deadline):
                    break
            if not self._stopping.is_set():
                slot.wake()

        return batch

    def _let_through(self) -> None:
        """A change whose fragments have all stopped takes effect in a moment: the next step had better come after it.

        Otherwise the change waits for that step to end, and those fragments for another one.
        """
        deadline = time.monotonic() + LET_THROUGH_S
        while self.routing.is_about_to_change and not self._stopping.is_set():
            seen, left = self.store.changes, deadline - time.monotonic()
            if left <= 0:
                return
            self.store.wait(seen, min(left, 0.01))

    def _work_before(self, slot: Slot, deadline: float) -> bool:
        """Waits for work until the deadline; says whether there is some."""
        while not self._stopping.is_set():
            seen = self.store.wakeups.count(NEW_WORK)
            if time.monotonic() >= deadline:
                return False
            if self.stepper.has_work(slot.number):
                return True
            pause_s = min(self._pause_s(), max(0.0, deadline - time.monotonic()))
            self.store.wakeups.wait(seen, pause_s, NEW_WORK)
        return False

    def _pause_s(self) -> float:
        """The pause when there is nothing to read yet: until the emulated latency releases a record."""
        ready = self.store.exchange.next_ready_ms()
        return IDLE_S if ready is None else min(IDLE_S, max(0.001, (ready - self.store.now_ms()) / 1000))

    def _step(self, slot: Slot, batch_id: int) -> StepReport | None:
        """A step, tried again while the disk is full: the streaming query must not end because of that."""
        while not self._stopping.is_set():
            try:
                report = self.stepper.step(slot.number, batch_id, slot.writer)
            except JournalError as error:
                self.waits_for_disk = f"slot {slot.number} waits: {error}"
                _log.warning(self.waits_for_disk)
                self._stopping.wait(RETRY_S)
            else:
                self.waits_for_disk = None
                return report
        return None

    def _revive(self, slot: Slot) -> None:
        """Starts a slot again. On a busy machine even that may fail; the next try comes later, and later again.

        While the disk is full it is not tried at all: however long that takes, the slot goes on when there is room.
        """
        now = time.monotonic()
        if now < slot.again_at:
            return
        if not slot.has_room():
            if self.waits_for_disk is None:
                self.waits_for_disk = f"slot {slot.number} waits: no room for a checkpoint in {slot.directory}"
                _log.warning(self.waits_for_disk)
            slot.again_at = now + RETRY_S
            return
        self.waits_for_disk = None
        _log.warning("slot %d starts over: %s", slot.number, slot.failure)
        slot.trouble = slot.failure or slot.trouble
        slot.again_at = now + min(LONGEST_PAUSE_S, RETRY_S * 2 ** min(slot.revivals, MOST_DOUBLINGS))
        try:
            slot.revive(self._spark(), self._batch_of(slot))
        except (PySparkException, Py4JError, OSError) as error:
            _log.warning("slot %d did not start: %s", slot.number, error)

    def _wake_slots(self) -> None:
        """Wakes each slot whose fragments have something to read, until the host stops or cannot go on."""
        while not self._stopping.is_set() and self.ended is None:
            seen, failed = self.store.wakeups.count(NEW_WORK), False
            for slot in self.all:
                try:
                    self._tend(slot)
                except Exception:  # must not keep other slots from going on
                    failed = True
                    self.ended = self._end()
                    if self.ended is not None:
                        return
                    _log.exception("waking slot %d failed; it is tried again", slot.number)
            try:
                self._housekeeping()
                self.ended = self.store.syncer.broken
                if failed or all(slot.is_busy for slot in self.all):  # they see new work by themselves
                    self._stopping.wait(RETRY_S if failed else IDLE_S)
                else:
                    self.store.wakeups.wait(seen, self._pause_s(), NEW_WORK)
            except Exception:  # this thread must not end while anything else goes on
                _log.exception("waiting for work failed; it is tried again")
                self._stopping.wait(RETRY_S)

    def _tend(self, slot: Slot) -> None:
        """Starts a slot again that has ended; wakes one that has something to do."""
        if not slot.is_alive:
            self._revive(slot)
        if not slot.is_busy and self.stepper.has_work(slot.number):
            slot.wake()

    def _end(self) -> str | None:
        """Records the reason why nothing can go on before this process is started again."""
        if has_ended(self._spark()):
            return "Java, on which Spark runs, has ended"
        return self.store.syncer.broken
