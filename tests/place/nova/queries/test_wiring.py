"""Joins cut into parts: every pair of tuples meets in one part, and the plan stays valid however often that changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.events import QueryRemoved
from meander.model.ids import NodeId
from meander.model.operators import STATEFUL, Filter, Source
from meander.model.placement import violations
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.nova.place import place
from meander.place.nova.queries.join_parts import JoinPart, joined_up
from meander.place.nova.queries.question import pairs_of_query, parts_of, problem_of_query, whole_parts
from meander.place.nova.queries.shape import shape_of
from meander.place.nova.queries.split import SLOTS, predicate, share_of, slots_of, together
from meander.place.nova.queries.wiring import Wiring
from meander.place.nova.settings import NovaSettings
from tests.coordinator.nova.repartitioned import HOSTS, JOINS, cut, query
from tests.place.nova.problems import paired
from tests.reconfigure.moving import moving_catalog
from tests.run.harness import SINKS, STREAMS


def meeting(parts: list[JoinPart], left: int, right: int) -> list[JoinPart]:
    """The parts that make the pair of two positions."""
    return [
        p for p in parts if p.left_slots[0] <= left < p.left_slots[1] and p.right_slots[0] <= right < p.right_slots[1]
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.05, 0.4]))
def test_each_pair_of_positions_meets_in_exactly_one_part(seed: int, sigma: float) -> None:
    rng = np.random.default_rng(seed)
    problem = paired(30, seed, capacity_tps=rng.uniform(15, 60, 30))
    joins = place(problem, NovaSettings(sigma=sigma))
    parts = parts_of(joins)
    for join in np.flatnonzero(joins.placed)[:6]:
        ends = (int(problem.join_left[join]), int(problem.join_right[join]))
        mine = [p for p in parts if (p.left, p.right) == ends]
        for left, right in rng.integers(0, SLOTS, (40, 2)).tolist():
            assert len(meeting(mine, left, right)) == 1
            assert len(meeting(joined_up(mine), left, right)) == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_ranges_together_hold_the_same_positions(ranges: list[tuple[int, int]]) -> None:
    found = together(ranges)
    for position in range(41):
        assert any(a <= position < b for a, b in found) == any(a <= position < b for a, b in ranges)
    assert all(one[1] < other[0] for one, other in pairwise(found))


def test_a_split_passes_its_share() -> None:
    schema = Schema.of(a="int", b="string")
    assert share_of(predicate(schema, (slots_of(range(1), 4), slots_of(range(3, 4), 4)))) == 0.5
    assert share_of(predicate(Schema.of(a="boolean"), ((0, SLOTS),))) == 1.0
    other = next(o for o in query(JOINS["tumbling"]).plan.operators.values() if isinstance(o, Filter))
    assert share_of(other.predicate) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_valid_after_any_cuts_and_nothing_is_left_when_the_query_goes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    catalog = moving_catalog()
    engine = Engine(catalog, mechanism("bottom_up"))
    wiring = Wiring(catalog, engine.log, shape_of(query(JOINS["tumbling"]), STREAMS, SINKS))

    def random_parts() -> list[JoinPart]:
        hosts = [catalog.topology.id(n) for n in HOSTS]
        return [JoinPart(i, 2, a, b, NodeId(int(rng.choice(hosts)))) for i in range(2) for a, b in cut(rng, 3)]

    wiring.start(random_parts())
    for number in range(6):
        report = engine.run([])
        assert not report.unplaced
        assert violations(catalog.plan, catalog.placement, catalog.topology) == []
        running = {r.operator for r in wiring.parts}
        assert {o for o, r in catalog.plan.operators.items() if isinstance(r.spec, STATEFUL)} == running
        for record in catalog.plan.operators.values():
            assert record.users == len(record.readers) + (not record.readers)
        wiring.change(random_parts(), f"cut {number}", wiring.retired if number % 2 else ())
    engine.run([QueryRemoved(0, wiring.shape.query.id)])
    assert not catalog.plan.operators
    assert not catalog.placement.nodes
    assert not catalog.placement.routes


def test_a_part_that_only_moves_keeps_its_operator_and_one_with_other_ranges_retires() -> None:
    catalog = moving_catalog()
    engine = Engine(catalog, mechanism("bottom_up"))
    wiring = Wiring(catalog, engine.log, shape_of(query(JOINS["tumbling"]), STREAMS, SINKS))
    one, other = catalog.topology.id("e0"), catalog.topology.id("e1")
    halves = [(slots_of(range(1), 2), slots_of(range(1), 1)), (slots_of(range(1, 2), 2), slots_of(range(1), 1))]
    wiring.start([JoinPart(0, 2, a, b, one) for a, b in halves[:1]] + [JoinPart(0, 2, *halves[1], other)])
    engine.run([])
    before = {r.part.left_slots: r.operator for r in wiring.parts}
    assert wiring.change([replace(p, node=other if p.node == one else one) for p in wiring.active], "moved")
    engine.run([])
    assert {r.part.left_slots: r.operator for r in wiring.parts} == before
    assert not wiring.retired
    assert not wiring.change(wiring.active, "nothing")
    assert wiring.change([JoinPart(0, 2, slots_of(range(1), 1), slots_of(range(1), 1), one)], "whole")
    assert {r.operator for r in wiring.retired} == set(before.values())


def weather(options: dict[str, str]) -> tuple[Query, dict[str, Stream]]:
    streams = {
        name: Stream(name, Schema.of(ts="bigint", region="string", v="double"), "ts", nodes, 10.0, options)
        for name, nodes in (("cars", ("s0", "s1")), ("rain", ("s1", "s2")))
    }
    text = "CREATE QUERY q AS SELECT a.v FROM cars a JOIN rain b ON a.region = b.region WINDOW TUMBLING(1 s) INTO one;"
    return next(iter(sql(text, streams, SINKS).queries)), streams


def test_producers_with_one_value_each_join_only_their_equals() -> None:
    known, streams = weather({"only.region": "s0=north, s1=south s2=north"})
    assert pairs_of_query(shape_of(known, streams, SINKS), streams) == [(0, 1), (1, 0)]
    plain, streams = weather({})
    assert pairs_of_query(shape_of(plain, streams, SINKS), streams) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    partly, streams = weather({"only.region": "s0=north"})
    with pytest.raises(InputError, match="has no value for node 's1'"):
        pairs_of_query(shape_of(partly, streams, SINKS), streams)


def test_a_source_that_joins_nobody_is_not_read() -> None:
    lonely, streams = weather({"only.region": "s0=north, s1=south, s2=south"})
    catalog = moving_catalog()
    catalog.streams.update(streams)
    engine = Engine(catalog, mechanism("bottom_up"))
    shape = shape_of(lonely, streams, SINKS)
    pairs = pairs_of_query(shape, streams)
    wiring = Wiring(catalog, engine.log, shape)
    wiring.start(whole_parts(problem_of_query(catalog, shape, pairs), [int(catalog.topology.id("e0"))] * len(pairs)))
    assert not engine.run([]).unplaced
    read = {(s.stream, s.node) for r in catalog.plan.operators.values() if isinstance(s := r.spec, Source)}
    assert read == {("cars", "s1"), ("rain", "s1"), ("rain", "s2")}
    engine.run([QueryRemoved(0, lonely.id)])
    assert not catalog.plan.operators


def test_the_problem_of_a_query_has_its_sources_rates_and_sink() -> None:
    known, streams = weather({"only.region": "s0=north, s1=south, s2=north"})
    catalog = moving_catalog()
    catalog.streams.update(streams)
    shape = shape_of(known, streams, SINKS)
    problem = problem_of_query(catalog, shape, pairs_of_query(shape, streams))
    assert [problem.name(n) for n in problem.source_node.tolist()] == ["s0", "s1", "s1", "s2"]
    assert problem.join_right.tolist() == [3, 2]
    assert {problem.name(n) for n in problem.join_sink.tolist()} == {"cloud"}
    assert [(p.left, p.right) for p in whole_parts(problem, [0, 1])] == [(0, 3), (1, 2)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE QUERY q AS SELECT id FROM cars INTO one;", "it has no join; Nova runs queries with joins"),
        (
            "CREATE QUERY q AS SELECT a.id FROM (SELECT DISTINCT id, road FROM cars WINDOW TUMBLING(ts, 1 s)) a "
            "JOIN rain b ON a.road = b.road WITHIN 1 s INTO one;",
            "an input of its join is not a stream, or another join, with filters",
        ),
        (
            "CREATE QUERY q AS SELECT id FROM cars UNION ALL "
            "SELECT a.id FROM cars a JOIN rain b ON a.road = b.road WITHIN 1 s INTO one;",
            "more than the join's results flows into it",
        ),
    ],
)
def test_what_is_no_join_of_streams_and_joins_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        shape_of(query(text), STREAMS, SINKS)
