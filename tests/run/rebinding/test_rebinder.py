"""Rebinding: results do not depend on who is bound where, and nobody waits for anybody else."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import OneByOne
from meander.run.fragments.loads import Loads
from meander.run.fragments.rebind_requests import Requests
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT, arrow_schema, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.rebinding.options import Installing, RebindingOptions
from meander.run.rebinding.policies import POLICIES, policy
from meander.run.rebinding.shared_queue import SharedQueue
from meander.run.step.measures import StepMeasures
from meander.run.step.step import Stepper
from meander.run.step.step_lock import StepLock
from meander.run.store.commit import Commit
from meander.run.store.commit import CommitResult as CommitOutcome
from meander.run.store.records.deployment import SlotRecord
from meander.run.store.store import Store
from tests.reconfigure.moving import MovingPlane
from tests.run.harness import STREAMS, Plane, queries, rows_of
from tests.run.step.test_step import QUERIES

ORDERED = "CREATE QUERY all AS SELECT id, speed FROM cars WHERE speed >= 0 INTO one;"


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


# ---------------------------------------------------------------- policies


@st.composite
def some_loads(draw: st.DrawFn) -> tuple[Loads, int]:
    slots, count = draw(st.integers(1, 6)), draw(st.integers(0, 40))
    numbers = st.lists(st.integers(0, 5), min_size=count, max_size=count)
    bound = np.array(draw(numbers), np.int64) % slots
    pending, arrived = (np.array(draw(numbers), np.int64) * 100 for _ in range(2))
    tuple_s = np.array(draw(st.lists(st.sampled_from([0.0, 0.001, 0.02, 1.0]), min_size=count, max_size=count)))
    templates = np.array(draw(numbers), np.int64)
    return Loads(np.arange(count) * 3, bound, pending, arrived, tuple_s.astype(float), templates), slots


@given(some_loads(), st.sampled_from([p.name for p in POLICIES]), st.integers(0, 3))
def test_a_policy_gives_every_fragment_a_slot_and_the_same_one_for_the_same_seed(
    given_loads: tuple[Loads, int], name: str, seed: int
) -> None:
    loads, slots = given_loads
    before = loads.bound.copy()
    found = policy(name).decide(loads, slots, np.random.default_rng(seed))
    assert found.shape == loads.bound.shape
    assert ((found >= 0) & (found < slots)).all()
    assert (loads.bound == before).all()
    assert (found == policy(name).decide(loads, slots, np.random.default_rng(seed))).all()


def algorithm_1(loads: Loads, slots: int, order: Sequence[int]) -> list[int]:
    """The paper's pseudocode, line by line."""
    work = loads.waiting_s
    of_slots = [float(work[loads.bound == t].sum()) for t in range(slots)]
    average = sum(of_slots) / slots
    found: list[int] = loads.bound.tolist()
    for i in order:
        j = int(loads.bound[i])
        if of_slots[j] > average:
            k = of_slots.index(min(of_slots))
            found[i] = k
            of_slots[k] += work[i]
            of_slots[j] -= work[i]
    return found


def test_greedy_is_algorithm_1() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        slots, count = int(rng.integers(2, 8)), int(rng.integers(1, 60))
        pending = rng.integers(1, 1 << 20, count)
        bound = rng.integers(0, slots, count)
        ones = np.ones(count)
        loads = Loads(np.arange(count), bound, pending, bound, ones, bound)
        found = policy("greedy").decide(loads, slots, rng)
        assert found.tolist() == algorithm_1(loads, slots, np.argsort(pending, kind="stable").tolist())


@given(some_loads())
def test_steady_makes_the_busiest_slot_less_busy_or_lets_everything_be(given_loads: tuple[Loads, int]) -> None:
    loads, slots = given_loads
    found = policy("steady").decide(loads, slots, np.random.default_rng(0))
    before = loads.of_slots(loads.coming_s, slots)
    after = np.bincount(found, loads.coming_s, minlength=slots)
    if (found == loads.bound).all():
        return
    if before.max() > 1.2 * before.mean():
        assert after.max() <= before.max()
        assert (after**2).sum() < (before**2).sum()
    else:  # a template was gathered: fewer frames
        assert after.max() <= 1.2 * after.mean() + 0.01
        assert len(set(zip(loads.templates, found, strict=True))) < len(
            set(zip(loads.templates, loads.bound, strict=True))
        )


def test_steady_does_not_swing_when_slots_are_nearly_even() -> None:
    count = 100
    loads = Loads(
        np.arange(count),
        np.arange(count) % 2,
        np.where(np.arange(count) % 2, 100, 110),
        np.zeros(count, np.int64),
        np.full(count, 0.01),
        np.zeros(count, np.int64),
    )
    rng = np.random.default_rng(0)
    assert (policy("steady").decide(loads, 2, rng) == loads.bound).all()
    assert (policy("greedy").decide(loads, 2, rng) != loads.bound).any()


def test_steady_gives_a_whole_template_away_where_that_evens_two_slots_out() -> None:
    rows = np.arange(30)
    templates = rows % 3
    tuple_s = np.array([0.001, 0.04, 0.05])[templates]
    nothing = np.zeros(30, np.int64)
    loads = Loads(rows, nothing, nothing, nothing + 10, tuple_s, templates)
    found = policy("steady").decide(loads, 2, np.random.default_rng(0))
    assert found[templates == 2].tolist() == [1] * 10
    assert found[templates < 2].tolist() == [0] * 20
    again = policy("steady").decide(replace(loads, bound=found), 2, np.random.default_rng(0))
    assert (again == found).all()


def test_steady_gathers_a_template_that_got_scattered_and_then_lets_it_be() -> None:
    rows = np.arange(30)
    templates = rows % 3
    bound = np.where(templates == 0, 0, np.where(rows == 1, 0, 1))  # one fragment of the second is with the first
    tuple_s = np.array([0.1, 0.05, 0.05])[templates]
    nothing = np.zeros(30, np.int64)
    loads = Loads(rows, bound, nothing, nothing + 10, tuple_s, templates)
    found = policy("steady").decide(loads, 2, np.random.default_rng(0))
    assert found[templates == 0].tolist() == [0] * 10
    assert found[templates > 0].tolist() == [1] * 20
    again = policy("steady").decide(replace(loads, bound=found), 2, np.random.default_rng(0))
    assert (again == found).all()
    idle = replace(loads, arrived=nothing)
    assert (policy("steady").decide(idle, 2, np.random.default_rng(0)) == bound).all()


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="greedy"):
        policy("gready")


# ---------------------------------------------------------------- measures


def test_a_groups_time_is_shared_by_tuples_and_old_tuples_fade() -> None:
    measures = StepMeasures(window=100)
    numbers = np.array([3, 9])
    measures.note(numbers, np.array([10, 30]), 4.0)
    assert measures.tuple_s(numbers).tolist() == pytest.approx([0.1, 0.1])
    measures.note(np.array([3]), np.array([100]), 1.0)
    assert measures.tuple_s(np.array([3]))[0] < 0.02
    for _ in range(5):
        measures.note(np.array([3]), np.array([100]), 50.0)
    assert measures.tuple_s(np.array([3]))[0] == pytest.approx(0.5, rel=0.05)
    usual = measures.tuple_s(np.array([3, 4, 9]))[1]
    assert 0.1 <= usual <= 0.5


def test_what_a_frame_takes_without_tuples_belongs_to_no_fragment() -> None:
    measures, numbers = StepMeasures(), np.array([1, 2])
    for n in (100, 10, 50, 200, 30):
        measures.note(numbers, np.array([n, n]), 0.4 + 0.001 * 2 * n, "frame")
    few, many = StepMeasures(), StepMeasures()
    few.note(numbers, np.array([1, 1]), 0.402)
    many.note(numbers, np.array([100, 100]), 0.6)
    assert measures.tuple_s(numbers).max() < many.tuple_s(numbers).max() < few.tuple_s(numbers).max()
    for _ in range(400):
        n = int(np.random.default_rng(_).integers(10, 200))
        measures.note(numbers, np.array([n, n]), 0.4 + 0.001 * 2 * n, "frame")
    assert measures.tuple_s(numbers).tolist() == pytest.approx([0.001, 0.001], rel=0.05)


def test_moves_that_are_decided_and_not_made_yet_are_not_decided_again(runner: PreparedRunner, tmp_path: Path) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=2)
    plane.routing.rebind(dict.fromkeys(plane.routing.fragments, 0))
    requests = plane.stepper.requests
    moved = list(plane.routing.fragments)[::2]
    requests.ask(dict.fromkeys(moved, 1))
    assert requests.under_way() == dict.fromkeys(moved, 1)
    loads = StepMeasures().look(plane.routing, plane.store.exchange)
    assert set(loads.bound.tolist()) == {0}
    asked = loads.with_moves(requests.under_way())
    assert {f for f, slot in zip(asked.fragments.tolist(), asked.bound.tolist(), strict=True) if slot} <= set(moved)
    assert 1 in asked.bound
    requests.ask({moved[0]: 0})
    plane.step(0)
    assert not requests.under_way()
    assert bound(plane)[moved[0]] == 0
    assert bound(plane)[moved[1]] == 1


def test_measures_of_a_step_know_what_waits_what_came_and_what_it_took(runner: PreparedRunner, tmp_path: Path) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES))
    measures = plane.stepper.measures = StepMeasures()
    measures.look(plane.routing, plane.store.exchange)
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.arange(20)))
    waits = measures.look(plane.routing, plane.store.exchange)
    reading = [
        f for f in plane.routing.fragments.values() if set(f.ports) & set(plane.installation.ingest["cars", "s0"])
    ]
    rows = np.searchsorted(waits.fragments, [f.fragment for f in reading])
    assert (waits.pending[rows] >= 20).all()
    assert (waits.arrived[rows] >= 20).all()
    plane.step()
    after = measures.look(plane.routing, plane.store.exchange)
    assert after.pending.sum() == 0
    assert (after.tuple_s[rows] > 0).all()


# ---------------------------------------------------------------- requests


def bound(plane: Plane) -> dict[FragmentId, int]:
    return {f: i.slot for f, i in plane.routing.fragments.items()}


def test_a_request_is_made_by_the_old_slot_and_forwarded_when_it_is_late(
    runner: PreparedRunner, tmp_path: Path
) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=3)
    requests = plane.stepper.requests
    fragment = next(f for f, slot in bound(plane).items() if slot == 0)
    requests.ask({fragment: 1})
    assert bound(plane)[fragment] == 0
    assert requests.are_waiting(0)
    requests.hand_over(1)
    assert bound(plane)[fragment] == 0
    plane.routing.rebind({fragment: 2})  # somebody else was quicker
    requests.hand_over(0)
    assert requests.forwarded == 1
    assert bound(plane)[fragment] == 2
    requests.hand_over(2)
    assert bound(plane)[fragment] == 1
    requests.ask({fragment: 0})
    requests.ask({fragment: 2})
    plane.step(1)
    assert bound(plane)[fragment] == 2
    assert requests.made == 2
    requests.ask({fragment: 0})
    plane.routing.remove([fragment])
    plane.step(2)
    assert fragment not in bound(plane)
    assert not any(requests.are_waiting(s) for s in range(3))
    with pytest.raises(InputError, match="there is no slot 3"):
        requests.ask({fragment: 3})


def test_an_idle_slot_takes_its_share_of_the_queue_and_nothing_from_a_slot_that_works(
    runner: PreparedRunner, tmp_path: Path
) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=2)
    step_locks = [StepLock(), StepLock()]
    plane.routing.rebind(dict.fromkeys(plane.routing.fragments, 1))
    queue = plane.stepper.requests = SharedQueue(plane.routing, plane.store.exchange, step_locks)
    for stream, description in STREAMS.items():
        for node in description.nodes:
            plane.enter(stream, node, rows_of(stream, np.random.default_rng(0), np.arange(20)))
    with step_locks[1]:
        assert not queue.are_waiting(0)
        queue.hand_over(0)
        assert set(bound(plane).values()) == {1}
    assert queue.are_waiting(0)
    plane.step(0)
    assert set(bound(plane).values()) == {0, 1}
    assert not any(b.locked() for b in step_locks)


# ---------------------------------------------------------------- any schedule


class Consumption:
    """Every commit of a step takes each channel on from where the one before left it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached: dict[ChannelId, int] = defaultdict(int)
        self.commits = 0
        commit = Store.commit

        def checked(store: Store, change: Commit) -> CommitOutcome:
            if change.writer.startswith("slot"):
                for channel, stop in change.consumed.items():
                    start = store.exchange.start(channel)
                    assert stop > start >= self.reached[channel]
                    self.reached[channel] = stop
                self.commits += 1
            return commit(store, change)

        monkeypatch.setattr(Store, "commit", checked)


@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_of_rebindings_changes_and_crashes_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    consumption = Consumption(monkeypatch)
    options = RebindingOptions(
        POLICIES[seed % len(POLICIES)].name, installing=list(Installing)[seed % 2], seed=seed, window=50
    )
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, slots=2 + seed % 2, disorder_ms=300, rebinding=options)
    asked = under_way = 0
    for moment in range(10):
        plane.feed(rng, moment * 500)
        plane.apply(*plane.random_events(rng))
        for slot in rng.permutation(plane.slots).tolist():
            rebinder = plane.host.rebinder
            assert rebinder is not None
            known = list(plane.host.routing.fragments)
            moves = {f: int(rng.integers(plane.slots)) for f in known if rng.random() < 0.4}
            rebinder.install(moves)
            asked += len(moves)
            under_way += len(plane.host.routing.awaiting.keys() & moves.keys())
            if rng.random() < 0.7:
                plane.step(slot)
            if rng.random() < 0.3:
                rebinder.look()
        if rng.random() < 0.4:
            plane.poll()
        if rng.random() < 0.2:
            plane.step()
            before = {f: i.slot for f, i in plane.host.routing.fragments.items()}
            plane.crash()
            after = {f: i.slot for f, i in plane.host.routing.fragments.items() if f in before}
            if not policy(options.policy).pulls:
                assert after == {f: before[f] for f in after}
    plane.mend(rng)
    plane.finish()
    assert asked > 20
    assert under_way
    assert consumption.commits > 10
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    assert set(plane.host.store.records(SlotRecord)) <= set(plane.host.routing.fragments)


def test_fragments_are_in_the_slots_that_they_were_moved_to_when_the_host_is_back(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    def opened(slots: int) -> Host:
        host = Host(HostOptions(tmp_path / "host", slots), spark, runner)
        host.install(plane.installation)
        return host

    def bound_now(host: Host) -> dict[FragmentId, int]:
        return {f: i.slot for f, i in host.routing.fragments.items()}

    plane = Plane(tmp_path / "plan", runner, queries(QUERIES), slots=3)
    plane.store.close()
    host = opened(3)
    first = bound_now(host)
    moved = {f: (slot + 1) % 3 for f, slot in list(first.items())[::2]}
    host.stepper.requests.ask(moved)
    for slot in range(3):
        host.stepper.step(slot, 1)
    assert bound_now(host) == {**first, **moved}
    host.store.close()
    host = opened(3)
    assert bound_now(host) == {**first, **moved}
    back = dict.fromkeys(moved, 0)
    host.routing.rebind(back)
    host.bindings.keep()
    host.store.snapshot()
    host.store.close()
    host = opened(3)
    assert bound_now(host) == {**first, **back}
    gone = next(iter(back))
    host.store.commit(Commit(retire=(gone,)))
    assert gone not in host.store.records(SlotRecord)
    host.store.close()
    host = opened(4)  # with another number of slots they are dealt out anew
    assert bound_now(host) == first
    host.store.close()


@pytest.mark.parametrize("policy_name", [p.name for p in POLICIES])
def test_slots_that_step_at_the_same_time_keep_order_and_take_each_tuple_once(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy_name: str
) -> None:
    rng = np.random.default_rng(8)
    consumption = Consumption(monkeypatch)
    wanted = queries(ORDERED + QUERIES.replace("INTO one", "INTO two"))
    plane = Plane(tmp_path, runner, wanted, slots=3)
    step_locks = [StepLock() for _ in range(3)]
    pulls = policy(policy_name).pulls
    requests = SharedQueue(plane.routing, plane.store.exchange, step_locks) if pulls else Requests(plane.routing)
    plane.stepper.requests = requests
    done, failures = threading.Event(), []

    def run(slot: int) -> None:
        stepper, batch = Stepper(plane.store, plane.routing, runner), 0
        stepper.requests = requests
        try:
            while not done.is_set():
                with step_locks[slot]:
                    batch += 1
                    stepper.step(slot, batch)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(slot,)) for slot in range(3)]
    for thread in threads:
        thread.start()
    try:
        for moment in range(25):
            count = 8
            times = moment * 200 + np.arange(count) * 20
            for number, node in enumerate(("s0", "s1")):
                ids = (moment * count + np.arange(count)) * 2 + number
                table = rows_of("cars", rng, times)
                table = table.set_column(1, table.field(1), pa.array(ids, pa.int64()))
                plane.enter("cars", node, table)
            plane.enter("rain", "s2", rows_of("rain", rng, times))
            requests.ask({f: int(rng.integers(3)) for f in plane.routing.fragments if rng.random() < 0.5})
            time.sleep(0.02)
        assert _until(lambda: bool(failures) or (requests.made > 0 and consumption.commits > 2), 90)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
    plane.batch = 1_000_000
    plane.finish()
    assert requests.made
    assert consumption.commits > 2
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}
    ids = plane.results()["all", "one"].column("id").to_numpy()
    assert sorted(ids.tolist()) == list(range(400))
    for number in range(2):
        assert (np.diff(ids[ids % 2 == number]) > 0).all()


# ---------------------------------------------------------------- nobody waits


class Gate(OneByOne):
    """A runner that is stuck with the tuples of one fragment until the gate is opened."""

    def __init__(self, runner: PreparedRunner) -> None:
        self.runner, self.fragment = runner, -1
        self.reached, self.open = threading.Event(), threading.Event()
        self.warm_up, self.is_warm, self.late = runner.warm_up, runner.is_warm, runner.late

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        if any(self.fragment in t.column(FRAGMENT).unique().to_pylist() for t in tables if len(t)):
            self.reached.set()
            assert self.open.wait(300)
        return self.runner.run(stage, tables)


def _until(condition: object, seconds: float = 180.0) -> bool:
    deadline = time.monotonic() + seconds
    assert callable(condition)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.slow
def test_a_slot_stuck_in_a_long_step_holds_up_no_move_between_two_others(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    text = """
    CREATE QUERY slow AS SELECT id, speed FROM cars WHERE speed >= 0 INTO one;
    CREATE QUERY quick AS SELECT road, mm FROM rain WHERE mm >= 0 INTO two;
    """
    plane = Plane(tmp_path / "plan", runner, queries(text))
    plane.store.close()
    gate = Gate(runner)
    host = Host(HostOptions(tmp_path / "host", slots=3, rebinding=RebindingOptions("static", 1000)), spark, gate)
    exchange = host.store.exchange
    reader = {c: f.fragment for f in plane.installation.fragments for c in f.ports}
    stuck = {reader[c] for c in plane.installation.ingest["cars", "s0"]}
    rain = plane.installation.ingest["rain", "s2"]
    mover = reader[rain[0]]
    (right,) = (
        plane.installation.results[s]
        for name, q in plane.catalog.plan.queries.items()
        for s in q.sinks
        if name == "quick"
    )

    def enter(channels: Sequence[ChannelId], stream: str, at: int) -> None:
        table = rows_of(stream, np.random.default_rng(at), np.arange(at, at + 10))
        table = table.cast(arrow_schema(STREAMS[stream].schema))
        hidden = with_hidden(table, "ts", 0, at - 1)
        host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, at + 9) for c in channels)))

    try:
        host.install(plane.installation)
        host.routing.rebind({f: 0 if f in stuck else 1 for f in host.routing.fragments})
        host.start()
        assert host.rebinder is not None
        gate.fragment = min(stuck)
        enter(plane.installation.ingest["cars", "s0"], "cars", 100)
        assert gate.reached.wait(180)
        enter(rain, "rain", 100)
        assert _until(lambda: exchange.counters(right).appended_tuples == 10)
        host.rebinder.install({mover: 2})
        assert _until(lambda: host.routing.fragments[mover].slot == 2)
        enter(rain, "rain", 200)
        assert _until(lambda: exchange.counters(right).appended_tuples == 20)
        assert host.slots[0].step_lock.locked()
        barrier = threading.Thread(target=_install_blocking, args=(host, {mover: 1}))
        barrier.start()
        time.sleep(0.5)
        assert host.routing.fragments[mover].slot == 2  # the barrier waits for the slot that is stuck
        gate.open.set()
        barrier.join(60)
        assert host.routing.fragments[mover].slot == 1
        enter(rain, "rain", 300)
        assert _until(lambda: exchange.counters(right).appended_tuples == 30)
    finally:
        gate.open.set()
        host.stop()


def _install_blocking(host: Host, moves: dict[FragmentId, int]) -> None:
    rebinder = host.rebinder
    assert rebinder is not None
    rebinder.options = RebindingOptions("static", 1000, Installing.BLOCKING)
    rebinder.install(moves)
