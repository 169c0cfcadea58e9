"""The site host: one PySpark application that runs the fragments of one or many nodes.

It owns the store, the slots, the routing table, ingest and delivery. Installing, removing or rebinding fragments
changes the routing table and the channels; the streaming queries of the slots run on. A fragment whose data breaks
its expressions is paused with the reason, while all others go on; one that failed through no fault of its data is tried
again.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError, OutsideError
from meander.model.ids import ChannelId, FragmentId
from meander.model.streams import Stream
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, SinkConnector, SourceConnector, Surroundings
from meander.run.delivery.delivery import Delivery, DeliveryMetrics
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Runner
from meander.run.execution.stage_use import StageUse
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.bindings import Bindings
from meander.run.fragments.routing import Installed, Routing
from meander.run.fragments.template import Stage
from meander.run.frames import END
from meander.run.ingest.ingest import Ingest, IngestMetrics, IngestOptions
from meander.run.installation import Installation
from meander.run.java_errors import said
from meander.run.rebinding.options import RebindingOptions
from meander.run.rebinding.rebinder import Rebinder
from meander.run.session import has_ended, limits_of, own_session
from meander.run.slot import OnBatch, Slot
from meander.run.step.compaction import Compaction, CompactionMetrics, CompactionOptions
from meander.run.step.step import MOST_ROWS, Stepper
from meander.run.step.work import StepReport
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.store import Store, StoreOptions, StoreStats

_log = logging.getLogger(__name__)
SWITCH_S = 0.0005
"""After so long a thread that computes lets others have the interpreter; 5 ms by default, and a step gives it away, to
Spark or to a file, a hundred times: beside a thread that places operators it would wait that long each time."""
RETRY_S = 0.5
IDLE_S = POLL_S = 0.05
SLOTS_START_S = 300.0
"""The time that slots may take to start before the host gives up."""
LET_THROUGH_S = 0.05
LONGEST_PAUSE_S, MOST_DOUBLINGS = 30.0, 6
"""The longest pause before a slot that failed again and again is started once more."""
EVICT_S = 60.0
"""The interval at which unused plans are dropped."""
FEW_TUPLES = 1_000
"""Fragments for which no more tuples wait have caught up."""
STEPS_PER_BATCH = 1000
"""Steps in one micro-batch at most; a step's number is its batch's id times this, plus its place in the batch."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of a host: its directory, its slots and its timing."""

    directory: Path
    slots: int = 1
    linger_ms: int = 5_000
    """The time for which a micro-batch stays open for more work: Spark's own work around one costs more than a step."""
    store: StoreOptions = field(default_factory=StoreOptions)
    ingest: IngestOptions = field(default_factory=IngestOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    most_rows: int = MOST_ROWS
    """Tuples that a step reads at most."""
    rebinding: RebindingOptions | None = None
    """The policy by which fragments change slots by themselves; None when they do not."""
    idle_timeout_ms: int | None = None
    """The time for which event time waits for an input that is cut off; None for as long as that takes."""


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


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The state of the host."""

    healthy: bool
    """Whether there are no problems."""
    problems: tuple[str, ...]
    """Paused fragments, full disks and ended threads, each with the reason; all else goes on."""
    alive: bool
    """Whether all slots run."""
    slots: tuple[str, ...]
    """The ids of the streaming queries: they stay the same while fragments come and go."""
    fragments: int
    paused: Mapping[FragmentId, str]
    totals: StepTotals
    pending_tuples: int
    state_bytes: int
    store: StoreStats
    compaction: CompactionMetrics
    rebindings: int
    """Fragments that were given to another slot, because of the load."""
    ingest: IngestMetrics | None
    delivery: DeliveryMetrics | None
    halted: str | None = None
    """The reason why nothing runs here, if nothing does."""
    limits: tuple[str, ...] = ()
    """Settings that Spark was started with by the user and that Meander would set otherwise, with the costs."""
    behind: tuple[FragmentId, ...] = ()
    """Fragments for which more than a few tuples wait."""
    stages: StageUse | None = None
    """The use of Spark by the stages of its fragments; None where a user's runner runs them."""


class Host:
    """Start it, install fragments, feed it, stop it."""

    def __init__(
        self,
        options: HostOptions,
        spark: SparkSession,
        runner: Runner | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.options, self._given_spark = options, spark
        self.store = Store.open(options.directory / "store", options.store, clock=clock)
        self.routing = Routing(options.slots)
        self._own_runner: TieredRunner | None = None
        if runner is None:
            runner = self._own_runner = TieredRunner(PreparedRunner(self.spark))
        self.stepper = Stepper(self.store, self.routing, runner, options.most_rows, options.idle_timeout_ms)
        self.compaction = Compaction(self.store, self.routing, self.stepper.runner, options.compaction)
        self.slots = tuple(Slot(n, options.directory / "slots") for n in range(options.slots))
        self.rebinder: Rebinder | None = None
        if options.rebinding is not None:
            step_locks = [slot.step_lock for slot in self.slots]
            self.rebinder = Rebinder(options.rebinding, self.store, self.routing, step_locks)
            self.stepper.requests, self.stepper.measures = self.rebinder.requests, self.rebinder.measures
        self.bindings = Bindings(self.store, self.routing)
        self.bindings.is_kept &= self.rebinder is None or not self.rebinder.policy.pulls
        self.stepper.bindings = self.bindings
        self.totals = StepTotals()
        self.ingest: Ingest | None = None
        self.delivery: Delivery | None = None
        self.troubles: list[Callable[[], Iterable[str]]] = []
        """Other sources of problems."""
        self.waits_for_disk: str | None = None
        """The reason why a step cannot be committed now, if it cannot."""
        self.ended: str | None = None
        """The reason why nothing here can go on before the process is started again, if so."""
        self._ingest_channels: Mapping[tuple[str, str], tuple[ChannelId, ...]] = {}
        self._stopping = threading.Event()
        self._waker = threading.Thread(target=self._wake_slots, name="waker", daemon=True)
        self._counting = threading.Lock()
        self._stages: tuple[int, tuple[Stage, ...]] = (-1, ())
        """The stages of all fragments, each once, and the version of the routing table that they are of."""
        self._evict_at = time.monotonic() + EVICT_S

    @cached_property
    def spark(self) -> SparkSession:
        """Meander's own session; Spark is started only when something runs on it."""
        return own_session(self._given_spark)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Starts the slots' streaming queries; from now on work is done as it arrives."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
        for slot in self.slots:
            try:
                slot.start(self.spark, self._batch_of(slot))
            except (PySparkException, Py4JError) as error:
                _log.warning("slot %d did not start and is tried again: %s", slot.number, error)
                slot.trouble = said(error)
        self._waker.start()
        self.compaction.start()
        if self.rebinder is not None:
            self.rebinder.start()

    def wait_for_slots(self, timeout_s: float = SLOTS_START_S) -> None:
        """Waits until every slot has done a first batch, however long a busy machine takes for that.

        Raises OutsideError when a slot does not get there: without it nothing would come out.
        """
        deadline = time.monotonic() + timeout_s
        for slot in self.slots:
            slot.wake()
        while waiting := [slot for slot in self.slots if not slot.has_run]:
            if time.monotonic() >= deadline or self.ended is not None:
                slot = waiting[0]
                reason = self.ended or slot.failure or slot.trouble or "Spark is still starting it"
                raise OutsideError(
                    f"slot {slot.number} did not begin to run within {timeout_s:g} s: {reason}; see that this machine "
                    "has cores and memory to spare, and try again"
                )
            time.sleep(POLL_S)

    def install(self, installation: Installation) -> None:
        """Opens the channels and begins to run the fragments, while everything else runs on.

        A fragment that ran here before is in the slot again that it had when the host ended.
        """
        known = set(self.store.exchange.channels())
        fresh = tuple(spec for spec in installation.channels if spec.channel not in known)
        if fresh:
            self.store.commit(Commit(add=fresh))
        self.routing.install(self.bindings.applied(installation.fragments))
        self.take_in(installation.ingest)

    def warm_up(self) -> None:
        """Prepares the plans of all installed fragments, so that the first tuples need not wait for that."""
        self.prepare(self.routing.fragments.values())

    def prepare(self, fragments: Iterable[Installed]) -> None:
        """Prepares the plans of fragments that are to come. Prepared plans cost nothing."""
        self.stepper.runner.warm_up(stage for f in fragments for stage in f.bound.template.stages)

    def is_prepared(self, fragments: Iterable[Installed]) -> bool:
        """Whether the plans of these fragments are ready."""
        return self.stepper.runner.is_warm(stage for f in fragments for stage in f.bound.template.stages)

    def wake(self, slots: Iterable[int] | None = None) -> None:
        """Asks slots (all of them by default) for a step."""
        for number in range(len(self.slots)) if slots is None else slots:
            if not self.slots[number].is_busy and self.stepper.has_work(number):
                self.slots[number].wake()
        self.store.nudge()

    def feed(
        self,
        streams: Iterable[Stream],
        surroundings: Surroundings,
        sources: Mapping[str, SourceConnector] | None = None,
    ) -> None:
        """Begins to take in the streams that installed fragments read."""
        self.ingest = Ingest(
            self.store,
            streams,
            self._ingest_channels,
            options=self.options.ingest,
            surroundings=surroundings,
            sources=sources,
        )
        self.ingest.open()
        self.ingest.start()

    @property
    def ingest_channels(self) -> Mapping[tuple[str, str], tuple[ChannelId, ...]]:
        """(stream, node) to the channels that its tuples enter by."""
        return self._ingest_channels

    def take_in(self, channels: Mapping[tuple[str, str], tuple[ChannelId, ...]]) -> None:
        """Begins to feed channels of sources that came; those that are fed already stay."""
        found = dict(self._ingest_channels)
        for key, readers in channels.items():
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), *readers)))
        self._feed_only(found)

    def stop_feeding(self, channels: Collection[ChannelId]) -> None:
        """Stops feeding channels of sources that have no readers any more."""
        if channels:
            kept = {
                key: tuple(c for c in readers if c not in channels) for key, readers in self._ingest_channels.items()
            }
            self._feed_only({key: readers for key, readers in kept.items() if readers})

    def _feed_only(self, channels: Mapping[tuple[str, str], tuple[ChannelId, ...]]) -> None:
        if channels != self._ingest_channels:
            self._ingest_channels = channels
            if self.ingest is not None:
                self.ingest.rewire(channels)

    def deliver(
        self,
        sink_bindings: Iterable[SinkBinding],
        surroundings: Surroundings,
        sinks: Mapping[str, SinkConnector] | None = None,
    ) -> None:
        """Begins to hand results to their sinks; `sinks` overrides the connector of a sink binding."""
        self.delivery = Delivery(self.store, surroundings=surroundings)
        for binding in sink_bindings:
            self.delivery.add(binding, (sinks or {}).get(binding.name))
        self.delivery.start()

    def rebind(self, slots: Mapping[FragmentId, int]) -> None:
        """Gives fragments to other slots, each when its old slot is between two steps."""
        for fragment, target in slots.items():
            with self.between_steps([fragment]):
                self.routing.rebind({fragment: target})
            self.slots[target].wake()
        self.bindings.keep()

    @contextmanager
    def between_steps(self, fragments: Iterable[FragmentId]) -> Iterator[tuple[int, ...]]:
        """Inside, the slots of these fragments (given) are between two steps, and the fragments stay bound to them."""
        wanted = tuple(fragments)
        while True:
            slots = self.routing.slots_of(wanted)
            with ExitStack() as stack:
                for slot in slots:
                    stack.enter_context(self.slots[slot].step_lock)
                if set(self.routing.slots_of(wanted)) <= set(slots):  # no fragment moved while this waited
                    yield slots
                    return

    def remove(self, fragments: Iterable[FragmentId]) -> None:
        """Stops running fragments; their channels and state stay until they are retired."""
        for fragment in fragments:
            with self.between_steps([fragment]):
                self.routing.remove([fragment])

    def drain(self, *, end_streams: bool = False, timeout_s: float = 60.0) -> bool:
        """Stops the sources and waits until everything taken in has been processed and delivered.

        With `end_streams` time goes to its end, so that every window closes; the streams cannot go on afterwards.
        """
        if self.ingest is not None:
            self.ingest.stop()
        if end_streams:
            channels = [c for readers in self._ingest_channels.values() for c in readers]
            self.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.busy():
                return True
            if self._is_stuck():
                return False
            self.store.wait(self.store.commits, IDLE_S)
        return False

    def _is_stuck(self) -> bool:
        """Whether all that waits does so for a fragment or a sink binding that is paused."""
        exchange = self.store.exchange
        waiting = {c for c in exchange.channels() if exchange.counters(c).pending_tuples}
        paused = {c for f in self.routing.paused for c in self.routing.fragments[f].ports}
        paused |= self.delivery.paused_channels() if self.delivery else set()
        if not waiting or not waiting <= paused:  # what was busy a moment ago may have finished meanwhile
            return False
        return not any(self.stepper.has_work(s.number) or s.step_lock.locked() for s in self.slots)

    def stop(self) -> None:
        """Stops at once. Tuples that were taken in and not processed are there at the next start."""
        self._stopping.set()
        if self._waker.is_alive():
            self._waker.join()
        if self.rebinder is not None:
            self.rebinder.stop()
        self.compaction.stop()
        if self.ingest is not None:
            self.ingest.stop()
        for slot in self.slots:
            slot.stop()
        if self.delivery is not None:
            self.delivery.stop()
        if self._own_runner is not None:
            self._own_runner.close()
        self.store.close()

    # ---------------------------------------------------------------- steps

    def _batch_of(self, slot: Slot) -> OnBatch:
        """One micro-batch of a slot: steps, one after the other, for as long as work comes and the time allows."""

        def batch(batch_id: int) -> None:
            deadline = time.monotonic() + self.options.linger_ms / 1000
            for number in range(STEPS_PER_BATCH):
                with slot.step_lock:
                    report = self._step(slot, batch_id * STEPS_PER_BATCH + number)
                if report is not None:
                    with self._counting:
                        self.totals.add(report)
                    if report.drained:
                        self._let_through()
                if not self._work_before(slot, deadline):
                    break
            if self.stepper.has_work(slot.number):
                slot.wake()

        return batch

    def _let_through(self) -> None:
        """A change whose fragments have all stopped takes effect in a moment: the next step had better come after it.

        Otherwise the change waits for that step to end, and those fragments for another one.
        """
        deadline = time.monotonic() + LET_THROUGH_S
        while self.routing.is_about_to_change and not self._stopping.is_set():
            seen, left = self.store.commits, deadline - time.monotonic()
            if left <= 0:
                return
            self.store.wait(seen, min(left, 0.01))

    def _work_before(self, slot: Slot, deadline: float) -> bool:
        """Waits for work until the deadline; says whether there is some."""
        while not self._stopping.is_set():
            seen = self.store.commits
            if time.monotonic() >= deadline:
                return False
            if self.stepper.has_work(slot.number):
                return True
            self.store.wait(seen, min(self._pause_s(), max(0.0, deadline - time.monotonic())))
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
            slot.revive(self.spark, self._batch_of(slot))
        except (PySparkException, Py4JError, OSError) as error:
            _log.warning("slot %d did not start: %s", slot.number, error)

    def _wake_slots(self) -> None:
        """Wakes each slot whose fragments have something to read, until the host stops or cannot go on."""
        while not self._stopping.is_set() and self.ended is None:
            seen, failed = self.store.commits, False
            for slot in self.slots:
                try:
                    self._tend(slot)
                except Exception:  # must not keep other slots from going on
                    failed = True
                    self.ended = self._end()
                    if self.ended is not None:
                        return
                    _log.exception("waking slot %d failed; it is tried again", slot.number)
            try:
                self._evict_unused()
                self.ended = self.store.broken
                self.store.wait(seen, RETRY_S if failed else self._pause_s())
            except Exception:  # this thread must not end while anything else goes on
                _log.exception("waiting for work failed; it is tried again")
                self._stopping.wait(RETRY_S)

    def _tend(self, slot: Slot) -> None:
        """Starts a slot again that has ended; wakes one that has something to do."""
        if not slot.is_alive:
            self._revive(slot)
        if not slot.is_busy and self.stepper.has_work(slot.number):
            slot.wake()

    def _evict_unused(self) -> None:
        """Plans of fragments that are gone are given up after a while."""
        if self._own_runner is not None and time.monotonic() >= self._evict_at:
            self._own_runner.evict(self.stages())
            self._evict_at = time.monotonic() + EVICT_S

    def stages(self) -> tuple[Stage, ...]:
        """The stages of all fragments that are installed, each once."""
        version, found = self._stages
        if version != (now := self.routing.version):
            templates = {f.bound.template.key: f.bound.template for f in self.routing.fragments.values()}
            found = tuple({s.key: s for t in templates.values() for s in t.stages}.values())
            self._stages = now, found
        return found

    def _end(self) -> str | None:
        """Records the reason why nothing can go on before this process is started again."""
        if has_ended(self.spark):
            return "Java, on which Spark runs, has ended"
        return self.store.broken

    def busy(self) -> bool:
        """Whether anything that was taken in waits to be processed or delivered."""
        exchange = self.store.exchange
        return any(exchange.counters(c).pending_tuples for c in exchange.channels()) or any(
            self.stepper.has_work(slot.number) or slot.step_lock.locked() for slot in self.slots
        )

    # ---------------------------------------------------------------- asking

    def status(self) -> HostStatus:
        stats = self.store.stats()
        problems = [
            f"slot {s.number} ended: {s.failure or s.trouble or 'stopped'}"
            for s in self.slots
            if (s.query or s.trouble) and not s.is_alive
        ]
        problems += [
            f"slot {s.number} was started {s.revivals} times and did nothing since: {s.trouble}"
            for s in self.slots
            if s.is_alive and s.revivals > 1
        ]
        halted = next((p for p in (*problems, self.waits_for_disk, self.ended) if p is not None), None)
        problems += [
            f"fragment {f} {'is paused' if pause.until is None else 'waits'}: {pause.reason}"
            for f, pause in self.routing.pauses.items()
        ]
        ingest = self.ingest.metrics() if self.ingest else None
        delivery = self.delivery.metrics() if self.delivery else None
        streams = ingest.streams.items() if ingest else ()
        problems += [f"stream {name} is paused: {s.paused}" for name, s in streams if s.paused]
        problems += [f"stream {name} waits: {s.waits}" for name, s in streams if s.waits]
        sink_bindings = delivery.sink_bindings.items() if delivery else ()
        problems += [f"sink binding {name} is paused: {o.paused}" for name, o in sink_bindings if o.paused]
        problems += [each for each in (self.waits_for_disk, self.ended) if each is not None]
        problems += [problem for trouble in self.troubles for problem in trouble()]
        exchange, pending = self.store.exchange, dict[ChannelId, int]()
        for channel in exchange.channels():
            with suppress(InputError):  # a channel may end between two looks
                pending[channel] = exchange.counters(channel).pending_tuples
        running = self.routing.fragments.values()
        behind = [f.fragment for f in running if sum(pending.get(p, 0) for p in f.ports) > FEW_TUPLES]
        return HostStatus(
            healthy=not problems,
            problems=tuple(problems),
            alive=all(s.is_alive for s in self.slots),
            slots=tuple(str(s.query.id) for s in self.slots if s.query is not None),
            fragments=len(self.routing.fragments),
            paused=dict(self.routing.paused),
            totals=replace(self.totals),
            behind=tuple(behind),
            pending_tuples=sum(pending.values()),
            state_bytes=stats.state_bytes,
            store=stats,
            compaction=replace(self.compaction.metrics),
            rebindings=0 if self.rebinder is None else self.rebinder.moves,
            ingest=ingest,
            delivery=delivery,
            halted=halted,
            limits=limits_of(self.spark),
            stages=None if self._own_runner is None else self._own_runner.use(self.stages()),
        )
