"""Crashes of a whole site host, sources to sinks: nothing is lost and nothing is double.

A hundred crashes inside this process, at any write of the journal, before and after any job and inside a sink; and a
few real ones: a child process is killed at random moments and started again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang.query_files import load_queries
from meander.lang.topology.reader import load
from meander.local.run_plan import LocalPlan, plan_queries
from meander.model.plan import Query
from meander.run.connectors import source_for
from meander.run.connectors.base import Surroundings
from meander.run.connectors.cut_file import CutFile
from meander.run.delivery.delivery import Delivery
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Ran, Task
from meander.run.fragments.routing import Routing
from meander.run.fragments.template import Stage
from meander.run.host import Host, HostOptions
from meander.run.ingest.ingest import Ingest, IngestOptions
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import compare
from meander.run.session import start_session
from meander.run.step.step import Stepper
from meander.run.store.commit import Commit
from meander.run.store.records.progress import IngestRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.store.crash.faults import Crash, FaultyFiles

TOPOLOGY = """
nodes:
  - {{name: s0, kind: sensor, slots: 2}}
  - {{name: s1, kind: sensor, slots: 2}}
  - {{name: s2, kind: sensor, slots: 2}}
  - {{name: edge, kind: edge, slots: 2}}
  - {{name: cloud, kind: cloud, slots: 100}}
links:
  - {{source: s0, target: edge, latency_ms: 1}}
  - {{source: s1, target: edge, latency_ms: 1}}
  - {{source: s2, target: edge, latency_ms: 1}}
  - {{source: edge, target: cloud, latency_ms: 5}}
streams:
  - name: cars
    schema: {{ts: bigint, id: bigint, road: string, speed: double}}
    event_time: ts
    nodes: [s0, s1]
    rate_tps: {rate_tps}
    options: {{connector: random, tuples: "{tuples}", disorder: 300ms, late: "0.05", late_by: 2s,
      values.road: "a1,b2", range.id: "0..4", range.speed: "0..40"}}
  - name: rain
    schema: {{ts: bigint, road: string, mm: double}}
    event_time: ts
    nodes: [s2]
    rate_tps: {rate_tps}
    options: {{connector: random, tuples: "{tuples}", disorder: 300ms, values.road: "a1,b2", range.mm: "0..8"}}
sinks:
  - {{name: one, node: cloud}}
  - {{name: two, node: cloud}}
  - {{name: three, node: cloud}}
"""
QUERIES = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS v, max(speed) AS top FROM cars WHERE id < 3
  GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO two;
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND a.speed > b.mm
  WITHIN 500 ms INTO three;
"""
DISORDER_MS = 300
CRASHES = 120
KILLS = 2


def planned(directory: Path, rate_tps: float, tuples: int) -> tuple[LocalPlan, Sequence[Query]]:
    """The same plan in every process that is given the same directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "topology.yaml").write_text(TOPOLOGY.format(rate_tps=rate_tps, tuples=tuples))
    (directory / "queries.sql").write_text(QUERIES)
    world = load(directory / "topology.yaml")
    queries = load_queries(directory / "queries.sql", world.streams, world.sinks).queries
    return plan_queries(world, queries, "bottom_up"), queries


def everything(plan: LocalPlan, directory: Path) -> dict[str, pa.Table]:
    """All that the generators emit, given where the store says that they began."""
    store = Store.open(directory / "store")
    inputs = {}
    for name in ("cars", "rain"):
        stream = plan.catalog.streams[name]
        source = source_for(stream, Surroundings(directory, directory))
        taken = store.record(IngestRecord, name)
        assert taken is not None
        epoch = int(taken.offset["epoch"])
        source.open(stream, {"epoch": epoch, "at": epoch - 1}, epoch)
        polled = source.poll(epoch + 10**9, 10**9)
        assert polled is not None
        assert polled.ended
        producers = np.asarray(stream.nodes, dtype=object)[polled.producers]
        inputs[name] = polled.table.append_column(PRODUCER, pa.array(producers, pa.string()))
    store.close()
    return inputs


def check_files(spark: SparkSession, plan: LocalPlan, queries: Sequence[Query], directory: Path) -> None:
    inputs = everything(plan, directory)
    for query in queries:
        for sink, expected in oracle(spark, query.plan, inputs, DISORDER_MS).items():
            lines = (directory / f"{query.id}-{sink}.jsonl").read_text().splitlines()
            actual = pa.Table.from_pylist([json.loads(line) for line in lines], schema=expected.schema)
            comparison = compare(expected, actual)
            assert comparison.equal, (query.id, comparison)
            assert comparison.expected > 20


# ------------------------------------------------------------------ inside this process


class Bomb:
    """Goes off at the n-th time that it is passed; `at` none means never."""

    def __init__(self) -> None:
        self.at: int | None = None

    def passed(self) -> bool:
        if self.at is None:
            return False
        self.at -= 1
        if self.at >= 0:
            return False
        self.at = None
        return True


class CrashingRunner:
    """Runs stages; the process may end before or after a job."""

    def __init__(self, runner: PreparedRunner) -> None:
        self.runner, self.bomb = runner, Bomb()

    def warm_up(self, stages: Iterable[Stage]) -> None:
        self.runner.warm_up(stages)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return self.runner.is_warm(stages)

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.run_all([Task(stage, tables)])[0].result

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        if self.bomb.passed():
            raise Crash("before a job")
        result = self.runner.run_all(tasks)
        if self.bomb.passed():
            raise Crash("after a job")
        return result

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.runner.late(stage, tables)


class Machine:
    """A site host without threads and without Spark's streaming queries: ingest, steps and delivery by hand."""

    def __init__(self, directory: Path, plan: LocalPlan, runner: CrashingRunner) -> None:
        self.directory, self.plan, self.runner = directory, plan, runner
        self.now_ms, self.batch = 1_000_000, 0
        self.files = FaultyFiles()
        self.start()
        self.store.commit(Commit(add=plan.installation.channels))

    def start(self) -> None:
        clock = lambda: self.now_ms  # noqa: E731
        self.files = FaultyFiles()
        options = StoreOptions(segment_bytes=30_000, memory_budget_bytes=20_000)
        self.store = Store.open(self.directory / "store", options, clock=clock, files=self.files)
        routing = Routing(1)
        routing.install(self.plan.installation.fragments)
        self.stepper = Stepper(self.store, routing, self.runner)
        around = Surroundings(self.directory, self.directory)
        streams = [self.plan.catalog.streams[name] for name in ("cars", "rain")]
        limits = IngestOptions(most_rows=60)
        channels = self.plan.installation.ingest
        self.ingest = Ingest(self.store, streams, channels, clock=clock, options=limits, surroundings=around)
        self.delivery = Delivery(self.store, self.plan.sink_bindings, clock=clock, surroundings=around)

    def crash(self) -> None:
        """Only what the end of a process does: files and locks are let go."""
        self.store.close()
        self.start()

    def moment(self, rng: random.Random) -> None:
        """What the threads of a host do, in some order."""
        self.now_ms += rng.randrange(10, 150)
        for action in rng.sample([self.ingest.tick, self.step, self.delivery.tick], 3):
            action()

    def step(self) -> None:
        self.stepper.step(0, self.batch)
        self.batch += 1  # Spark notes a batch as done after it; until then it calls again with the same number

    @property
    def done(self) -> bool:
        exchange = self.store.exchange
        ports = [c for f in self.plan.installation.fragments for c in f.ports]
        starts, ends = exchange.bounds(ports)
        waits = any(exchange.counters(o.channel).pending_tuples for o in self.plan.sink_bindings)
        return self.ingest.ended and bool((starts == ends).all()) and not waits


def arm(machine: Machine, bomb: Bomb, rng: random.Random) -> str:
    """Chooses where the next crash is: a write (torn anywhere), a job, a sink's write, or right behind a step."""
    kind = rng.choice(["write", "write", "write", "job", "job", "sink", "sink"])
    if kind == "write":
        machine.files.crash_at = machine.files.calls + rng.randrange(12)
        machine.files.written_part = rng.choice([0.0, rng.random(), 1.0])
    elif kind == "job":
        machine.runner.bomb.at = rng.randrange(8)
    else:
        bomb.at = rng.randrange(4)
    return kind


@pytest.mark.slow
def test_a_hundred_crashes_anywhere_lose_nothing_and_double_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(17)
    plan, queries = planned(tmp_path, rate_tps=40, tuples=800)
    runner = CrashingRunner(PreparedRunner(spark))
    sink_bomb = Bomb()
    append = CutFile.append

    def torn_append(file: CutFile, data: bytes) -> int:
        if sink_bomb.passed():
            append(file, data[: rng.randrange(len(data) + 1)])
            raise Crash("inside a sink")
        return append(file, data)

    monkeypatch.setattr(CutFile, "append", torn_append)
    machine = Machine(tmp_path, plan, runner)
    machine.ingest.tick()  # the streams begin here
    crashes: dict[str, int] = {}
    kind = arm(machine, sink_bomb, rng)
    while not machine.done:
        try:
            machine.moment(rng)
        except Crash:
            crashes[kind] = crashes.get(kind, 0) + 1
            sink_bomb.at = runner.bomb.at = None
            machine.crash()
            if sum(crashes.values()) < CRASHES:
                kind = arm(machine, sink_bomb, rng)
    machine.store.close()
    runner.runner.close()
    assert sum(crashes.values()) >= 100, crashes
    assert min(crashes.values()) > 5
    check_files(spark, plan, queries, tmp_path)


# ------------------------------------------------------------------ in a process of its own


def run_host(directory: Path) -> None:
    """What the child does: a host on the directory until all streams have ended and everything is delivered."""
    plan, _ = planned(directory, rate_tps=100, tuples=3_000)
    spark = start_session("meander-recovery", cores=2)
    host = Host(HostOptions(directory, slots=2), spark)
    around = Surroundings(directory, directory)
    host.install(plan.installation)
    host.start()
    host.deliver(plan.sink_bindings, around)
    host.feeding.begin([plan.catalog.streams[name] for name in ("cars", "rain")], around)
    say("running")
    assert host.feeding.ingest is not None
    while not host.feeding.ingest.ended:
        status = host.status()
        assert status.alive, status.problems
        assert not status.paused, status.problems
        time.sleep(0.1)
    assert host.drain(timeout_s=200)
    host.stop()
    spark.stop()
    say("finished")


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


@pytest.mark.slow
def test_a_host_that_is_killed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    delays_s = [rng.uniform(0.5, 6) for _ in range(KILLS)]
    log = tmp_path / "log"
    for delay_s in [*delays_s, None]:
        with log.open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.reconfigure.test_recovery", str(tmp_path / "host")],
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"running\n", log.read_text()[-2000:]
            if delay_s is None:
                assert child.stdout.readline() == b"finished\n", log.read_text()[-2000:]
                assert child.wait(300) == 0
            else:
                time.sleep(delay_s)
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # its Java and Python workers too
            child.wait()
    plan, queries = planned(tmp_path / "host", rate_tps=100, tuples=3_000)
    check_files(spark, plan, queries, tmp_path / "host")


if __name__ == "__main__":
    run_host(Path(sys.argv[1]))
