"""Several amenders: where they may work at the same time, and that it changes no placement of independent deltas."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from lab.workloads.isqp import MANY_SLOTS, Meshes
from meander.adapt.per_query import PerQuery
from meander.model.errors import InputError
from meander.model.events import QueryAdded, QueryRemoved
from meander.model.global_plan import OperatorState
from meander.model.ids import OperatorId
from meander.model.placement import violations
from meander.place import engine as engines
from meander.place.amenders.count import by_cores, check_amenders
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import BottomUp
from meander.place.mechanisms.solvers.exact import Assignment
from meander.place.mechanisms.solvers.milp import Limits, solve
from meander.place.problem import Problem, Proposal
from tests.place.test_engine import check_conserved

HARD = Meshes(4, 6, 1)
WAIT_S = 20.0


class Meeting(BottomUp):
    """Places like bottom_up, but waits for a second amender: says whether one came."""

    def __init__(self, leaves_lock: bool) -> None:
        super().__init__()
        self.metadata = Metadata((), "waits for company", leaves_lock=leaves_lock)
        self.barrier = threading.Barrier(2)
        self.threads: set[str] = set()

    def place(self, problem: Problem) -> Proposal:
        self.threads.add(threading.current_thread().name)
        if threading.current_thread().name.startswith("amender"):
            self.barrier.wait(WAIT_S)
        return super().place(problem)


def added(engine: Engine, shape: Meshes, number: int = 0) -> list[QueryAdded]:
    events = [QueryAdded(0, q) for q in shape.queries(number)]
    report = engine.run(events)
    assert report.deltas == shape.meshes
    return events


def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "by_cores", lambda: 2)


def test_large_deltas_are_placed_at_the_same_time_when_the_solver_leaves_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two_cores(monkeypatch)
    meeting = Meeting(leaves_lock=True)
    engine = Engine(HARD.catalog(), meeting, amenders=None)
    added(engine, HARD)
    engine.close()
    assert len(meeting.threads) == 2
    assert not meeting.barrier.broken
    assert not violations(engine.catalog.plan, engine.catalog.placement, engine.catalog.topology)


def test_nobody_is_woken_by_default_for_a_mechanism_that_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores(monkeypatch)
    meeting = Meeting(leaves_lock=False)
    engine = Engine(HARD.catalog(), meeting, amenders=None)
    added(engine, HARD)
    engine.close()
    assert meeting.threads == {threading.current_thread().name}


def test_amenders_that_are_asked_for_work_whatever_the_mechanism() -> None:
    meeting = Meeting(leaves_lock=False)
    engine = Engine(HARD.catalog(), meeting, amenders=2)
    added(engine, HARD)
    engine.close()
    assert len(meeting.threads) == 2


def test_large_deltas_of_a_small_batch_were_left_to_one_amender() -> None:
    """Two deltas of 14 free operators are fewer operators than a batch needs otherwise."""
    meeting = Meeting(leaves_lock=True)
    shape = Meshes(2, 6, 1)
    engine = Engine(shape.catalog(), meeting, amenders=2)
    added(engine, shape)
    engine.close()
    assert len(meeting.threads) == 2


def test_small_deltas_are_amended_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores(monkeypatch)
    meeting = Meeting(leaves_lock=True)
    shape = Meshes(40, 2, 4)
    engine = Engine(shape.catalog(), meeting, amenders=None)
    added(engine, shape)
    engine.close()
    assert meeting.threads == {threading.current_thread().name}


def test_removals_are_no_work_for_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores(monkeypatch)
    meeting = Meeting(leaves_lock=True)
    engine = Engine(HARD.catalog(), meeting, amenders=None)
    events = added(engine, HARD)
    meeting.threads.clear()
    engine.run([QueryRemoved(0, e.query.id) for e in events])
    engine.close()
    assert meeting.threads == set()
    assert not engine.catalog.ledger.slots.any()


@pytest.mark.parametrize(
    ("name", "slots"),
    [(m.name, slots) for m in MECHANISMS for slots in (1, MANY_SLOTS) if (m.name, slots) != ("global_optimal", 1)],
)  # the global optimum takes a minute where room is short
def test_independent_deltas_are_placed_alike_by_one_and_by_several(name: str, slots: int) -> None:
    shape = Meshes(3, 6, slots)
    found = []
    for amenders in (1, 3):
        engine = Engine(shape.catalog(), mechanism(name), amenders=amenders)
        added(engine, shape)
        engine.close()
        check_conserved(engine.catalog)
        found.append(dict(engine.catalog.placement.nodes))
    assert found[0] == found[1]


def test_the_solver_of_ilp_lets_other_threads_run() -> None:
    """With Python's lock held, nobody would see the solver at work: it would be done before they run again."""
    entered, left, seen = threading.Event(), threading.Event(), []

    def work() -> None:
        entered.set()
        solve(_hard(), Limits(time_s=1.5))
        left.set()

    for _ in range(3):  # a machine that others use may look away for so long
        entered.clear()
        left.clear()
        solving = threading.Thread(target=work)
        solving.start()
        entered.wait()
        for _ in range(20):
            left.wait(0.02)
        seen.append(not left.is_set())
        solving.join()
        if seen[-1]:
            break
    assert seen[-1]


def test_a_mechanism_for_each_query_says_whose_solver_leaves_the_lock() -> None:
    chosen = PerQuery({"bottom_up": mechanism("bottom_up"), "ilp": mechanism("ilp")}, "bottom_up")
    one, two, three = (OperatorId(i) for i in (1, 2, 3))
    says = [chosen.metadata.leaves_lock, chosen.leaves_lock_for([one, two, three])]
    chosen.assign([one, two], "ilp")
    says += [chosen.metadata.leaves_lock, chosen.leaves_lock_for([one, two, three]), chosen.leaves_lock_for([three])]
    chosen.assign([one, two], "bottom_up")
    assert [*says, chosen.metadata.leaves_lock] == [False, False, True, True, False, False]
    by_ilp = PerQuery({"ilp": mechanism("ilp")}, "ilp")
    assert by_ilp.leaves_lock_for([one])


def test_only_deltas_of_queries_that_use_a_solver_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores(monkeypatch)
    asked: list[tuple[int, bool]] = []

    class Watched(PerQuery):
        def leaves_lock_for(self, operators: Sequence[OperatorId]) -> bool:
            answer = super().leaves_lock_for(operators)
            asked.append((len(operators), answer))
            return answer

    meeting, library = Meeting(leaves_lock=True), dict[str, Mechanism]()
    library["solver"], library["bottom_up"] = meeting, BottomUp()
    chosen = Watched(library, "bottom_up")
    engine = Engine(HARD.catalog(), chosen, amenders=None)
    added(engine, HARD)
    assert asked == []  # no query has a mechanism that leaves the lock
    plan = engine.catalog.plan
    for number, query in enumerate(plan.queries):
        free = [o for o in plan.serving(query) if plan[o].pin is None]
        if number < 2:
            chosen.assign(free, "solver")
        for operator in free:
            plan[operator].become(OperatorState.TO_BE_REPLACED)
        engine.log.write(free, (), "all again")
    engine.run([])
    engine.close()
    assert sorted(answer for _, answer in asked) == [False, False, True, True]
    assert len(meeting.threads) == 2


def test_fewer_than_one_amender_is_refused() -> None:
    check_amenders(None)
    check_amenders(1)
    assert by_cores() >= 1
    for bad in (0, -3):
        with pytest.raises(InputError, match=rf"amenders must be at least 1, not {bad}; leave it out"):
            Engine(HARD.catalog(), BottomUp(), amenders=bad)


def _hard() -> Assignment:
    """A question that HiGHS does not answer within seconds."""
    rng = np.random.default_rng(0)
    operators, candidates = 30, 16
    points = rng.uniform(0, 100, (candidates, 2))
    latency = np.linalg.norm(points[:, None] - points[None], axis=2)
    edges = np.array([(i, (i - 1) // 2) for i in range(1, operators)], dtype=np.int64)
    unary = rng.uniform(1, 5, (operators, 1)) * latency[rng.integers(0, candidates, operators)]
    unlimited = np.full(candidates, np.inf)
    return Assignment(
        unary, latency, edges, rng.uniform(1, 5, len(edges)), np.ones(operators, np.int64),
        rng.uniform(1, 3, operators), np.full(candidates, 3, np.int64), np.full(candidates, 8.0),
        np.zeros(operators), unlimited,
    )  # fmt: skip
