"""A loop on a host that nobody starts: the test decides which slot steps, when changes go on, when the process dies.

`LoopWorld` is the loop alone: a process that dies takes its fragments along, the catalog stays. `ServiceWorld` is the
service's own assembly with its ledger: after its process died, everything is rebuilt from the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.coordinator.assembly import Assembly, assemble
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.admission import check
from meander.coordinator.core.batches import query_steps
from meander.coordinator.core.commands import Command, CommandBatch, CommandKind, Response
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.loop.validation import faults_of
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.read_model.hub import Hub
from meander.lang.event_file import dump_events
from meander.lang.topology.reader import TopologyFile
from meander.model.events import ChangeEvent
from meander.model.ids import ChannelId, FragmentId, OperatorId, QueryId
from meander.model.resilience import Resilience
from meander.place.catalog import Catalog
from meander.place.engine import WORTH_SHARING, Engine
from meander.place.mechanisms import mechanism
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.memory import MemorySink
from meander.run.delivery.delivery import Delivery
from meander.run.execution.runner import Runner
from meander.run.frames import BEGIN, END, HIDDEN, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.installation import OUTSIDE
from meander.run.store.commit import Commit, RemoveChannel
from tests.coordinator.loop.ground import SINKS, STREAMS, Ground, Tuples
from tests.coordinator.loop.python_runner import PythonRunner
from tests.run.harness import VirtualClock

NO_SPARK = cast(SparkSession, None)
"""Nothing here asks Spark for anything: steps are the test's, and stages run in Python."""
BY_HAND = "paused by the test"
LONG_MS = 61_000
"""After so long a change that does not go on is aborted."""


@dataclass(frozen=True)
class Setting:
    """What a schedule is played with."""

    mechanism: str = "bottom_up"
    slots: int = 1
    replicas: int = 1
    emulated: bool = False
    amenders: int | None = None
    control: str = "optimistic"
    worth_sharing: int = WORTH_SHARING
    nova: bool = False
    """Whether joins are placed by Nova."""


class LoopWorld:
    """One loop, one host, one catalog."""

    def __init__(
        self,
        directory: Path,
        ground: Ground,
        setting: Setting = Setting(),  # noqa: B008 - it cannot be changed
        *,
        runner: Runner | None = None,
        spark: SparkSession = NO_SPARK,
    ) -> None:
        self.directory, self.ground, self.setting, self.spark = directory, ground, setting, spark
        self.runner = runner or PythonRunner()
        self.clock = VirtualClock()
        self.tuples = Tuples()
        self.reached: dict[tuple[str, str], int] = {}
        self.texts: dict[QueryId, str] = {}
        """The texts of all queries that ever came."""
        self.batch = self.restarts = 0
        self.outcomes: list[ReconfigurationOutcome] = []
        self.decided: list[Callable[[], None]] = []
        """What was decided and has not begun."""
        self._make()
        self.open()

    def _make(self) -> None:
        """What a process that dies does not take along."""
        self.catalog = Catalog(self.ground.topology(), dict(STREAMS), dict(SINKS))
        amenders, control, worth = self.setting.amenders, self.setting.control, self.setting.worth_sharing
        chosen = mechanism(self.setting.mechanism)
        self.engine = Engine(self.catalog, chosen, amenders=amenders, control=control, worth_sharing=worth)

    def _host(self) -> Host:
        return Host(HostOptions(self.directory, self.setting.slots), self.spark, self.runner, clock=self.clock)

    def open(self) -> None:
        self.host = self._host()
        self.loop = PlacementLoop(
            self.catalog,
            self.engine,
            self.host,
            emulated=self.setting.emulated,
            replicas=self.setting.replicas,
            background=False,
            clock=self.seconds,
        )

    def seconds(self) -> float:
        return self.clock.now_ms / 1000

    def close(self) -> None:
        self.engine.close()
        self._end_process()

    def _end_process(self) -> None:
        self.host.store.close()
        for slot in self.host.slots:
            slot.stop()

    def crash(self) -> None:
        """The process is gone, at whatever it was; another one starts on the same directory."""
        self._end_process()
        self.decided.clear()
        self.restarts += 1
        self.open()
        self.loop.recover()

    # ---------------------------------------------------------------- changes

    def apply(self, *events: ChangeEvent) -> None:
        """Decides and begins."""
        self.decide(*events)
        self.begin()

    def decide(self, *events: ChangeEvent) -> None:
        """Decides; `begin` may follow, or the process dies before."""
        applied = self.loop.decide(events)
        self.decided.append(lambda: self.loop.begin(applied))

    def begin(self) -> None:
        """Begins what was decided."""
        decided, self.decided = self.decided, []
        for begin in decided:
            begin()

    def poll(self) -> None:
        self.outcomes += self.loop.poll()
        self._free_results()

    def _free_results(self) -> None:
        """Lets go of results of queries that are gone, as sink bindings do."""
        deployer = self.loop.deployer
        busy = {o for r in deployer.under_way.values() for o in r.change.operators} | set(deployer.deployment.owner)
        wanted = {s for r in self.catalog.plan.queries.values() for s in r.sinks}
        known = self.host.store.exchange.channels()
        gone = [c for c in known if self._is_result(c) and OperatorId(c - OUTSIDE) not in busy | wanted]
        if gone:
            self.host.store.commit(Commit(remove=tuple(RemoveChannel(c, discard=True) for c in gone)))

    # ---------------------------------------------------------------- tuples

    def feed(self, rng: np.random.Generator) -> None:
        """Some tuples enter."""
        self.clock.now_ms += 500
        for stream, node, table in self.tuples.drawn(rng, self.clock.now_ms):
            self.enter(stream, node, table)

    def enter(self, stream: str, node: str, table: pa.Table) -> None:
        before = self.reached.get((stream, node), BEGIN)
        newest = self.reached[stream, node] = max(before, int(np.max(table.column("ts").to_numpy())))
        hidden = with_hidden(table, "ts", 0, before)
        channels = self.host.feeding.channels.get((stream, node), ())
        self.host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, newest) for c in channels)))

    def end_streams(self) -> None:
        """Time goes to its end, so that every window closes."""
        channels = [c for readers in self.host.feeding.channels.values() for c in readers]
        self.host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))

    def step(self, slot: int | None = None) -> None:
        for number in range(self.setting.slots) if slot is None else [slot]:
            self.batch += 1
            self.host.stepper.step(number, self.batch)

    def pause(self, fragment: FragmentId) -> None:
        """As a step does whose data breaks an expression."""
        if fragment not in self.host.routing.paused:
            self.host.routing.pause(fragment, BY_HAND)

    def resume(self) -> None:
        for fragment, reason in dict(self.host.routing.paused).items():
            if reason == BY_HAND:
                self.host.routing.resume(fragment)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way and nothing waits to be read that can be."""
        stepper, open_ = self.host.stepper, self.loop.deployer.has_open_changes
        on_its_way = self.host.store.exchange.next_ready_ms() is not None
        busy = on_its_way or any(map(stepper.has_work, range(self.setting.slots)))
        return not self.decided and not open_ and not busy

    @property
    def without_way(self) -> list[int]:
        """Changes that wait for a path over which the state of an operator could move."""
        hops = self.loop.paths.hops
        under_way = self.loop.deployer.under_way.items()
        return [
            n for n, r in under_way if any(h.travels and hops(h.origin, h.destination) is None for h in r.handovers)
        ]

    def settle(self, rounds: int = 60) -> bool:
        """Steps and goes on until nothing is left to do; False if the state of operators that move has no way, or if
        some of a join that is cut anew has no place."""
        self.begin()
        tries = 3
        for _ in range(rounds):
            self.clock.now_ms += 50
            self.step()
            self.poll()
            if self.is_quiet:
                return not self.loop.deployer.incomplete
            if self.without_way and not any(map(self.host.stepper.has_work, range(self.setting.slots))):
                if not tries:
                    return False
                tries -= 1
                self.clock.now_ms += LONG_MS
        deployer, routing = self.loop.deployer, self.host.routing
        stuck = {n: sorted(r.change.operators) for n, r in deployer.under_way.items()}
        raise AssertionError(
            f"not done after {rounds} rounds: under way {stuck}, waiting {sorted(deployer.waiting)}, "
            f"at markers {sorted(routing.awaiting)}, stopped {routing.drained}, paused {routing.paused}, "
            f"failures {deployer.failures[-3:]}"
        )

    def validate(self) -> list[str]:
        """What the product itself finds wrong. Results of stopped queries wait until somebody has them."""
        return faults_of(self.loop, (c for c in self.host.store.exchange.channels() if self._is_result(c)))

    def _is_result(self, channel: ChannelId) -> bool:
        return channel >= OUTSIDE and self.host.store.exchange.spec(channel).receiver is None

    # ---------------------------------------------------------------- results

    def results(self) -> Mapping[tuple[str, str], list[tuple[Any, ...]]]:
        """Everything that came out of the queries that run, by query and sink."""
        exchange = self.host.store.exchange
        known = set(exchange.channels())
        return {
            (o.query, o.target.name): rows_of(
                exchange.read(o.channel, exchange.start(o.channel), exchange.end(o.channel)).table
            )
            for o in self.loop.sink_bindings()
            if o.channel in known
        }


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table.column(n).to_pylist() for n in table.column_names if n not in HIDDEN]
    return list(zip(*columns, strict=True))


class ServiceWorld(LoopWorld):
    """The service without its threads, its doors and Spark: core, ledger and sink bindings start again from disk."""

    def _make(self) -> None:
        resilience = Resilience(replicas=self.setting.replicas)
        self.world = TopologyFile(self.ground.topology(), dict(STREAMS), dict(SINKS), resilience)
        self.reader = ChangeReader(self.world.streams, self.world.sinks)
        self.sinks: dict[str, MemorySink] = {}

    def open(self) -> None:
        self.host = self._host()
        around = Surroundings(self.directory, self.directory)
        self.host.delivery = Delivery(self.host.store, clock=self.clock, surroundings=around)
        options = CoordinatorOptions(
            mechanism=self.setting.mechanism, emulate=self.setting.emulated, adapt=False, sink_of=self._sink,
            amenders=self.setting.amenders,
        )  # fmt: skip
        self.parts: Assembly = assemble(
            self.host, self.world, self.directory / "ledger.sqlite", around, Hub("test"), options, join=self._join
        )
        self.loop, self.core = self.parts.loop, self.parts.core
        self.catalog, self.engine = self.loop.catalog, self.loop.engine
        self.engine.worth_sharing = self.setting.worth_sharing

    def _join(self, loop: PlacementLoop) -> None:
        """The loop goes by the test's clock, and state moves when the test polls, not beside it."""
        loop.clock = loop.driver.clock = self.seconds
        loop.driver.agent.mover.background = False

    def _sink(self, binding: SinkBinding, around: Surroundings) -> MemorySink:
        return self.sinks.setdefault(binding.name, MemorySink())

    def close(self) -> None:
        self.parts.ledger.close()
        super().close()

    def crash(self) -> None:
        self.close()
        self.decided.clear()
        self.restarts += 1
        self.open()

    def admit(self, *events: ChangeEvent) -> None:
        """Raises when the batch would be refused."""
        check(self.core, Command(self._changes(events), Response(CommandKind.BATCH)), ())

    def accept(self, *events: ChangeEvent) -> None:
        """The process dies between accepting a batch and applying it."""
        changes = self._changes(events)
        with self.core.ledger.transaction():
            self.core.ledger.batches.accept(0, changes.values, query_steps(changes.events, changes.texts))
        self.crash()

    def apply(self, *events: ChangeEvent) -> None:
        self.begin()
        command = Command(self._changes(events), Response(CommandKind.BATCH))
        self.core.take([command])
        command.answer.result(0)

    def decide(self, *events: ChangeEvent) -> None:
        """As the core does, up to where it has answered."""
        self.begin()
        command = Command(self._changes(events), Response(CommandKind.BATCH))
        decided: list[CommandBatch] = []
        begin = self.core.batches.begin
        self.core.batches.begin = decided.append  # type: ignore[method-assign, assignment]
        try:
            self.core.take([command])
        finally:
            self.core.batches.begin = begin  # type: ignore[method-assign]
        command.answer.result(0)
        self.decided += [_beginning(begin, batch) for batch in decided]

    def _changes(self, events: Sequence[ChangeEvent]) -> Any:
        return self.reader.read([json.loads(line) for line in dump_events(events, self.texts)])

    def poll(self) -> None:
        assert self.host.delivery is not None
        self.host.delivery.tick()
        self.core.carry_on()
        assert not self.core.failures, self.core.failures

    @property
    def is_quiet(self) -> bool:
        """Also: all results are delivered, and queries that were stopped are gone."""
        pending = self.host.store.exchange.counters
        results = [o.channel for o in self.core.sink_bindings.known.values()]
        known = set(self.host.store.exchange.channels())
        left = any(pending(c).pending_tuples for c in results if c in known)
        return super().is_quiet and not left and not self.core.sink_bindings.stopping

    def results(self) -> Mapping[tuple[str, str], list[tuple[Any, ...]]]:
        return {
            (o.query, o.target.name): [row for table in self.sinks[o.name].tables for row in rows_of(table)]
            for o in self.loop.sink_bindings()
            if o.name in self.sinks
        }


def _beginning(begin: Callable[[CommandBatch], None], batch: CommandBatch) -> Callable[[], None]:
    return lambda: begin(batch)
