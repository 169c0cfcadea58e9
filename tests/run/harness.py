"""A small data plane for tests: queries placed on a line of nodes, driven step by step, compared with the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.deploy.fragments import Deployment, Placed, deploy
from meander.lang import sql
from meander.model.events import QueryAdded
from meander.model.ids import ChannelId
from meander.model.operators import Sink
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.channels.base import ChannelAppend
from meander.run.execution.runner import Runner
from meander.run.fragments.routing import Routing
from meander.run.frames import BEGIN, END, arrow_schema, with_hidden
from meander.run.installation import installation
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import Comparison, compare
from meander.run.step.step import Stepper
from meander.run.store.commit import Commit
from meander.run.store.store import Store

CARS = Schema.of(ts="bigint", id="bigint", road="string", speed="double")
RAIN = Schema.of(ts="bigint", road="string", mm="double")
STREAMS = {
    "cars": Stream("cars", CARS, "ts", ("s0", "s1"), rate_tps=10),
    "rain": Stream("rain", RAIN, "ts", ("s2",), rate_tps=10),
}
SINKS = {name: SinkTarget(name, "cloud") for name in ("one", "two", "three")}
ROADS = ("a1", "b2", None)


def catalog(slots: int = 2) -> Catalog:
    """s0, s1, s2 - edge - cloud; few slots, so that queries spread over several fragments."""
    nodes = [Node(f"s{i}", NodeKind.SENSOR, slots) for i in range(3)]
    nodes += [Node("edge", NodeKind.EDGE, slots), Node("cloud", NodeKind.CLOUD, 100)]
    links = [*(Link(f"s{i}", "edge", 1) for i in range(3)), Link("edge", "cloud", 5)]
    return Catalog(Topology.of(nodes, links), dict(STREAMS), dict(SINKS))


def queries(text: str) -> list[Query]:
    return list(sql(text, STREAMS, SINKS).queries)


def rows_of(stream: str, rng: np.random.Generator, times: np.ndarray) -> pa.Table:
    """Tuples with few distinct values, some of them null."""
    count = len(times)
    roads = [ROADS[i] for i in rng.integers(0, len(ROADS), count)]
    if stream == "rain":
        values = {"ts": times, "road": roads, "mm": rng.integers(0, 8, count) / 2}
    else:
        values = {"ts": times, "id": rng.integers(0, 4, count), "road": roads, "speed": rng.integers(0, 80, count) / 2}
    return pa.table(values, schema=arrow_schema(STREAMS[stream].schema))


@dataclass
class VirtualClock:
    """Time that moves when a test says so."""

    now_ms: int = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Plane:
    """Store, routing table and stepper of some queries; `enter` takes tuples in, `step` runs a slot."""

    def __init__(
        self,
        directory: Path,
        runner: Runner,
        wanted: Sequence[Query],
        *,
        slots: int = 1,
        disorder_ms: int = 0,
        delays_ms: Mapping[ChannelId, int] | None = None,
        clock: Callable[[], int] | None = None,
        late: bool = False,
    ) -> None:
        self.directory, self.runner, self.slots, self.disorder_ms = directory, runner, slots, disorder_ms
        self.clock = clock or VirtualClock()
        self.queries = list(wanted)
        self.catalog = catalog()
        engine = Engine(self.catalog, mechanism("bottom_up"))
        assert not engine.run([QueryAdded(0, q) for q in wanted]).unplaced
        self.deployment: Deployment = deploy(Placed(self.catalog.plan, self.catalog.placement, self.catalog.topology))
        bindings = {f: i % slots for i, f in enumerate(self.deployment.fragments)}
        self.installation = installation(
            self.catalog.plan,
            self.deployment,
            bindings,
            delays_ms,
            [sink for running in self.catalog.plan.queries.values() for sink in running.sinks] if late else (),
        )
        self.entered: dict[str, list[pa.Table]] = defaultdict(list)
        self.reached: dict[tuple[str, str], int] = defaultdict(lambda: BEGIN)
        self.batch = 0
        self.open()
        self.store.commit(Commit(add=self.installation.channels))

    def open(self) -> None:
        """Opens the store, as at the start of a process."""
        self.store = Store.open(self.directory, clock=self.clock)
        self.routing = Routing(self.slots)
        self.routing.install(self.installation.fragments)
        self.stepper = Stepper(self.store, self.routing, self.runner)

    def crash(self) -> None:
        """The process is gone; another one starts on the same directory."""
        self.store.close()
        self.open()

    def enter(self, stream: str, node: str, table: pa.Table) -> None:
        """Takes in tuples of one producer."""
        before = self.reached[stream, node]
        hidden = with_hidden(table, "ts", self.disorder_ms, before)
        newest = int(np.max(table.column("ts").to_numpy(), initial=BEGIN)) - self.disorder_ms
        self.reached[stream, node] = max(before, newest)
        self.entered[stream].append(table.append_column(PRODUCER, pa.array([node] * len(table), pa.string())))
        channels = self.installation.ingest.get((stream, node), ())
        mark = None if self.reached[stream, node] == BEGIN else self.reached[stream, node]
        self.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, mark) for c in channels)))

    def step(self, slot: int | None = None) -> None:
        """One batch of one slot, or of all."""
        for number in range(self.slots) if slot is None else [slot]:
            self.batch += 1
            self.stepper.step(number, self.batch)

    def finish(self) -> None:
        """Ends all streams and steps until nothing waits."""
        channels = [c for readers in self.installation.ingest.values() for c in readers]
        self.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
        ports = [c for f in self.installation.fragments for c in f.ports]
        for _ in range(50):
            self.step()
            starts, ends = self.store.exchange.bounds(ports)
            if (starts == ends).all():
                return
        raise AssertionError("tuples still wait after 50 steps")

    def results(self) -> dict[tuple[str, str], pa.Table]:
        """What every query has emitted, by query and sink."""
        found: dict[tuple[str, str], pa.Table] = {}
        for name, running in self.catalog.plan.queries.items():
            for sink in running.sinks:
                spec = self.catalog.plan[sink].spec
                assert isinstance(spec, Sink)
                channel, exchange = self.installation.results[sink], self.store.exchange
                found[name, spec.name] = exchange.read(channel, exchange.start(channel), exchange.end(channel)).table
        return found

    def compare(self, spark: SparkSession) -> dict[tuple[str, str], Comparison]:
        """Every result against the oracle's."""
        inputs = {
            name: pa.concat_tables(self.entered[name])
            if self.entered[name]
            else arrow_schema(s.schema).append(pa.field(PRODUCER, pa.string())).empty_table()
            for name, s in STREAMS.items()
        }
        found = {}
        for (name, sink), table in self.results().items():
            plan = next(q.plan for q in self.queries if q.id == name)
            found[name, sink] = compare(oracle(spark, plan, inputs, self.disorder_ms)[sink], table)
        return found
