"""One bad query stops nobody: what fails is found, set apart and paused, and everything else goes on exactly."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.deploy.fragments import Fragment
from meander.lang import sql
from meander.model.errors import InputError
from meander.model.events import PlacementChanged, QueryAdded
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, OperatorId, QueryId
from meander.model.operators import Source, WindowAggregate
from meander.place.mechanisms import mechanism
from meander.reconfigure.driver import participants
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Ran, Task
from meander.run.failures import Cause
from meander.run.fragments.template import Stage
from meander.run.frames import arrow_schema
from meander.run.installation import OUTSIDE, Installation
from meander.run.installation import install as real_install
from meander.run.oracle.comparison import Comparison
from meander.run.resuming import resume
from meander.run.step.retries import PAUSE_PER_TRY
from meander.run.store.commit import Commit, RemoveChannel
from meander.run.store.store import Store
from tests.reconfigure.agent.test_agent import Bomb, CrashError
from tests.reconfigure.moving import MovingPlane
from tests.run.harness import CARS, SINKS, STREAMS, rows_of
from tests.run.user_functions import FLAG

BAD = "7.25"
"""A number that only the bad query's expression has."""
TEXT = f"""
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, max(speed) AS top FROM cars WHERE speed > 10
  GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO two;
CREATE QUERY bad AS SELECT road, sum(w) AS total FROM (SELECT ts, road, speed * {BAD} AS w FROM cars WHERE speed > 10)
  GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO three;
"""


FORKED = f"""
CREATE QUERY fast AS SELECT id, speed, road FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, max(speed) AS top FROM cars WHERE speed > 10
  GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO two;
CREATE QUERY bad AS SELECT a.w, b.speed FROM (SELECT ts, id, road, speed * {BAD} AS w FROM cars) AS a
  JOIN (SELECT ts, id, speed, road FROM cars WHERE speed > 10) AS b ON a.road = b.road AND a.id = b.id
  WITHIN 500 ms INTO three;
"""
"""Operators of one fragment read the same sources, some of which fail: both parts need what waits."""


class Breakable:
    """A runner whose stages fail that have the bad query's expression, for as long as somebody says so."""

    def __init__(self, real: PreparedRunner) -> None:
        self.real = real
        self.error: Exception | None = None
        self.most_rows = 0
        """How many rows do no harm."""

    def warm_up(self, stages: Iterable[Stage]) -> None:
        self.real.warm_up(stages)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return self.real.is_warm(stages)

    def _check(self, stage: Stage, tables: Sequence[pa.Table]) -> None:
        if self.error is None or sum(map(len, tables)) <= self.most_rows:
            return
        if any(BAD in repr(node.operator) for node in stage.nodes):
            raise self.error

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self._check(stage, tables)
        return self.real.run(stage, tables)

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        for task in tasks:
            self._check(*task)
        return self.real.run_all(tasks)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self._check(stage, tables)
        return self.real.late(stage, tables)


@pytest.fixture(scope="module")
def prepared(spark: SparkSession) -> Iterator[PreparedRunner]:
    found = PreparedRunner(spark)
    yield found
    found.close()


@pytest.fixture
def runner(prepared: PreparedRunner) -> Breakable:
    return Breakable(prepared)


def operators_of(plane: MovingPlane, text: str) -> set[OperatorId]:
    return {o for o, record in plane.catalog.plan.operators.items() if text in repr(record.spec)}


def go_on(plane: MovingPlane, times: int = 3) -> None:
    for _ in range(times):
        plane.step()
        plane.poll()


def compare(plane: MovingPlane, *names: str) -> dict[str, Comparison]:
    return {name: c for name, c in plane.compare().items() if not c.equal and (not names or name in names)}


ERRORS = [
    ValueError("no such value"),
    KeyError("c7"),
    ImportError("no module named x"),
    pickle.PicklingError("it cannot be pickled"),
    pa.ArrowInvalid("it does not fit"),
    InputError("no channel 77"),
    PySparkException("[CAST_INVALID_INPUT] it cannot be cast"),
    RecursionError("too deep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_any_kind_pauses_the_operators_that_fail_and_nothing_else(
    spark: SparkSession, runner: Breakable, tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(1)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    bad = operators_of(plane, BAD)
    for moment in range(8):
        runner.error = error if moment >= 3 else None
        plane.feed(rng, 600 * moment)
        go_on(plane, 2)
    deployment = plane.loop.deployer.deployment
    paused = {deployment.owner[o] for o in bad}
    assert set(plane.host.routing.paused) == paused
    assert all(not set(deployment.fragments[f].operators) - bad for f in paused)
    assert {p.operators for p in plane.host.routing.pauses.values()} == {frozenset([o]) for o in bad}
    assert len([r for r in caplog.records if "is paused" in r.message]) == len(bad)  # told once
    plane.finish()
    assert compare(plane, "fast", "load") == {}
    runner.error = None
    assert resume(plane.host) == [f"fragment {f}" for f in sorted(paused)]
    plane.finish()
    assert compare(plane) == {}
    assert not plane.loop.deployer.placed.apart
    plane.check_deployment()


@pytest.mark.usefixtures("unguarded_round")
def test_a_real_value_that_breaks_a_real_expression_takes_nothing_else_along(
    spark: SparkSession, prepared: PreparedRunner, tmp_path: Path
) -> None:
    """`round(i, -1)` of the largest number there is: three queries shared a fragment, and all of them stood still."""
    text = f"""
    CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one;
    CREATE QUERY load AS SELECT road, count(*) AS n FROM cars WHERE speed > 10 GROUP BY road
      WINDOW TUMBLING(ts, 1 s) INTO two;
    CREATE QUERY tens AS SELECT round(id + {2**63 - 1 - LARGEST}, -1) AS tens FROM cars WHERE speed > 10 INTO three;
    """
    plane = MovingPlane(tmp_path, spark, prepared, text)
    before = {"ts": [0, 100], "id": [-50, -40], "road": ["a1", "b2"], "speed": [20.0, 30.0]}
    plane.enter("cars", "s0", pa.table(before, schema=arrow_schema(CARS)))
    go_on(plane)
    done = len(plane.results()["tens"])
    assert done == 2
    poison = {"ts": [1000, 1100], "id": [-30, LARGEST], "road": ["a1", "b2"], "speed": [20.0, 30.0]}
    plane.enter("cars", "s0", pa.table(poison, schema=arrow_schema(CARS)))
    go_on(plane)
    assert {p.operators for p in plane.host.routing.pauses.values()} == {frozenset([o]) for o in failing(plane)}
    plane.wanted = [q for q in plane.wanted if q.id != "tens"]  # what the oracle cannot compute either
    plane.finish()
    assert compare(plane) == {}
    assert len(plane.results()["tens"]) == done


LARGEST = 3


def failing(plane: MovingPlane) -> set[OperatorId]:
    """The operators of the source at s0 that round."""
    plan = plane.catalog.plan
    rounding = operators_of(plane, "function='round'")
    at_s0 = {o for o, r in plan.operators.items() if isinstance(r.spec, Source) and r.spec.node == "s0"}
    return {o for o in rounding if any(i in at_s0 for f in plan[o].inputs for i in plan[f].inputs)}


def test_a_fragment_that_has_lost_a_channel_stops_itself_and_nobody_else(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    plane.feed(rng, 0)
    go_on(plane)
    deployment = plane.loop.deployer.deployment
    union = next(o for o in plane.catalog.plan.serving(QueryId("bad")) if len(plane.catalog.plan[o].inputs) == 2)
    channel = next(c for c in deployment.channels.values() if c.receiver == deployment.owner[union])
    plane.host.store.commit(Commit(remove=(RemoveChannel(channel.id, discard=True),)))
    for moment in range(1, 4):
        plane.feed(rng, 600 * moment)
        go_on(plane)
    assert all("no channel" in reason for reason in plane.host.routing.paused.values())
    assert set(plane.host.routing.paused) <= {channel.sender, channel.receiver, deployment.owner[union]} | {
        f
        for f in deployment.fragments
        if set(deployment.fragments[f].operators) <= {*plane.catalog.plan.serving(QueryId("bad"))}
    }
    plane.finish()
    assert compare(plane, "fast", "load") == {}


def test_tuples_that_the_store_does_not_take_stop_their_query_and_no_other(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    plane.feed(rng, 0)
    go_on(plane)
    (sink,) = plane.catalog.plan.queries[QueryId("bad")].sinks
    plane.host.store.commit(Commit(remove=(RemoveChannel(ChannelId(OUTSIDE + sink), discard=True),)))
    for moment in range(1, 4):
        plane.feed(rng, 600 * moment)
        go_on(plane)
    (reason,) = plane.host.routing.paused.values()
    assert f"no channel {OUTSIDE + sink}" in reason
    plane.finish()
    kept = [q for q in plane.wanted if q.id != "bad"]
    plane.remove_query("bad")
    plane.wanted = kept
    go_on(plane)
    assert compare(plane) == {}


def test_a_failing_infrastructure_is_tried_again_less_and_less_often_and_nobody_has_to_resume_anything(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    plane.host.stepper.setbacks.clock = plane._seconds
    pauses: list[float] = []
    for moment in range(12):
        runner.error = None if moment < 2 else PySparkException("Lost executor 1: it exited with code 137")
        plane.feed(rng, 600 * moment)
        go_on(plane, 1)
        found = {p.until - plane._seconds() for p in plane.host.routing.pauses.values() if p.until is not None}
        pauses += found
        plane.clock.now_ms += 1_000 * int(max(found, default=0)) + 1_000
    assert sorted(pauses) == pauses
    assert (pauses[0], pauses[-1]) == (0.5, 30.0)
    assert all(p.cause is Cause.INFRASTRUCTURE for p in plane.host.routing.pauses.values())
    assert any(problem.startswith("fragment") and " waits: " in problem for problem in plane.host.status().problems)
    assert not plane.loop.deployer.placed.apart  # nobody is blamed
    runner.error = None
    plane.clock.now_ms += 60_000
    plane.finish()
    assert not plane.host.routing.paused
    assert compare(plane) == {}
    plane.check_deployment()


ENDLESS = {
    "a worker that ends": PySparkException("Python worker exited unexpectedly (crashed)"),
    "memory that never does": PySparkException("The function failed: MemoryError\n: java.lang.OutOfMemoryError: no"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_fails_again_and_again_kept_all_that_shared_its_fragment_waiting_for_ever(
    spark: SparkSession, runner: Breakable, tmp_path: Path, what: str
) -> None:
    rng = np.random.default_rng(11)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    plane.host.stepper.setbacks.clock = plane._seconds
    bad = operators_of(plane, BAD)
    for moment in range(8):
        runner.error = ENDLESS[what] if moment >= 2 else None
        plane.feed(rng, 600 * moment)
        go_on(plane, 2)
        plane.clock.now_ms += 31_000
    go_on(plane)
    deployment = plane.loop.deployer.deployment
    paused = {deployment.owner[o] for o in bad}
    assert set(plane.host.routing.paused) == paused
    assert all(not set(deployment.fragments[f].operators) - bad for f in paused)
    assert all(p.until is not None and p.operators <= bad for p in plane.host.routing.pauses.values())
    plane.finish()
    assert compare(plane, "fast", "load") == {}
    runner.error = None
    plane.clock.now_ms += 31_000  # nobody resumes anything
    plane.finish()
    assert not plane.host.routing.paused
    assert not plane.loop.deployer.placed.apart
    assert compare(plane) == {}
    plane.check_deployment()


def test_what_does_not_fit_into_memory_is_read_in_smaller_portions_by_its_own_fragments_only(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    plane = MovingPlane(tmp_path, spark, runner, TEXT)
    runner.error, runner.most_rows = PySparkException(": java.lang.OutOfMemoryError: Java heap space"), 300
    times = np.arange(0, 4_000)
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(5), times))
    plane.host.stepper.reader.most_rows = 2_000
    go_on(plane, 30)
    assert not plane.host.routing.paused
    routing, setbacks = plane.host.routing, plane.host.stepper.setbacks
    limits = {f.bound.template.key: setbacks.most_rows(f.bound.template.key, 2_000) for f in routing.fragments.values()}
    assert set(limits.values()) == {2_000, 125}
    plane.finish()
    assert compare(plane) == {}


def test_a_query_that_is_paused_stops_at_once_and_leaves_nothing_behind(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(6)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    for moment in range(6):
        runner.error = ValueError("no such value") if moment > 2 else None
        plane.feed(rng, 600 * moment)
        go_on(plane, 1)
    assert plane.host.routing.paused
    plane.remove_query("bad")
    plane.wanted = [q for q in plane.wanted if q.id != "bad"]
    go_on(plane)
    assert not plane.loop.deployer.has_open_changes
    assert not plane.host.routing.paused
    assert not plane.loop.deployer.placed.apart
    plane.feed(rng, 6 * 600)
    plane.finish()
    assert compare(plane) == {}
    plane.check_deployment()


def test_what_is_healthy_moves_beside_a_query_that_is_paused_and_so_does_that_one(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    moves = [(o, node) for o in operators_of(plane, BAD) for node in ("e2", "cloud")]
    moves += [(o, "e1") for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate)]
    runner.error = ValueError("no such value")
    for moment, (operator, node) in enumerate(moves):
        plane.feed(rng, 600 * moment)
        go_on(plane, 1)
        plane.apply(PlacementChanged(0, operator, node))
        go_on(plane)
        assert not plane.loop.deployer.under_way
        assert plane.host.routing.paused
    runner.error = None
    resume(plane.host)
    plane.finish()
    assert compare(plane) == {}
    plane.check_deployment()


def test_after_a_restart_those_that_failed_are_tried_again_and_stay_apart_if_they_fail_again(
    spark: SparkSession, runner: Breakable, tmp_path: Path
) -> None:
    rng = np.random.default_rng(8)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    runner.error = ValueError("no such value")
    plane.feed(rng, 0)
    go_on(plane)
    apart, outcomes = dict(plane.loop.deployer.placed.apart), len(plane.outcomes)
    assert apart
    plane.crash()
    assert plane.loop.deployer.placed.apart == apart
    plane.feed(rng, 600)
    go_on(plane)
    assert plane.host.routing.paused
    assert len(plane.outcomes) == outcomes  # nobody tried to join anything
    runner.error = None
    plane.crash()
    plane.finish()
    assert not plane.loop.deployer.placed.apart
    assert compare(plane) == {}
    plane.check_deployment()


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_commit_of_a_split_leaves_the_output_as_it_is(
    spark: SparkSession, runner: Breakable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(tmp_path, spark, runner, FORKED, chosen=mechanism("top_down"), disorder_ms=300)
    bomb = Bomb(rng, 0.35)
    monkeypatch.setattr(Store, "commit", lambda store, change: bomb.dies(store, change))
    for moment in range(8):
        plane.feed(rng, 600 * moment)
        runner.error = ValueError("no such value") if moment % 4 in (1, 2) else None
        if runner.error is None:
            resume(plane.host)
        for action in (plane.step, plane.poll, plane.poll, plane.step, plane.poll):
            bomb.armed = True
            try:
                action()
            except CrashError:
                bomb.armed = False
                plane.crash()
            bomb.armed = False
    runner.error = None
    resume(plane.host)
    plane.finish()
    assert bomb.blasts
    assert compare(plane) == {}
    plane.check_deployment()


def test_a_change_that_cannot_begin_keeps_no_other_from_beginning(
    spark: SparkSession, runner: Breakable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(9)
    plane = MovingPlane(tmp_path, spark, runner, "CREATE QUERY fast AS SELECT id FROM cars WHERE speed > 10 INTO one;")
    broken = True

    def install(plan: GlobalPlan, fragments: Iterable[Fragment], *rest: Any, **named: Any) -> Installation:
        found = list(fragments)
        if broken and any("rain" in repr(plan[o].spec) for f in found for o in f.operators):
            raise KeyError("no such template")
        return real_install(plan, found, *rest, **named)

    monkeypatch.setattr(participants, "install", install)
    wet = sql("CREATE QUERY wet AS SELECT mm * 2 AS twice FROM rain WHERE mm > 1 INTO two;", STREAMS, SINKS).queries
    more = sql("CREATE QUERY more AS SELECT road FROM cars WHERE speed > 20 INTO three;", STREAMS, SINKS).queries
    plane.apply(*(QueryAdded(0, q) for q in (*wet, *more)))
    plane.wanted += [*wet, *more]
    go_on(plane)
    assert {o.reason for o in plane.outcomes if o.reason} == {"it could not begin: KeyError: 'no such template'"}
    plane.feed(rng, 0)
    go_on(plane)
    (sink,) = plane.catalog.plan.queries[QueryId("more")].sinks
    assert plane.host.store.exchange.counters(ChannelId(OUTSIDE + sink)).appended_tuples
    broken = False
    monkeypatch.setattr(plane.loop._retries, "_not_before", 0.0)
    plane.entered["rain"].clear()  # nobody read it so far
    go_on(plane)
    plane.feed(rng, 600)
    plane.finish()
    assert compare(plane) == {}
    plane.check_deployment()


def test_a_worker_that_dies_is_waited_for_and_its_query_goes_on_by_itself(
    spark: SparkSession, prepared: PreparedRunner, tmp_path: Path
) -> None:
    text = """
    CREATE QUERY good AS SELECT id, speed FROM cars WHERE speed >= 0 INTO one;
    CREATE QUERY fragile AS SELECT * FROM APPLY('tests.run.user_functions:dies', cars)
      RETURNS (ts bigint, id bigint, road string, speed double) INTO two;
    """
    plane = MovingPlane(tmp_path, spark, prepared, text)
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(10), np.arange(20)))
    FLAG.touch()
    try:
        go_on(plane, 1)
        pause = next(iter(plane.host.routing.pauses.values()))
        assert pause.cause is Cause.INFRASTRUCTURE
        assert pause.reason.startswith("org.apache.spark.SparkException: Python worker exited unexpectedly")
        assert len(plane.results()["good"]) == 20
    finally:
        FLAG.unlink()
    plane.host.stepper.setbacks.clock = lambda: pause.until or 0.0
    plane.finish()
    assert not plane.host.routing.paused
    assert compare(plane) == {}


def test_a_function_that_never_returns_stopped_its_slot_for_ever(
    spark: SparkSession, prepared: PreparedRunner, tmp_path: Path
) -> None:
    text = """
    CREATE QUERY good AS SELECT id, speed FROM cars WHERE speed >= 0 INTO one;
    CREATE QUERY endless AS SELECT * FROM APPLY('tests.run.user_functions:hangs', cars)
      RETURNS (ts bigint, id bigint, road string, speed double) INTO two;
    """
    plane = MovingPlane(tmp_path, spark, prepared, text)
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(12), np.arange(20)))
    limit = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
    before = spark.conf.get(limit)
    spark.conf.set(limit, "1")
    FLAG.touch()
    try:
        go_on(plane, 1)
        pause = next(iter(plane.host.routing.pauses.values()))
        assert pause.cause is Cause.INFRASTRUCTURE
        assert len(plane.results()["good"]) == 20
    finally:
        FLAG.unlink()
        spark.conf.set(limit, str(before))
    plane.host.stepper.setbacks.clock = lambda: pause.until or 0.0
    plane.finish()
    assert compare(plane) == {}


def test_what_takes_long_to_fail_is_not_tried_again_so_soon_that_others_have_no_time(
    spark: SparkSession, runner: Breakable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(13)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, disorder_ms=300)
    plane.host.stepper.setbacks.clock = plane._seconds
    check = runner._check

    def slow(stage: Stage, tables: Sequence[pa.Table]) -> None:
        try:
            check(stage, tables)
        except PySparkException:
            plane.clock.now_ms += 20_000
            raise

    monkeypatch.setattr(runner, "_check", slow)
    runner.error = PySparkException("Python worker exited unexpectedly (crashed)")
    for moment in range(3):
        plane.feed(rng, 600 * moment)
    for tries in range(3):
        plane.step()
        pauses = [p.until - plane._seconds() for p in plane.host.routing.pauses.values() if p.until is not None]
        assert pauses
        assert max(pauses) >= (PAUSE_PER_TRY * 20 if tries else 0.5)
        plane.clock.now_ms += int(1_000 * max(pauses)) + 1_000


def test_fragments_of_one_template_waited_for_the_one_whose_value_kills_its_worker(
    spark: SparkSession, runner: Breakable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"CREATE QUERY bad AS SELECT id, speed * {BAD} AS w FROM cars WHERE speed > 10 INTO one"
    plane = MovingPlane(tmp_path, spark, runner, text)
    plane.host.stepper.setbacks.clock = plane._seconds
    check = runner._check

    def only_777(stage: Stage, tables: Sequence[pa.Table]) -> None:
        if any(777.0 in column.to_pylist() for table in tables for column in table.columns):
            check(stage, tables)

    monkeypatch.setattr(runner, "_check", only_777)
    runner.error = PySparkException("Python worker exited unexpectedly (crashed)")
    for node, speed in (("s0", 777.0), ("s1", 20.0)):
        values = {"ts": [0, 100], "id": [1, 2], "road": ["a1", "b2"], "speed": [speed, 30.0]}
        plane.enter("cars", node, pa.table(values, schema=arrow_schema(CARS)))
    plane.step()
    assert len(plane.host.routing.pauses) == 2
    plane.clock.now_ms += 1_000
    go_on(plane)
    (paused,) = plane.host.routing.pauses
    assert plane.catalog.topology.name(plane.loop.deployer.deployment.fragments[paused].node) == "s0"
    assert len(plane.results()["bad"]) == 2
    runner.error = None
    plane.clock.now_ms += 31_000
    plane.finish()
    assert compare(plane) == {}


@pytest.mark.usefixtures("unguarded_round")
def test_operators_that_fail_for_different_reasons_in_one_fragment_were_all_blamed_for_one(
    spark: SparkSession, prepared: PreparedRunner, tmp_path: Path
) -> None:
    """A function that cannot be imported, one that kills its worker and an expression, all behind one filter."""
    text = f"""
    CREATE QUERY good AS SELECT id * 2 AS twice FROM cars WHERE speed >= 0 INTO one;
    CREATE QUERY tens AS SELECT round(id + {2**63 - 1 - LARGEST}, -1) AS tens FROM cars WHERE speed >= 0 INTO two;
    CREATE QUERY absent AS SELECT * FROM APPLY('tests.run.no_such_module:run', (SELECT * FROM cars WHERE speed >= 0))
      RETURNS (id bigint) INTO three;
    CREATE QUERY fragile AS SELECT * FROM APPLY('tests.run.user_functions:dies', (SELECT * FROM cars WHERE speed >= 0))
      RETURNS (ts bigint, id bigint, road string, speed double) INTO three;
    """
    plane = MovingPlane(tmp_path, spark, prepared, text, room=20)
    plane.host.stepper.setbacks.clock = plane._seconds
    fragments, name = plane.loop.deployer.deployment.fragments.values(), plane.catalog.topology.name
    (shared,) = [f for f in fragments if name(f.node) == "s0"]
    assert len(shared.operators) >= 5
    poison = {"ts": [1000, 1100], "id": [-30, LARGEST], "road": ["a1", "b2"], "speed": [20.0, 30.0]}
    plane.enter("cars", "s0", pa.table(poison, schema=arrow_schema(CARS)))
    FLAG.touch()
    try:
        for _ in range(12):
            go_on(plane, 1)
            plane.clock.now_ms += 600_000
        assert len(plane.results()["good"]) == 2
        go_on(plane, 1)
        plan, pauses = plane.catalog.plan, plane.host.routing.pauses.values()
        told = {q: p for q in plan.queries for p in pauses if not p.operators.isdisjoint(plan.serving(q))}
        assert {q: p.is_for_good for q, p in told.items()} == {"tens": True, "absent": True, "fragile": False}
        assert "ARITHMETIC_OVERFLOW" in told[QueryId("tens")].reason
        assert "no_such_module" in told[QueryId("absent")].reason
        assert "Python worker exited unexpectedly" in told[QueryId("fragile")].reason
    finally:
        FLAG.unlink()
    plane.clock.now_ms += 600_000
    plane.wanted = [q for q in plane.wanted if q.id in ("good", "fragile")]
    plane.finish()
    assert compare(plane) == {}


@pytest.mark.parametrize("seed", range(4))
def test_queries_beside_one_that_fails_now_and_then_give_the_oracles_output_and_so_does_that_one_in_the_end(
    spark: SparkSession, runner: Breakable, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(tmp_path, spark, runner, TEXT, slots=1 + seed % 2, disorder_ms=300)
    for moment in range(14):
        plane.clock.now_ms += 500
        plane.feed(rng, 600 * moment)
        match int(rng.integers(0, 6)):
            case 0 | 1:
                runner.error = None if runner.error else ValueError("no such value")
            case 2:
                plane.apply(*plane.random_events(rng))
            case 3:
                resume(plane.host)
            case 4 if seed % 2:
                plane.crash()
        for _ in range(int(rng.integers(0, 3))):
            plane.step()
            plane.poll()
    runner.error = None
    plane.mend(rng)
    go_on(plane)
    resume(plane.host)
    plane.finish()
    assert not plane.host.routing.paused
    assert compare(plane) == {}
    plane.check_deployment()
