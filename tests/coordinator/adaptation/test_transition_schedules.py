"""Transitions while devices come and go, tuples come out of order, and the process dies: the output is the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.adapt.decisions import Transition
from meander.adapt.per_query import PerQuery
from meander.adapt.transition_prediction import AT_ONCE, BESIDE, WITH_STATE, TransitionPrediction
from meander.coordinator.adaptation.transition_predictor import Ends, SlowRoute, TransitionPace, TransitionPredictor
from meander.coordinator.adaptation.transitions import PROTOCOLS, Transitions
from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.protocols.transitions import Itinerary, TransitionProtocol
from meander.model.errors import InputError
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import WindowAggregate
from meander.place.mechanisms import mechanism
from meander.run.execution.prepared import PreparedRunner
from meander.run.store.records.decisions import TransitionRecord
from meander.run.store.records.reconfigurations import OverlapRecord
from meander.run.store.store import Store
from tests.reconfigure.agent.test_agent import Bomb, CrashError
from tests.reconfigure.moving import MovingPlane

NAMES = ("bottom_up", "top_down", "random")
ONE_STREAM = (
    "SELECT road, count(*) AS n, avg(speed) AS v FROM cars GROUP BY road WINDOW TUMBLING(ts, 700 ms)",
    "SELECT road, sum(speed) AS s, top_k(speed, 2) AS top FROM cars GROUP BY road "
    "WINDOW SLIDING(ts, 900 ms, 300 ms) ALLOW LATENESS 200 ms",
    "SELECT id, count(*) AS n, max(speed) AS top FROM cars GROUP BY id WINDOW SESSION(ts, 250 ms)",
    "SELECT road, sum(speed) AS v FROM cars GROUP BY road WINDOW COUNT(4, 3)",
    "SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10",
)
TWO_STREAMS = (
    "SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 600 ms",
    "SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WINDOW SLIDING(800 ms, 400 ms)",
    "SELECT a.id, a.speed, b.mm FROM cars AS a, rain AS b MATCH a THEN b WITHIN 400 ms",
    "SELECT count(*) AS n, max(id) AS m FROM (SELECT a.id AS id, b.mm AS mm FROM cars AS a, rain AS b "
    "MATCH a AND b WINDOW TUMBLING(200 ms)) WINDOW SLIDING(600 ms, 200 ms)",
    "SELECT mm, count(*) AS n FROM (SELECT b.mm AS mm FROM cars AS a JOIN rain AS b ON a.road = b.road "
    "WITHIN 300 ms WHERE a.speed > 5) GROUP BY mm WINDOW TUMBLING(500 ms)",
)
WINDOWED = ONE_STREAM[:2]
"""Those whose state need not move."""
NESTED = TWO_STREAMS[3:]
"""Those with two operators whose state need not move."""
SINKS = ("one", "two", "three")


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


class Mixing(TransitionPredictor):
    """Finds states so large and so small, by chance, that `auto` lets some operators move and runs others beside."""

    def __init__(self, loop: PlacementLoop, rng: np.random.Generator, ways: set[str]) -> None:
        super().__init__(loop)
        self.rng, self.ways = rng, ways

    def _state_of(self, operator: OperatorId) -> int:
        """Mostly of joins, so that they run beside and windows over them move."""
        is_window = isinstance(self.loop.catalog.plan[operator].spec, WindowAggregate)
        return int(self.rng.choice([0, 10**9], p=[0.8, 0.2] if is_window else [0.2, 0.8]))

    def _slow_route(self, source: NodeId, target: NodeId) -> SlowRoute | None:
        return SlowRoute({0: 8.0}, 0.01)

    def plan(self, protocol: TransitionProtocol, moves: Ends) -> tuple[Itinerary, TransitionPrediction]:
        self.pace = TransitionPace(phase_s=0.0)  # otherwise one that begins beside would often take all others along
        itinerary, prediction = super().plan(protocol, moves)
        self.ways.add(" and ".join(sorted({o.way for o in prediction.operators if o.way != AT_ONCE})))
        return itinerary, prediction


class Schedule:
    """A plane with some of the queries, which switch mechanisms again and again."""

    def __init__(
        self,
        path: Path,
        spark: SparkSession,
        runner: PreparedRunner,
        seed: int,
        protocol: str,
        one_stream: Sequence[str] = ONE_STREAM,
        two_streams: Sequence[str] = TWO_STREAMS,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.protocol, self.ways = protocol, set[str]()
        self.targets: Sequence[str] = NAMES
        chosen = [str(self.rng.choice(one_stream)), *map(str, self.rng.choice(two_streams, 2, replace=False))]
        text = "".join(f"CREATE QUERY q{i} AS {body} INTO {SINKS[i]};\n" for i, body in enumerate(chosen))
        library = PerQuery({name: mechanism(name) for name in NAMES}, NAMES[0])
        disorder_ms = int(self.rng.choice([0, 300]))
        self.plane = MovingPlane(path, spark, runner, text, slots=1 + seed % 2, disorder_ms=disorder_ms, chosen=library)
        self.present = dict.fromkeys((str(q.id) for q in self.plane.wanted), NAMES[0])
        self.transitions = self._transitions(self.plane.loop)
        self.plane.restore = self._restore
        self.moved = self.crashes = self.forks = self.resumed = 0

    def _transitions(self, loop: PlacementLoop) -> Transitions:
        found = Transitions(loop, self.protocol)
        if found.protocol.is_auto:
            found.predictor = Mixing(loop, self.rng, self.ways)
        return found

    def switch(self) -> None:
        query = str(self.rng.choice(sorted(self.present)))
        target = str(self.rng.choice([n for n in self.targets if n != self.present[query] or n == "random"]))
        try:
            self.transitions.start(Transition(QueryId(query), self.present[query], target, {}, 0))
        except InputError:
            return  # it is in one, or there is no place
        self.present[query] = target

    def crash(self) -> None:
        """What was under way goes on where it was."""
        self.crashes += 1
        self.plane.crash()

    def _restore(self, loop: PlacementLoop) -> Callable[[], None]:
        self.transitions = self._transitions(loop)
        self.resumed += len(self.transitions.restore())
        self.forks += len(loop.host.store.records(OverlapRecord))
        return self.transitions.resume

    def poll(self) -> None:
        before = set(self.plane.loop.driver.forked)
        self.plane.poll()
        self.forks += len(set(self.plane.loop.driver.forked) - before)
        for query in self.transitions.poll():
            cost = self.transitions.costs[query]
            self.moved += cost.moved
            assert not any(m.state_bytes for m in cost.operators if m.overlapped)
            assert sum(m.state_bytes for m in cost.operators) <= cost.state_bytes

    def finish(self) -> None:
        self.plane.mend(self.rng)
        self.plane.finish()
        while self.transitions.under_way:
            self.poll()
            self.plane.finish()

    def check(self) -> None:
        assert {name: c for name, c in self.plane.compare().items() if not c.equal} == {}
        self.plane.check_deployment()
        placed = self.plane.loop.deployer.placed
        assert not placed.held
        assert not placed.apart
        assert not self.plane.loop.deployer.special


def play(schedule: Schedule, *, events: float, crashes: float) -> None:
    rng, plane = schedule.rng, schedule.plane
    for moment in range(12):
        plane.feed(rng, moment * 400)
        plane.clock.now_ms += 100
        if rng.random() < events:
            plane.apply(*plane.random_events(rng))
        if rng.random() < 0.5:
            schedule.switch()
        for slot in range(plane.slots):
            if rng.random() < 0.8:
                plane.step(slot)
        if rng.random() < 0.8:
            schedule.poll()
        if rng.random() < crashes:
            schedule.crash()
    schedule.finish()
    schedule.check()


@pytest.mark.parametrize(("seed", "protocol"), [*enumerate(PROTOCOLS[:-2], 100), (106, "auto"), (108, "restart")])
def test_queries_that_switch_give_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, protocol: str
) -> None:
    schedule = Schedule(tmp_path, spark, runner, seed, protocol)
    play(schedule, events=0.0, crashes=0.0)
    assert schedule.moved


@pytest.mark.parametrize(
    ("seed", "protocol"), list(enumerate(("mfgs_concurrent", "auto", "sms_concurrent", "restart"), 200))
)
def test_so_they_do_while_everything_moves_and_the_process_dies(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, protocol: str
) -> None:
    play(Schedule(tmp_path, spark, runner, seed, protocol), events=0.2, crashes=0.08)


@pytest.mark.parametrize(("seed", "crashes"), [(504, 0.0), (503, 0.1)])
def test_operators_of_one_query_move_with_their_state_and_begin_beside(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, crashes: float
) -> None:
    schedule = Schedule(tmp_path, spark, runner, seed, "auto", WINDOWED, NESTED)
    schedule.targets = ("random",)
    play(schedule, events=crashes, crashes=crashes)
    assert f"{BESIDE} and {WITH_STATE}" in schedule.ways


@pytest.mark.parametrize(("seed", "protocol"), [(301, "sms_concurrent"), (302, "sms_sequential")])
def test_a_crash_at_any_commit_leaves_the_output_as_it_is(
    spark: SparkSession,
    runner: PreparedRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    protocol: str,
) -> None:
    schedule = Schedule(tmp_path, spark, runner, seed, protocol, WINDOWED)
    bomb = Bomb(schedule.rng, 0.15)
    monkeypatch.setattr(Store, "commit", lambda store, change: bomb.dies(store, change))
    crash_anywhere(schedule, bomb)
    assert bomb.blasts
    assert schedule.forks
    assert schedule.resumed
    assert not schedule.plane.host.store.records(TransitionRecord)


def crash_anywhere(schedule: Schedule, bomb: Bomb) -> None:
    """Crashes come at any commit: when a transition is written down, at the fork, in between, at the join."""

    def survive(action: Callable[[], None]) -> None:
        bomb.armed = True
        try:
            action()
        except CrashError:
            bomb.armed = False
            schedule.crash()
        bomb.armed = False

    for moment in range(60):
        if moment >= 12 and schedule.forks and schedule.resumed:
            break
        schedule.plane.feed(schedule.rng, moment * 400)
        if not schedule.transitions.under_way:
            survive(schedule.switch)
        survive(schedule.plane.step)
        survive(schedule.poll)
    schedule.finish()
    schedule.check()
