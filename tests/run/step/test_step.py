"""Steps over real Spark: whatever the cuts, slots and crashes, the output is the oracle's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.operator_at_a_time import operator_stages, steps_of
from meander.run.execution.rewrites.rewrite import followed
from meander.run.execution.runner import PlainRunner, Ran, Runner, Task
from meander.run.fragments.template import Stage
from meander.run.resident import resident
from meander.run.store.commit import Commit
from meander.run.store.store import Store
from tests.run.harness import STREAMS, Plane, VirtualClock, queries, rows_of

QUERIES = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS v, max(speed) AS top FROM cars WHERE id < 3
  GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO two;
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND a.speed > b.mm
  WITHIN 1 s INTO three;
"""


def feed(plane: Plane, rng: np.random.Generator, at_ms: int, disorder_ms: int) -> None:
    """A moment of traffic: some producers emit, out of order and sometimes too late."""
    for stream, description in STREAMS.items():
        for node in description.nodes:
            if rng.random() < 0.8:
                count = int(rng.integers(0, 12))
                times = at_ms + rng.integers(0, 700, count) - rng.integers(0, disorder_ms + 600, count)
                plane.enter(stream, node, rows_of(stream, rng, times))


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    """Plans are prepared once for all tests here, as they are for all batches of a host."""
    prepared = PreparedRunner(spark)
    yield prepared
    assert set(prepared.refused.values()) <= {"its physical plan has MapInArrow"}
    prepared.close()


class ByOperator(PreparedRunner):
    """Runs every stage operator by operator."""

    def __init__(self, prepared: PreparedRunner) -> None:
        self.prepared = prepared

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        return [Ran(self.run(*task), 0.0) for task in tasks]

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        if not stage.nodes:
            return self.prepared.run(stage, tables)
        return followed(
            steps_of(Task(stage, tables), operator_stages(stage)),
            lambda tasks: [self.prepared.run(*task) for task in tasks],
        )

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.prepared.late(stage, tables)


@pytest.mark.parametrize(("seed", "slots"), [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1), (6, 2)])
def test_any_cut_and_any_crash_gives_the_oracles_output(
    spark: SparkSession,
    runner: PreparedRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    slots: int,
) -> None:
    if seed % 2:
        monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 5)
    if seed > 2:
        monkeypatch.setattr(resident, "LEAST_ROWS", 0)
        monkeypatch.setattr(resident, "FEW", 0)
    rng = np.random.default_rng(seed)
    others: dict[int, Runner] = {1: PlainRunner(spark), 2: ByOperator(runner), 5: ByOperator(runner)}
    plane = Plane(tmp_path, others.get(seed, runner), queries(QUERIES), slots=slots, disorder_ms=300)
    for moment in range(6):
        feed(plane, rng, moment * 700, 300)
        for slot in range(slots):
            if rng.random() < 0.7:
                plane.step(slot)
        if rng.random() < 0.4:
            plane.crash()
    plane.finish()
    comparisons = plane.compare(spark)
    assert {name: c for name, c in comparisons.items() if not c.equal} == {}
    assert sum(c.expected for c in comparisons.values()) > 50


class CrashError(Exception):
    """The process dies here."""


def test_a_crash_before_or_after_the_commit_of_a_step_changes_nothing(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    plane = Plane(tmp_path, runner, queries(QUERIES), disorder_ms=300)
    commit = Store.commit
    for moment in range(6):
        feed(plane, rng, moment * 700, 300)
        after = moment % 2

        def dies(store: Store, change: Commit, after: int = after) -> Any:
            if change.writer.startswith("slot"):
                if after:
                    commit(store, change)
                raise CrashError
            return commit(store, change)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "commit", dies)
            with pytest.raises(CrashError):
                plane.step()
        plane.crash()
        plane.batch -= 1  # Spark calls again for the batch that it had begun
        plane.step()
    plane.finish()
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}


def test_a_repeated_batch_is_recognised(runner: PreparedRunner, tmp_path: Path) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES))
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(20)))
    assert plane.stepper.step(0, 5).tuples_in > 0
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(20, 40)))
    again = plane.stepper.step(0, 5)
    assert again.repeated
    assert again.tuples_in == 0
    assert plane.stepper.step(0, 6).tuples_in > 0


def test_rebinding_between_steps_changes_no_result(spark: SparkSession, runner: PreparedRunner, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=2, disorder_ms=300)
    for moment in range(5):
        feed(plane, rng, moment * 700, 300)
        plane.step(moment % 2)
        moved = {f: int(rng.integers(2)) for f in plane.routing.fragments if rng.random() < 0.5}
        plane.routing.rebind(moved)
    plane.finish()
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}


def test_a_fragment_whose_user_function_fails_is_paused_and_others_go_on(
    runner: PreparedRunner, tmp_path: Path
) -> None:
    text = """
    CREATE QUERY good AS SELECT id, speed FROM cars WHERE speed >= 0 INTO one;
    CREATE QUERY bad AS SELECT * FROM APPLY('tests.run.user_functions:fails_on_a1', cars)
      RETURNS (ts bigint, id bigint, road string, speed double) INTO two;
    """
    plane = Plane(tmp_path, runner, queries(text))
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(20)))
    plane.step()
    assert len(plane.routing.paused) == 1
    assert "road a1 is closed" in next(iter(plane.routing.paused.values()))
    assert len(plane.results()["good", "one"]) == 20
    assert len(plane.results()["bad", "two"]) == 0


def test_a_step_that_is_interrupted_pauses_nobody_and_is_done_again(
    runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = Plane(tmp_path, runner, queries("CREATE QUERY all AS SELECT id FROM cars WHERE speed >= 0 INTO one"))
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(20)))
    tries: list[Stage] = []

    def interrupted(stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        tries.append(stage)
        raise PySparkException("java.lang.InterruptedException: the query is being stopped")

    with monkeypatch.context() as patched:
        patched.setattr(runner, "run", interrupted)
        with pytest.raises(PySparkException, match="being stopped"):
            plane.stepper.step(0, 1)
    assert len(tries) == 1
    assert not plane.routing.paused
    plane.stepper.step(0, 1)
    assert len(plane.results()["all", "one"]) == 20


def test_emulated_latency_only_delays(spark: SparkSession, runner: PreparedRunner, tmp_path: Path) -> None:
    wanted = queries(QUERIES)
    probe = Plane(tmp_path / "probe", runner, wanted)
    delays = {c.id: 40 for c in probe.deployment.channels.values()}
    probe.store.close()
    clock = VirtualClock()
    plane = Plane(tmp_path / "real", runner, wanted, delays_ms=delays, clock=clock)
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(0, 3000, 100)))
    plane.enter("rain", "s2", rows_of("rain", np.random.default_rng(1), np.arange(0, 3000, 100)))
    plane.step()
    assert all(len(t) == 0 for name, t in plane.results().items() if name[0] == "wet")
    clock.now_ms += 40
    plane.step()
    assert any(len(t) for name, t in plane.results().items() if name[0] == "wet")
    for _ in range(4):
        plane.finish()
        clock.now_ms += 40
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}
