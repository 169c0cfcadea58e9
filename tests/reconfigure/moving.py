"""A data plane whose infrastructure moves: queries run step by step while sensors reconnect and operators move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.coordinator.loop.loop import PlacementLoop
from meander.lang import sql
from meander.model.events import (
    ChangeEvent,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Sink, Source
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.mechanisms.base import Mechanism
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.reconfigure.state.precopy import AHEAD
from meander.run.channels.base import ChannelAppend
from meander.run.execution.runner import Runner
from meander.run.frames import BEGIN, END, arrow_schema, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import Comparison, compare
from meander.run.rebinding.options import RebindingOptions
from meander.run.step.backup_bases import base_of
from meander.run.store.commit import Commit
from meander.run.store.records.reconfigurations import DrainedRecord, ReconfigurationRecord
from tests.run.harness import SINKS, STREAMS, VirtualClock, rows_of

EDGES = 3


def moving_catalog(slots: int = 2) -> Catalog:
    """Three sensors on three edges in a ring, all edges on one cloud."""
    nodes = [Node(f"s{i}", NodeKind.SENSOR, slots, mobile=True) for i in range(3)]
    nodes += [Node(f"e{i}", NodeKind.EDGE, slots) for i in range(EDGES)]
    nodes += [Node("cloud", NodeKind.CLOUD, 100)]
    links = [Link(f"s{i}", f"e{i}", 1) for i in range(3)]
    links += [Link(f"e{i}", f"e{(i + 1) % EDGES}", 1) for i in range(EDGES)] + [
        Link(f"e{i}", "cloud", 5) for i in range(EDGES)
    ]
    return Catalog(Topology.of(nodes, links), dict(STREAMS), dict(SINKS))


class MovingPlane:
    """A host that is not started: the test decides when a slot steps and when reconfigurations go on."""

    def __init__(
        self,
        directory: Path,
        spark: SparkSession,
        runner: Runner,
        text: str,
        *,
        slots: int = 1,
        disorder_ms: int = 0,
        chosen: Mechanism | None = None,
        idle_timeout_ms: int | None = None,
        rebinding: RebindingOptions | None = None,
        replicas: int = 1,
        strategy: str | None = None,
        room: int = 2,
        sends_ahead: bool = False,
    ) -> None:
        """With `sends_ahead` even the smallest state is sent before its operator stops."""
        self.directory, self.spark, self.runner = directory, spark, runner
        self.slots, self.disorder_ms, self.idle_timeout_ms = slots, disorder_ms, idle_timeout_ms
        self.rebinding = rebinding
        self.replicas, self.strategy, self.sends_ahead = replicas, strategy, sends_ahead
        self.clock = VirtualClock()
        self.catalog = moving_catalog(room)
        self.engine = Engine(self.catalog, chosen or mechanism("bottom_up"))
        self.wanted = list(sql(text, STREAMS, SINKS).queries)
        self.entered: dict[str, list[pa.Table]] = defaultdict(list)
        self.reached: dict[tuple[str, str], int] = defaultdict(lambda: BEGIN)
        self.batch = self.late = 0
        self.outcomes: list[ReconfigurationOutcome] = []
        self.away: set[str] = set()
        self.restore: Callable[[PlacementLoop], Callable[[], None]] | None = None
        """What a new process does before the loop recovers; gives what it does afterwards."""
        self._open()
        report = self.loop.apply([QueryAdded(0, q) for q in self.wanted]).report
        assert not report.unplaced
        self.poll()

    def _open(self) -> None:
        options = HostOptions(
            self.directory, self.slots, rebinding=self.rebinding, idle_timeout_ms=self.idle_timeout_ms
        )
        self.host = Host(options, self.spark, self.runner, clock=self.clock)
        self.loop = PlacementLoop(
            self.catalog,
            self.engine,
            self.host,
            strategy=self.strategy,
            replicas=self.replicas,
            background=False,
            clock=self._seconds,
        )
        if self.sends_ahead:
            self.loop.driver.agent.mover.precopies.least_bytes = 0.0

    def _seconds(self) -> float:
        return self.clock.now_ms / 1000

    def crash(self) -> None:
        """The process is gone; another one starts on the same directory."""
        self.host.store.close()
        self._open()
        resume = self.restore(self.loop) if self.restore is not None else None
        self.loop.recover()
        if resume is not None:
            resume()
        self.poll()

    # Events

    def apply(self, *events: ChangeEvent) -> None:
        self.loop.apply(events)

    def random_events(self, rng: np.random.Generator) -> Sequence[ChangeEvent]:
        """A sensor reconnects or loses its link, an operator is moved, an edge fails or returns."""
        match int(rng.integers(0, 6)):
            case 0 | 1:
                return self._reconnect(f"s{rng.integers(3)}", f"e{rng.integers(EDGES)}")
            case 2:
                sensor = f"s{rng.integers(3)}"
                here = self._links(sensor)
                return [LinkRemoved(0, sensor, t) for t in here] or self._reconnect(sensor, "e0")
            case 3 | 4:
                free = [o for o, r in self.catalog.plan.operators.items() if not isinstance(r.spec, Source | Sink)]
                live = [n for n in ("e0", "e1", "e2", "cloud") if n not in self.away]
                if not free:
                    return []
                return [PlacementChanged(0, OperatorId(int(rng.choice(free))), str(rng.choice(live)))]
            case _:
                return self._fail_or_return(rng)

    def _links(self, node: str) -> list[str]:
        return [
            link.target if link.source == node else link.source
            for link in self.catalog.topology.links()
            if node in (link.source, link.target)
        ]

    def _reconnect(self, sensor: str, edge: str) -> list[ChangeEvent]:
        here = self._links(sensor)
        if edge in here or edge in self.away:
            return []
        return [*(LinkRemoved(0, sensor, t) for t in here), LinkAdded(0, Link(sensor, edge, 1))]

    def _fail_or_return(self, rng: np.random.Generator) -> list[ChangeEvent]:
        if self.away:
            back = self.away.pop()
            others = [f"e{i}" for i in range(EDGES) if f"e{i}" not in (back, *self.away)]
            links = [Link(back, other, 1) for other in others] + [Link(back, "cloud", 5)]
            return [NodeAdded(0, Node(back, NodeKind.EDGE, 2)), *(LinkAdded(0, link) for link in links)]
        gone = f"e{rng.integers(EDGES)}"
        self.away.add(gone)
        return [NodeRemoved(0, gone)]

    def lose_or_return_sensor(self) -> list[ChangeEvent]:
        """A sensor goes with what runs on it, or comes back."""
        if self.catalog.topology.find("s0") is not None:
            return [NodeRemoved(0, "s0")]
        edge = next(f"e{i}" for i in range(EDGES) if f"e{i}" not in self.away)
        return [NodeAdded(0, Node("s0", NodeKind.SENSOR, 2, mobile=True)), LinkAdded(0, Link("s0", edge, 1))]

    def mend(self, rng: np.random.Generator) -> None:
        """Everything that is away comes back."""
        if self.catalog.topology.find("s0") is None:
            self.apply(*self.lose_or_return_sensor())
        for _ in sorted(self.away):
            self.apply(*self._fail_or_return(rng))
        for i in range(3):
            if not self._links(f"s{i}"):
                self.apply(*self._reconnect(f"s{i}", "e1"))

    def add_query(self, text: str) -> None:
        self.apply(*(QueryAdded(0, q) for q in sql(text, STREAMS, SINKS).queries))

    def remove_query(self, name: str) -> None:
        self.apply(QueryRemoved(0, QueryId(name)))

    # Tuples and steps

    def enter(self, stream: str, node: str, table: pa.Table) -> None:
        before = self.reached[stream, node]
        hidden = with_hidden(table, "ts", self.disorder_ms, before)
        newest = int(np.max(table.column("ts").to_numpy(), initial=BEGIN)) - self.disorder_ms
        self.reached[stream, node] = max(before, newest)
        self.entered[stream].append(table.append_column(PRODUCER, pa.array([node] * len(table), pa.string())))
        mark = None if self.reached[stream, node] == BEGIN else self.reached[stream, node]
        channels = self.host.feeding.channels.get((stream, node), ())
        self.host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, mark) for c in channels)))

    def feed(self, rng: np.random.Generator, at_ms: int) -> None:
        for stream, description in STREAMS.items():
            for node in description.nodes:
                if rng.random() < 0.8:
                    count = int(rng.integers(0, 12))
                    times = at_ms + rng.integers(0, 700, count) - rng.integers(0, self.disorder_ms + 600, count)
                    self.enter(stream, node, rows_of(stream, rng, times))

    def step(self, slot: int | None = None) -> None:
        for number in range(self.slots) if slot is None else [slot]:
            self.batch += 1
            self.late += self.host.stepper.step(number, self.batch).late

    def poll(self) -> None:
        self.outcomes += self.loop.poll()

    def finish(self) -> None:
        """Ends all streams; steps and reconfigures until nothing is left to do."""
        channels = [c for readers in self.host.feeding.channels.values() for c in readers]
        self.host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
        for _ in range(100):
            self.step()
            self.poll()
            quiet = not any(self.host.stepper.has_work(s) for s in range(self.slots))
            if quiet and not self.loop.deployer.has_open_changes:
                return
        routing = self.host.routing
        waiting = {f: (routing.fragments[f].slot, routing.fragments[f].ports) for f in routing.awaiting}
        raise AssertionError(
            f"not done after 100 steps: under way {sorted(self.loop.deployer.under_way)}, drained {routing.drained}, "
            f"stop at markers {waiting}, paused {routing.paused}, {self.loop.deployer.has_waiting_changes}"
        )

    # Checks

    def results(self) -> dict[str, pa.Table]:
        exchange = self.host.store.exchange
        found = {}
        for binding in self.loop.sink_bindings():
            found[binding.query] = exchange.read(
                binding.channel, exchange.start(binding.channel), exchange.end(binding.channel)
            ).table
        return found

    def compare(self) -> dict[str, Comparison]:
        inputs = {
            name: pa.concat_tables(self.entered[name])
            if self.entered[name]
            else arrow_schema(s.schema).append(pa.field(PRODUCER, pa.string())).empty_table()
            for name, s in STREAMS.items()
        }
        found: dict[str, Comparison] = {}
        results = self.results()
        for query in self.wanted:
            expected = oracle(self.spark, query.plan, inputs, self.disorder_ms)
            found[query.id] = compare(next(iter(expected.values())), results[query.id])
        return found

    def check_deployment(self) -> None:
        """What runs is what was decided; nothing is left over of what does not run any more."""
        deployment, routing, store = self.loop.deployer.deployment, self.host.routing, self.host.store
        assert not self.loop.deployer.under_way
        assert {f: i.version for f, i in routing.fragments.items()} == {
            f.id: f.version for f in deployment.fragments.values()
        }
        assert not routing.awaiting
        assert not routing.drained
        inner = {c.id for c in deployment.channels.values()}
        assert {c for c in store.exchange.channels() if c < 1_000_000_000} == inner
        bases = {base_of(f) for f in deployment.fragments}
        assert {f for f in store.state.fragments() if f < AHEAD} <= set(deployment.fragments) | bases
        assert not store.records(ReconfigurationRecord)
        assert not store.records(DrainedRecord)
        for channel in deployment.channels.values():
            spec = store.exchange.spec(channel.id)
            assert (spec.sender, spec.receiver) == (channel.sender, channel.receiver)
        for fragment, installed in routing.fragments.items():
            for operator, wires in zip(installed.bound.outputs, installed.outputs, strict=True):
                mine = {w.channel for w in wires if w.channel < 1_000_000_000}
                assert mine == {c.id for (u, _), c in deployment.channels.items() if u == operator}, fragment
