"""Running queries while everything moves: the output is the oracle's, and nothing of the past is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.coordinator.loop import loop
from meander.model.errors import InputError
from meander.model.events import LinkAdded, LinkRemoved, NodeRemoved, PlacementChanged
from meander.model.operators import STATEFUL, WindowAggregate
from meander.model.topology.elements import Link
from meander.reconfigure.agent.failover import GONE
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.emulated_paths import Paths
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.stage_plans import StagePlans
from meander.run.fragments.routing import Installed
from meander.run.installation import OUTSIDE
from meander.run.store.commit import Commit
from meander.run.store.commit import CommitResult as CommitOutcome
from meander.run.store.journal import DiskFullError
from meander.run.store.records.progress import LostStateRecord
from meander.run.store.store import Store
from tests.reconfigure.moving import EDGES, MovingPlane
from tests.run.full_now import FullNow
from tests.run.harness import rows_of
from tests.run.step.test_step import QUERIES


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


@pytest.mark.parametrize("strategy", [None, "store_and_forward", "replay"])
@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_of_changes_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, strategy: str | None
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(
        tmp_path,
        spark,
        runner,
        QUERIES,
        slots=1 + seed % 2,
        disorder_ms=300,
        strategy=strategy,
        sends_ahead=seed % 2 == 1,
    )
    for moment in range(10):
        plane.feed(rng, moment * 500)
        if rng.random() < 0.7:
            plane.apply(*plane.random_events(rng))
        for slot in range(plane.slots):
            if rng.random() < 0.7:
                plane.step(slot)
        if rng.random() < 0.8:
            plane.poll()
        if rng.random() < 0.2:
            plane.crash()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


class CrashError(BaseException):
    """The process dies here."""


class Bomb:
    """Lets the process die at random commits, before or after they are written."""

    def __init__(self, rng: np.random.Generator, share: float) -> None:
        self.rng, self.share, self.armed, self.blasts = rng, share, False, 0
        self.commit = Store.commit

    def dies(self, store: Store, change: Commit) -> CommitOutcome:
        hit = self.armed and self.rng.random() < self.share
        before = hit and self.rng.random() < 0.5
        self.blasts += hit
        if before:
            raise CrashError
        outcome = self.commit(store, change)
        if hit:
            raise CrashError
        return outcome


@pytest.mark.parametrize("strategy", [None, "replay"])
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_crash_at_any_commit_of_a_change_or_a_step_leaves_the_output_as_it_is(
    spark: SparkSession,
    runner: PreparedRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    strategy: str | None,
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(
        tmp_path,
        spark,
        runner,
        QUERIES,
        slots=1 + seed % 2,
        disorder_ms=300,
        strategy=strategy,
        sends_ahead=seed % 2 == 1,
    )
    bomb = Bomb(rng, 0.2)
    monkeypatch.setattr(Store, "commit", lambda store, change: bomb.dies(store, change))

    def survive(action: Callable[[], None]) -> None:
        bomb.armed = True
        try:
            action()
        except CrashError:
            bomb.armed = False
            plane.crash()
        bomb.armed = False

    for moment in range(10):
        plane.feed(rng, moment * 500)
        events = plane.random_events(rng)
        survive(partial(plane.apply, *events))
        survive(plane.step)
        survive(plane.poll)
    plane.mend(rng)
    plane.finish()
    assert bomb.blasts
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


@pytest.mark.parametrize("strategy", [None, "replay"])
@pytest.mark.parametrize("seed", [331, *range(200, 205)])
def test_a_disk_that_is_full_at_any_commit_of_a_change_leaves_nothing_undone(
    spark: SparkSession,
    runner: PreparedRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    strategy: str | None,
) -> None:
    """The process goes on: what was decided begins later, and what began goes on."""
    rng = np.random.default_rng(seed)
    plane = MovingPlane(
        tmp_path,
        spark,
        runner,
        QUERIES,
        slots=1 + seed % 2,
        disorder_ms=300,
        strategy=strategy,
        sends_ahead=seed % 2 == 1,
    )
    full = FullNow(rng.random, 0.3)
    monkeypatch.setattr(loop, "AGAIN_S", 0.0)
    for moment in range(10):
        plane.feed(rng, moment * 500)
        events = plane.lose_or_return_sensor() if moment % 3 == 2 else plane.random_events(rng)
        monkeypatch.setattr(Store, "commit", lambda store, change: full.commits(store, change))
        for action in (partial(plane.apply, *events), plane.poll, plane.poll):
            with suppress(DiskFullError, InputError):  # also: a sensor that is away has no link to lose
                action()
        monkeypatch.setattr(Store, "commit", full.commit)
        plane.step()
    plane.mend(rng)
    plane.finish()
    assert full.refused
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_a_fragment_goes_on_whose_node_is_back_when_its_change_is_taken_back(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node goes, it is to be elsewhere, its node comes back, and the place it was to have goes."""
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    plane.apply(PlacementChanged(0, aggregate, "e2"))
    for _ in range(5):
        plane.step()
        plane.poll()
    fragment = plane.loop.deployer.deployment.owner[aggregate]
    monkeypatch.setattr(StagePlans, "are_ready", lambda plans, fragments: False)  # no marker before the next look
    plane.host.routing.pause(fragment, f"{GONE}: e2")  # as if the node had gone, before anything else could happen
    plane.apply(PlacementChanged(0, aggregate, "e1"))
    (number,) = plane.loop.deployer.under_way
    plane.loop._take_note(plane.loop.driver.abort(number, "its target is gone"))
    assert fragment not in plane.host.routing.paused


def test_a_change_whose_markers_found_no_room_and_is_taken_back_leaves_nobody_waiting_for_them(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    commit = Store.commit

    def full(store: Store, what: Commit) -> Any:
        if what.appends:
            raise DiskFullError("there is no room")
        return commit(store, what)

    monkeypatch.setattr(Store, "commit", full)
    monkeypatch.setattr(StagePlans, "are_ready", lambda plans, fragments: True)
    plane.apply(PlacementChanged(0, aggregate, "e2"))
    (number,) = plane.loop.deployer.under_way
    assert {m.reconfiguration for m in plane.host.routing.awaiting.values()} == {number}
    plane.loop._take_note(plane.loop.driver.abort(number, "its target is gone"))
    assert [f.reason for f in plane.loop.deployer.failures] == ["its target is gone"]
    assert not plane.host.routing.awaiting


def test_queries_that_come_and_go_do_not_disturb_those_that_stay(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    for moment in range(8):
        plane.feed(rng, moment * 500)
        if moment % 2:
            plane.add_query(
                f"CREATE QUERY new{moment} AS SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO two;"
                f"CREATE QUERY mean{moment} AS SELECT road, avg(speed) AS v FROM cars GROUP BY road "
                "WINDOW TUMBLING(ts, 1 s) INTO three;"
            )
        elif moment > 1:
            plane.remove_query(f"new{moment - 1}")
            plane.remove_query(f"mean{moment - 1}")
        plane.apply(*plane.random_events(rng))
        plane.step()
        plane.poll()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    for name in list(plane.catalog.plan.queries):
        plane.remove_query(name)
        plane.finish()
    assert not plane.host.routing.fragments
    assert not plane.host.store.state.fragments()
    assert not plane.host.feeding.channels
    assert [c for c in plane.host.store.exchange.channels() if c < OUTSIDE] == []


def test_a_change_whose_target_disappears_is_taken_back_and_made_anew(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(9)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    plane.feed(rng, 0)
    plane.step()
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    plane.apply(PlacementChanged(0, aggregate, "e2"))
    assert plane.loop.deployer.under_way
    plane.apply(NodeRemoved(0, "e2"))
    plane.away.add("e2")
    assert [f.reason for f in plane.loop.deployer.failures] == ["node e2, where fragments were to go, is gone"]
    for moment in range(1, 5):
        plane.feed(rng, moment * 500)
        plane.step()
        plane.poll()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_taking_back_waits_for_the_step_in_which_fragments_stop(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """A fragment that stopped for a change after that was taken back would stop for good."""
    rng = np.random.default_rng(10)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    plane.feed(rng, 0)
    plane.step()
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    plane.apply(PlacementChanged(0, aggregate, "e2"))
    (number,) = plane.loop.deployer.under_way
    plane.poll()
    assert plane.host.routing.awaiting
    plane.feed(rng, 500)
    begun, go_on = threading.Event(), threading.Event()

    def slow_step() -> None:
        with plane.host.slots[0].step_lock:
            begun.set()
            go_on.wait()
            plane.step()

    stepping = threading.Thread(target=slow_step, daemon=True)
    taking_back = threading.Thread(target=plane.apply, args=(NodeRemoved(0, "e2"),), daemon=True)
    stepping.start()
    begun.wait()
    taking_back.start()
    taking_back.join(0.3)
    assert taking_back.is_alive()
    go_on.set()
    stepping.join()
    taking_back.join()
    plane.away.add("e2")
    assert number not in plane.host.routing.drained.values()
    assert [f.number for f in plane.loop.deployer.failures] == [number]
    for moment in range(2, 5):
        plane.feed(rng, moment * 500)
        plane.step()
        plane.poll()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_a_change_that_is_taken_back_before_its_markers_were_put_in_leaves_nothing_behind(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no room for them, nor for taking it back at first: its channels are not there then."""
    rng = np.random.default_rng(11)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    plane.feed(rng, 0)
    plane.step()
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    commit, driver = Store.commit, plane.loop.driver

    def full(store: Store, what: Commit) -> Any:
        if what.add or what.rewire:
            raise DiskFullError("there is no room")
        return commit(store, what)

    monkeypatch.setattr(StagePlans, "are_ready", lambda plans, fragments: True)
    monkeypatch.setattr(Store, "commit", full)
    plane.apply(PlacementChanged(0, aggregate, "e2"))
    (number,) = plane.loop.deployer.under_way
    assert driver.progress[number].marked is None
    monkeypatch.setattr(Store, "commit", _never)
    with pytest.raises(DiskFullError):
        plane.poll()
    assert number in driver.under_way
    monkeypatch.setattr(Store, "commit", commit)
    plane.poll()
    assert [f.reason for f in plane.loop.deployer.failures] == ["its markers could not be put in: there is no room"]
    assert number not in driver.under_way
    for moment in range(1, 5):
        plane.feed(rng, moment * 500)
        plane.step()
        plane.poll()
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def _never(store: Store, what: Commit) -> None:
    raise DiskFullError("there is no room")


COUNTS = """
CREATE QUERY counts AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one;
"""


@pytest.mark.parametrize("idle_timeout_ms", [None, 1_000])
def test_time_waits_for_a_device_that_is_away_or_goes_on_without_it_after_a_while(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, idle_timeout_ms: int | None
) -> None:
    rng = np.random.default_rng(3)
    plane = MovingPlane(tmp_path, spark, runner, COUNTS, idle_timeout_ms=idle_timeout_ms)
    late = entered = 0

    def enter(node: str, first_ms: int) -> None:
        plane.enter("cars", node, rows_of("cars", rng, np.arange(first_ms, first_ms + 1000, 100)))

    def counted() -> int:
        return sum(sum(t.column("n").to_pylist()) for t in plane.results().values())

    for moment in range(8):
        if moment == 2:
            plane.apply(LinkRemoved(0, "s1", "e1"))
        if moment == 6:
            plane.apply(LinkAdded(0, Link("s1", "e2", 1)))
        for node in ("s0", "s1"):
            enter(node, moment * 1000)
            entered += 10
        plane.clock.now_ms += 700
        plane.step()
        plane.poll()
        if moment == 5:
            assert counted() >= 40 if idle_timeout_ms else counted() <= 40
            before = counted()
            plane.crash()
    plane.finish()
    late = sum(plane.host.store.counter(f, "late") for f in plane.host.routing.fragments)
    assert counted() + late == entered
    assert counted() > before
    assert (late > 0) == (idle_timeout_ms is not None)
    if idle_timeout_ms is None:
        assert all(c.equal for c in plane.compare().values())


ALL_KINDS = """
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS v FROM cars GROUP BY road
  WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO one;
CREATE QUERY trips AS SELECT id, count(*) AS n, max(speed) AS top FROM cars GROUP BY id
  WINDOW SESSION(ts, 400 ms) INTO two;
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO three;
"""


@pytest.mark.parametrize("seed", range(201, 204))
def test_state_that_is_lost_with_its_node_is_built_anew_from_what_senders_kept(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(tmp_path, spark, runner, ALL_KINDS, disorder_ms=300, replicas=0)
    stateful = [o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, STATEFUL)]
    plane.apply(*(PlacementChanged(0, o, f"e{i % EDGES}") for i, o in enumerate(stateful)))
    rebuilt: list[int] = []
    rebuild = UpstreamBackup.rebuild

    def counted(backup: UpstreamBackup, fragment: Installed) -> int:
        assert not backup.store.state.size(fragment.fragment).rows
        rebuilt.append(rebuild(backup, fragment))
        return rebuilt[-1]

    monkeypatch.setattr(UpstreamBackup, "rebuild", counted)
    for moment in range(12):
        plane.feed(rng, moment * 500)
        plane.clock.now_ms += int(rng.integers(0, 1_500))
        if moment in (5, 9):
            plane.apply(*plane._fail_or_return(rng))
        elif rng.random() < 0.3:
            plane.apply(*plane.random_events(rng))
        if rng.random() < 0.8:
            plane.step()
        plane.poll()
        if rng.random() < 0.2:
            plane.crash()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    assert not plane.host.store.records(LostStateRecord)
    assert rebuilt


def test_nothing_takes_effect_before_all_state_has_a_way(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(12)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    plane.feed(rng, 0)
    plane.step()
    (aggregate,) = (o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate))
    with monkeypatch.context() as patch:
        patch.setattr(Paths, "hops", lambda paths, origin, destination: None)
        plane.apply(PlacementChanged(0, aggregate, "e2"))
        for moment in range(1, 4):
            plane.feed(rng, moment * 500)
            plane.step()
            plane.poll()
            assert plane.loop.deployer.under_way
    plane.finish()
    assert not plane.loop.deployer.failures
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
