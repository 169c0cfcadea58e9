"""Queries switch mechanisms while they run: the output is the oracle's, whatever the order of the moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.adapt.decisions import Transition, TransitionOutcome
from meander.adapt.per_query import PerQuery
from meander.coordinator.adaptation.metering import Meter
from meander.coordinator.adaptation.transitions import MOST_RETRIES, PROTOCOLS, Transitions
from meander.coordinator.condition.progress import SourceWatermarks, source_watermarks
from meander.deploy.protocols.mfgs import levels, one_by_one
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved
from meander.model.ids import QueryId
from meander.model.operators import Source, WindowAggregate
from meander.model.topology.elements import Link
from meander.place.mechanisms import mechanism
from meander.place.mechanisms.bottom_up import BottomUp
from meander.place.problem import Problem, Proposal
from meander.run.execution.prepared import PreparedRunner
from meander.run.reporting.backlog import read_counters
from tests.reconfigure.moving import MovingPlane
from tests.run.step.test_step import QUERIES

NAMES = ("bottom_up", "top_down", "producer_consumer", "random")


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


def plane_at(path: Path, spark: SparkSession, runner: PreparedRunner) -> MovingPlane:
    library = PerQuery({name: mechanism(name) for name in NAMES}, NAMES[0])
    return MovingPlane(path, spark, runner, QUERIES, disorder_ms=300, chosen=library)


def transition(query: str, source: str, target: str) -> Transition:
    return Transition(QueryId(query), source, target, {}, 0)


@pytest.mark.parametrize(("protocol", "seed"), [(p, s) for s, p in enumerate(PROTOCOLS) if "sms" not in p])
def test_a_query_that_switches_its_mechanism_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, protocol: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = plane_at(tmp_path, spark, runner)
    transitions = Transitions(plane.loop, protocol)
    present = dict.fromkeys((str(q.id) for q in plane.wanted), NAMES[0])
    moved: list[int] = []

    def ended(transitions: Transitions) -> None:
        for query, outcome in transitions.poll().items():
            assert outcome.done, outcome
            moved.append(transitions.costs[query].moved)

    refused: list[str] = []
    for moment in range(10):
        plane.feed(rng, moment * 500)
        if moment % 2:
            query = str(rng.choice(sorted(present)))
            target = str(rng.choice([n for n in NAMES if n != present[query]]))
            try:
                transitions.start(transition(query, present[query], target))
            except InputError as error:
                refused.append(error.message)
            else:
                present[query] = target
        plane.step()
        plane.poll()
        ended(transitions)
    plane.finish()
    while transitions.under_way:  # time has come to its end, so that all windows are answered
        ended(transitions)
        plane.finish()
    assert all("in a transition already" in reason or "finds no place" in reason for reason in refused)
    assert sum(moved)
    assert not plane.loop.deployer.placed.held
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_operators_move_from_the_sources_upwards(spark: SparkSession, runner: PreparedRunner, tmp_path: Path) -> None:
    plan = plane_at(tmp_path, spark, runner).catalog.plan
    found = levels(plan, plan.operators)
    height = {operator: number for number, level in enumerate(found) for operator in level}
    assert all(height[i] < height[o] for o, record in plan.operators.items() for i in record.inputs)
    assert [[o] for level in found for o in level] == one_by_one(plan, plan.operators)


def test_what_runs_is_metered(spark: SparkSession, runner: PreparedRunner, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plane = plane_at(tmp_path, spark, runner)
    meter = Meter(plane.loop)
    plane.feed(rng, 0)
    plane.step()
    events: list[ChangeEvent] = [LinkRemoved(0, "s0", "e0"), LinkAdded(0, Link("s0", "e1", 1))]
    plane.apply(*events)
    meter.note(events)
    first = meter.read(1_000, 1_000)
    assert set(first.queries) == {q.id for q in plane.wanted}
    assert sum(c.bytes for m in first.queries.values() for c in m.channels) > 0
    assert (first.world.changes, first.world.handovers, first.world.mobile_nodes) == (2, 1, 3)
    second = meter.read(2_000, 1_000)
    assert sum(c.bytes for m in second.queries.values() for c in m.channels) == 0
    assert second.world.changes == 0


def test_what_waits_is_metered_until_it_is_processed(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """The queries drop much of their input and keep the rest in windows: neither waits, once it is read."""
    plane = plane_at(tmp_path, spark, runner)
    meter = Meter(plane.loop)

    def waits(at_ms: int) -> dict[str, float]:
        return {str(q): found.waits_ms for q, found in meter.read(at_ms, 1_000).queries.items()}

    assert set(waits(1_000).values()) == {0.0}
    plane.feed(np.random.default_rng(1), 0)
    assert set(waits(2_000).values()) == {0.0}
    assert set(waits(12_000).values()) == {10_000.0}
    plane.finish()
    read = waits(13_000)
    sinks = plane.loop.sink_bindings()  # nobody delivers here: results wait for their sinks
    delivered = {o.query for o in sinks if not plane.host.store.exchange.counters(o.channel).pending_tuples}
    assert {q: ms for q, ms in read.items() if q in delivered} == dict.fromkeys(delivered, 0.0)


def test_the_time_of_a_window_aggregate_is_read_from_all_sources_that_lead_to_it(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    plane = plane_at(tmp_path, spark, runner)
    plan, rng = plane.catalog.plan, np.random.default_rng(1)
    seen: list[dict[QueryId, SourceWatermarks]] = []
    for moment in range(3):
        plane.feed(rng, moment * 2_000)
        for _ in range(4):
            plane.step()
        counters = read_counters(plane.host.store.exchange)
        seen.append({query: source_watermarks(plan, plan.serving(query), counters) for query in plan.queries})
    for query in plan.queries:
        aggregates = {o for o in plan.serving(query) if isinstance(plan[o].spec, WindowAggregate)}
        assert set(seen[0][query]) == set(seen[2][query]) == aggregates
    watermarks = [next(iter(found[QueryId("load")].values())) for found in (seen[0], seen[2])]
    read = [spec for o in watermarks[1] if isinstance(spec := plan[o].spec, Source)]
    assert sorted((spec.stream, spec.node) for spec in read) == [("cars", "s0"), ("cars", "s1")]
    assert min(watermarks[1].values()) > min(watermarks[0].values())


class Helpless(BottomUp):
    """Finds no place for anything."""

    name = "helpless"

    def place(self, problem: Problem) -> Proposal:
        return Proposal({}, dict.fromkeys(problem.free, "no idea"))


def test_a_mechanism_that_finds_no_place_leaves_the_query_with_the_old_one(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    library = PerQuery({"random": mechanism("random"), "helpless": Helpless()}, "random")
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300, chosen=library)
    transitions = Transitions(plane.loop, "mfgs_concurrent")
    plane.feed(rng, 0)
    plane.step()
    with pytest.raises(InputError, match="helpless finds no place for operator"):
        transitions.start(transition("load", "random", "helpless"))
    assert not transitions.under_way
    assert not plane.loop.deployer.placed.held
    assert not plane.loop.waiting()
    plane.feed(rng, 500)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_a_transition_that_is_taken_back_again_and_again_returns_to_the_old_mechanism(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    plane = plane_at(tmp_path, spark, runner)
    transitions = Transitions(plane.loop, "at_once")
    plane.feed(rng, 0)
    plane.step()
    transitions.start(transition("load", "bottom_up", "top_down"))
    abort = plane.loop.driver.abort
    for _ in range(1 + MOST_RETRIES):
        (number, *_) = plane.loop.deployer.under_way
        plane.loop._take_note(abort(number, "out of luck"))
        plane.loop._begin()
    ended: dict[QueryId, TransitionOutcome] = {}
    for moment in range(1, 12):
        plane.feed(rng, moment * 500)
        ended |= transitions.poll()
        plane.step()
        plane.poll()
    assert [(outcome.done, outcome.reason) for outcome in ended.values()] == [(False, "out of luck")]
    assert not plane.loop.deployer.placed.held
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
