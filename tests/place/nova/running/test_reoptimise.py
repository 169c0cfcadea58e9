"""Events in any order: the placement stays right, undo brings back what was, and quality stays near a fresh run."""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from meander.model.errors import InputError
from meander.place.nova.judge import judge
from meander.place.nova.place import place
from meander.place.nova.running.current_problem import problem_of
from meander.place.nova.running.joins import Joins
from meander.place.nova.running.reoptimise import Reoptimiser
from meander.place.nova.settings import NovaSettings, Overload
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired, shared

some = st.integers(0, 10_000)
unit = st.floats(0, 1, width=32)


def picture(joins: Joins) -> Any:
    """Everything that undo must bring back."""
    nodes = joins.board.nodes[joins.alive]
    replicas = sorted(map(repr, joins.replicas()))
    living = np.flatnonzero(joins.alive)
    return (
        replicas,
        living.tolist(),
        np.round(nodes["load"], 6).tolist(),
        nodes["capacity"].tolist(),
        joins.active.nonzero()[0].tolist(),
        joins.unplaced.tolist(),
    )


class Events(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 100), dense=st.booleans(), overload=st.sampled_from(list(Overload)))
    def start(self, seed: int, dense: bool, overload: Overload) -> None:
        problem = (
            shared(seed) if dense else paired(40, seed, capacity_tps=np.random.default_rng(seed).uniform(5, 90, 40))
        )
        self.joins = place(problem, NovaSettings(overload=overload))
        self.events = Reoptimiser(self.joins)
        self.sinks = set(problem.join_sink.tolist())
        self.pictures: list[Any] = []

    def node(self, which: int, *, sink: bool = True) -> int | None:
        living = [n for n in np.flatnonzero(self.joins.alive).tolist() if sink or n not in self.sinks]
        return living[which % len(living)] if living else None

    def before(self) -> None:
        self.pictures.append(picture(self.joins))

    @rule(x=unit, y=unit, capacity=st.integers(0, 200))
    def node_added(self, x: float, y: float, capacity: int) -> None:
        self.before()
        self.events.add_node(np.array([100 * x, 100 * y]), float(capacity), 0.5)

    @rule(which=some)
    def node_removed(self, which: int) -> None:
        node = self.node(which, sink=False)
        if node is not None:
            self.before()
            self.events.remove_node(node)

    @rule(which=some, x=unit, y=unit)
    def node_moved(self, which: int, x: float, y: float) -> None:
        node = self.node(which)
        if node is not None:
            self.before()
            self.events.move_node(node, np.array([100 * x, 100 * y]))

    @rule(which=some, rate=st.integers(1, 120))
    def rate_changed(self, which: int, rate: int) -> None:
        self.before()
        self.events.set_rate(which % self.joins.source_count, float(rate))

    @rule(which=some, capacity=st.integers(0, 150))
    def capacity_changed(self, which: int, capacity: int) -> None:
        node = self.node(which)
        if node is not None:
            self.before()
            self.events.set_capacity(node, float(capacity))

    @rule(which=some)
    def join_removed(self, which: int) -> None:
        active = np.flatnonzero(self.joins.active)
        if len(active):
            self.before()
            self.events.remove_join(int(active[which % len(active)]))

    @rule(which=some, other=some, rate=st.integers(1, 75))
    def source_added(self, which: int, other: int, rate: int) -> None:
        node = self.node(which)
        partner = other % self.joins.source_count
        if node is not None and self.joins.alive[self.joins.board.sources["node"][partner]]:
            source = self.events.add_source(node, float(rate))
            self.before()
            self.events.add_join(source, partner, next(iter(self.sinks)))

    @rule()
    def retried(self) -> None:
        self.before()
        self.events.retry()

    @rule(count=st.integers(1, 4))
    def undone(self, count: int) -> None:
        for _ in range(min(count, len(self.pictures))):
            self.events.undo()
            assert picture(self.joins)[0] == self.pictures[-1][0]
            assert picture(self.joins) == self.pictures.pop()

    @invariant()
    def everything_is_right(self) -> None:
        if hasattr(self, "joins"):
            assert violations(self.joins) == []


TestEvents = Events.TestCase
TestEvents.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_after_many_events_a_fresh_run_is_hardly_better() -> None:
    joins = place(paired(300, 1))
    events, rng = Reoptimiser(joins), np.random.default_rng(0)
    for _ in range(150):
        node = int(rng.integers(1, joins.node_count))
        if joins.alive[node]:
            events.move_node(node, np.clip(joins.board.points[node] + rng.normal(0, 5, 2), 0, 100))
        events.set_rate(int(rng.integers(joins.source_count)), float(rng.integers(1, 76)))
        events.set_capacity(int(rng.integers(joins.node_count)), float(rng.uniform(20, 200)))
    assert violations(joins) == []
    fresh = place(problem_of(joins))
    assert judge(joins).mean_ms <= 1.1 * judge(fresh).mean_ms


def test_undoing_two_events_after_one_another_takes_back_the_right_replicas() -> None:
    """Rows of the board are used again, so an older event must not be undone by its rows."""
    problem = paired(40, 0, capacity_tps=np.random.default_rng(0).uniform(5, 90, 40))
    joins = place(problem, NovaSettings(overload=Overload.REFUSE))
    events, before = Reoptimiser(joins), picture(joins)
    events.set_capacity(0, 0.0)
    events.move_node(0, np.array([0.0, 0.0]))
    events.undo()
    events.undo()
    assert picture(joins) == before
    assert violations(joins) == []


def test_only_what_is_touched_moves() -> None:
    joins = place(paired(100, 2))
    host = int(np.argmax(joins.board.nodes["count"]))
    before = {repr(r) for r in joins.replicas()}
    hosted = len(joins.rows_on(host))
    change = Reoptimiser(joins).set_capacity(host, 0.0)
    assert change.moved == hosted
    assert len(before - {repr(r) for r in joins.replicas()}) == hosted


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (lambda e: e.remove_node(0), "node 0 is a sink of joins; remove those joins or give them another sink first"),
        (lambda e: e.remove_node(999), "no node 999; it never existed or has left"),
        (lambda e: e.set_rate(0, 0.0), "source 0 must have a positive rate, not 0; remove the source instead"),
        (lambda e: e.set_rate(9999, 1.0), "no source 9999; there are 24"),
        (lambda e: e.move_node(1, np.array([np.nan, 0.0])), r"a place needs 2 finite coordinates, not \[nan, 0.0\]"),
        (lambda e: e.set_capacity(1, -1.0), "node 1's capacity must not be negative, but is -1"),
        (lambda e: e.add_join(1, 1, 0), "source 1 cannot join itself"),
        (lambda e: e.remove_join(500), "no join 500 to remove"),
        (lambda e: e.undo(), "there is nothing to undo"),
    ],
)
def test_events_that_cannot_be_are_refused_and_change_nothing(event: Any, complaint: str) -> None:
    joins = place(paired(40, 1))
    before = picture(joins)
    with pytest.raises(InputError, match=complaint):
        event(Reoptimiser(joins))
    assert picture(joins) == before
