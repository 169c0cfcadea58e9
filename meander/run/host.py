"""The site host: one PySpark application that runs the fragments of one or many nodes.

It owns the store, the slots, the routing table, ingest and delivery. Installing, removing or rebinding fragments
changes the routing table and the channels; the streaming queries of the slots run on. A fragment whose data breaks
its expressions is paused with the reason, while all others go on; one that failed through no fault of its data is tried
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.budgets import ChannelBudget, ChannelBudgets
from meander.run.connectors.base import SinkBinding, SinkConnector, Surroundings
from meander.run.delivery.delivery import Delivery, DeliveryMetrics
from meander.run.delivery.latency import LatencyHistogram
from meander.run.execution.runner import Runner
from meander.run.execution.stage_plans import StagePlans
from meander.run.execution.stage_use import StageUse
from meander.run.fragments.bindings import Bindings
from meander.run.fragments.routing import Routing
from meander.run.ingest.feeding import Feeding
from meander.run.ingest.ingest import IngestMetrics, IngestOptions
from meander.run.installation import Installation
from meander.run.rebinding.options import RebindingOptions
from meander.run.rebinding.rebinder import Rebinder
from meander.run.session import limits_of, own_session
from meander.run.slots import SLOTS_START_S, Slots, StepTotals
from meander.run.step.compaction import Compaction, CompactionMetrics, CompactionOptions
from meander.run.step.step import MOST_ROWS, Stepper
from meander.run.store.commit import Commit
from meander.run.store.journal import Durability, JournalError, durability_by
from meander.run.store.store import Store, StoreOptions, StoreStats

_log = logging.getLogger(__name__)
IDLE_S = 0.05
FEW_TUPLES = 1_000
"""Fragments for which no more tuples wait have caught up."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of a host: its directory, its slots and its timing."""

    directory: Path
    slots: int = 1
    linger_ms: int = 60_000
    """The time for which a micro-batch stays open for more work: Spark's own work around one costs more than a step."""
    store: StoreOptions = field(default_factory=StoreOptions)
    budget: ChannelBudget = field(default_factory=ChannelBudget)
    """The budget of each channel, and the policy beyond it."""
    ingest: IngestOptions = field(default_factory=IngestOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    most_rows: int = MOST_ROWS
    """Tuples that a step reads at most."""
    rebinding: RebindingOptions | None = None
    """The policy by which fragments change slots by themselves; None when they do not."""
    idle_timeout_ms: int | None = None
    """The time for which event time waits for an input that is cut off; None for as long as that takes."""
    label: str = ""
    """Tells a host apart from others in the same process."""

    def surviving(self, durability: str) -> HostOptions:
        """With a durability by its name in settings; raises for one that is not known."""
        return replace(self, store=replace(self.store, durability=durability_by(durability)))

    def bounded(self, channel_budget: str | None, overflow: str | None) -> HostOptions:
        """With a budget of each channel as in settings; raises for one that is not allowed."""
        return replace(self, budget=ChannelBudget.of(channel_budget, overflow))

    @property
    def durable(self) -> bool:
        """Whether what is acknowledged survives a power failure."""
        return self.store.durability is Durability.DISK


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
    dropped: int = 0
    """Tuples of channels beyond their budget that were dropped."""
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
        self.plans = StagePlans(self.routing, runner, lambda: self.spark)
        self.stepper = Stepper(self.store, self.routing, self.plans.runner, options.most_rows, options.idle_timeout_ms)
        self.compaction = Compaction(self.store, self.routing, self.plans.runner, options.compaction)
        self.pool = Slots(
            options.directory,
            options.slots,
            self.stepper,
            lambda: self.spark,
            options.linger_ms,
            self._evict_unused,
            options.label,
        )
        self.slots = self.pool.all
        self.rebinder: Rebinder | None = None
        if options.rebinding is not None:
            step_locks = [slot.step_lock for slot in self.slots]
            self.rebinder = Rebinder(options.rebinding, self.store, self.routing, step_locks)
            self.stepper.requests, self.stepper.measures = self.rebinder.requests, self.rebinder.measures
        self.bindings = Bindings(self.store, self.routing)
        self.bindings.is_kept &= self.rebinder is None or not self.rebinder.policy.pulls
        self.stepper.bindings = self.bindings
        self.budgets = ChannelBudgets(self.store, options.budget, self.routing.fragments.__contains__)
        self.store.held = self.budgets.held
        self.feeding = Feeding(self.store, options.ingest)
        self.delivery: Delivery | None = None
        self.troubles: list[Callable[[], Iterable[str]]] = []
        """Other sources of problems."""

    @staticmethod
    def open(options: HostOptions, spark: SparkSession) -> Host:
        """A host on its directory; one whose journal cannot be read is named, with the remedy."""
        try:
            return Host(options, spark)
        except JournalError as error:
            raise InputError(str(error)) from None

    @cached_property
    def spark(self) -> SparkSession:
        """Meander's own session; Spark is started only when something runs on it."""
        return own_session(self._given_spark)

    @property
    def totals(self) -> StepTotals:
        """Steps of all slots added up."""
        return self.pool.totals

    @property
    def ended(self) -> str | None:
        """The reason why nothing here can go on before the process is started again, if so."""
        return self.pool.ended

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Starts the slots' streaming queries; from now on work is done as it arrives."""
        self.pool.start()
        self.compaction.start()
        if self.rebinder is not None:
            self.rebinder.start()

    def install(self, installation: Installation) -> None:
        """Opens the channels and begins to run the fragments, while everything else runs on.

        A fragment that ran here before is in the slot again that it had when the host ended.
        """
        known = set(self.store.exchange.channels())
        fresh = tuple(spec for spec in installation.channels if spec.channel not in known)
        if fresh:
            self.store.commit(Commit(add=fresh))
        self.routing.install(self.bindings.applied(installation.fragments))
        self.store.wake_readers()
        self.feeding.add(installation.ingest)

    def warm_up(self) -> None:
        """Prepares the plans of all installed fragments, so that the first tuples need not wait for that."""
        self.plans.prepare(self.routing.fragments.values())

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

    def drain(self, *, end_streams: bool = False, timeout_s: float = 60.0) -> bool:
        """Stops the sources and waits until everything taken in has been processed and delivered.

        With `end_streams` time goes to its end, so that every window closes; the streams cannot go on afterwards.
        """
        self.feeding.stop()
        if end_streams:
            self.feeding.end_streams()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.busy():
                return True
            if self._is_stuck():
                return False
            self.store.wait(self.store.changes, IDLE_S)
        return False

    def _is_stuck(self) -> bool:
        """Whether all that waits does so for a fragment or a sink binding that is paused."""
        exchange = self.store.exchange
        waiting = {c for c in exchange.channels() if exchange.counters(c).pending_tuples}
        paused = {c for f in self.routing.paused for c in self.routing.fragments[f].ports}
        paused |= self.delivery.paused_channels() if self.delivery else set()
        if not waiting or not waiting <= paused:  # what was busy a moment ago may have finished meanwhile
            return False
        return self.pool.are_idle

    def stop(self) -> None:
        """Stops at once. Tuples that were taken in and not processed are there at the next start."""
        self.pool.stop_waking()
        if self.rebinder is not None:
            self.rebinder.stop()
        self.compaction.stop()
        self.feeding.stop()
        self.pool.stop()
        if self.delivery is not None:
            self.delivery.stop()
        self.plans.close()
        self.store.close()

    def _evict_unused(self) -> None:
        self.plans.evict_unused()
        self.stepper.resident.evict_unused()

    # ---------------------------------------------------------------- slots

    def wait_for_slots(self, timeout_s: float = SLOTS_START_S) -> None:
        """Waits until every slot has done a first batch; raises OutsideError when one does not get there."""
        self.pool.wait_until_running(timeout_s)

    def wake(self, slots: Iterable[int] | None = None) -> None:
        """Asks slots (all of them by default) for a step."""
        self.pool.wake(slots)

    def between_steps(self, fragments: Iterable[FragmentId]) -> AbstractContextManager[tuple[int, ...]]:
        """Inside, the slots of these fragments (given) are between two steps, and the fragments stay bound to them."""
        return self.pool.between_steps(fragments)

    def busy(self) -> bool:
        """Whether anything that was taken in waits to be processed or delivered."""
        exchange = self.store.exchange
        return any(exchange.counters(c).pending_tuples for c in exchange.channels()) or not self.pool.are_idle

    # ---------------------------------------------------------------- asking

    def latencies(self) -> dict[str, LatencyHistogram]:
        """Event-time latency of results by query, since the process began."""
        return self.delivery.latencies() if self.delivery is not None else {}

    def status(self) -> HostStatus:
        stats = self.store.stats()
        problems = self.pool.problems()
        halted = next((p for p in (*problems, self.pool.waits_for_disk, self.ended) if p is not None), None)
        problems += [
            f"fragment {f} {'is paused' if pause.until is None else 'waits'}: {pause.reason}"
            for f, pause in self.routing.pauses.items()
        ]
        ingest = self.feeding.metrics()
        delivery = self.delivery.metrics() if self.delivery else None
        streams = ingest.streams.items() if ingest else ()
        problems += [f"stream {name} is paused: {s.paused}" for name, s in streams if s.paused]
        problems += [f"stream {name} waits: {s.waits}" for name, s in streams if s.waits]
        sink_bindings = delivery.sink_bindings.items() if delivery else ()
        problems += [f"sink binding {name} is paused: {o.paused}" for name, o in sink_bindings if o.paused]
        problems += [each for each in (self.pool.waits_for_disk, self.ended) if each is not None]
        if stats.snapshot_problem is not None:
            problems.append(f"snapshots wait, and the store grows on the disk: {stats.snapshot_problem}")
        problems += self.budgets.problems()
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
            dropped=self.budgets.dropped,
            pending_tuples=sum(pending.values()),
            state_bytes=stats.state_bytes,
            store=stats,
            compaction=replace(self.compaction.metrics),
            rebindings=0 if self.rebinder is None else self.rebinder.moves,
            ingest=ingest,
            delivery=delivery,
            halted=halted,
            limits=limits_of(self.spark),
            stages=self.plans.use(),
        )
