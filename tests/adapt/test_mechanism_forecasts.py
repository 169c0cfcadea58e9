"""Foresight on real catalogs: forecasts come true, nothing is changed, and mechanisms are not trusted."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.adapt.measures import channels_of
from meander.adapt.mechanism_forecasts import CatalogForesight, Forecast, Refusal, within
from meander.adapt.monitors.hops import longest_route
from meander.adapt.per_query import PerQuery, assign, place_again
from meander.model.demands import Metric
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import OperatorId, QueryId
from meander.model.placement import violations
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, Mechanism, mechanism
from meander.place.mechanisms.base import Metadata
from meander.place.problem import Problem, Proposal
from tests.place.worlds import query, world

LIBRARY = {m.name: mechanism(m.name) for m in MECHANISMS}
Q = QueryId("q")


class Broken(Mechanism):
    name = "broken"
    metadata = Metadata((), "raises")

    def place(self, problem: Problem) -> Proposal:
        raise ZeroDivisionError("no nodes")


class Slow(Mechanism):
    name = "slow"
    metadata = Metadata((), "takes its time")

    def place(self, problem: Problem) -> Proposal:
        time.sleep(0.5)
        return Proposal()


def running(seed: int, names: tuple[str, ...] = ("q", "other"), **options: float) -> tuple[Catalog, Engine]:
    catalog = world(seed, slots=9, bandwidth_mbps=1000)
    engine = Engine(catalog, PerQuery(LIBRARY, "bottom_up"))
    report = engine.run([QueryAdded(0, query(seed + i, name)) for i, name in enumerate(names)])
    assert not report.unplaced
    return catalog, engine


@given(seed=st.integers(0, 60), name=st.sampled_from([m.name for m in MECHANISMS]))
@settings(max_examples=40)
def test_a_forecast_comes_true_when_the_query_switches(seed: int, name: str) -> None:
    catalog, engine = running(seed)
    before = dict(catalog.placement.nodes)
    forecast = CatalogForesight(catalog, LIBRARY, seed=1, time_limit_s=60).forecast(Q, name)
    assert catalog.placement.nodes == before, "nothing was changed"
    if isinstance(forecast, Refusal):
        assert not forecast.fault
        return
    engine.seed, engine._batch = 0, 1
    report = place_again(engine, Q, name)
    assert not report.unplaced
    assert {o: catalog.placement.nodes[o] for o in forecast.nodes} == forecast.nodes
    assert not violations(catalog.plan, catalog.placement, catalog.topology)
    now = CatalogForesight(catalog, LIBRARY, time_limit_s=60).now(Q)
    for metric, value in now.values.items():
        assert forecast.values[metric] == pytest.approx(value), metric
    assert longest_route(channels_of(catalog.plan, catalog.placement, Q, 1000)) == forecast.values[Metric.HOPS]


def test_operators_whose_node_does_not_change_are_not_counted_as_moves() -> None:
    catalog, _ = running(3)
    same = CatalogForesight(catalog, LIBRARY, time_limit_s=60).forecast(Q, "bottom_up")
    assert isinstance(same, Forecast)
    assert same.moves == 0


def test_a_mechanism_that_raises_or_takes_too_long_is_at_fault() -> None:
    catalog, _ = running(3)
    foresight = CatalogForesight(catalog, {"broken": Broken(), "slow": Slow()}, time_limit_s=0.05)
    assert foresight.forecast(Q, "broken") == Refusal("mechanism broken failed: no nodes", fault=True)
    assert foresight.forecast(Q, "slow") == Refusal("mechanism slow failed: took more than 0.05 s", fault=True)


def test_a_mechanism_that_finds_no_place_is_not_at_fault() -> None:
    class Helpless(Broken):
        def place(self, problem: Problem) -> Proposal:
            return Proposal(unplaced=dict.fromkeys(problem.free, "no idea"))

    catalog, _ = running(3)
    found = CatalogForesight(catalog, {"helpless": Helpless()}, time_limit_s=60).forecast(Q, "helpless")
    assert found == Refusal("mechanism helpless cannot place all of it: no idea")


def test_within_hands_results_and_errors_on() -> None:
    assert within(1, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(1, lambda: 1 // 0)


def test_queries_that_share_operators_are_known() -> None:
    catalog = world(1, slots=9, bandwidth_mbps=1000)
    engine = Engine(catalog, PerQuery(LIBRARY, "bottom_up"))
    engine.run([QueryAdded(0, query(5, "a")), QueryAdded(0, query(5, "b")), QueryAdded(0, query(8, "c"))])
    foresight = CatalogForesight(catalog, LIBRARY, time_limit_s=60)
    assert foresight.sharing(QueryId("a")) == {"b"}
    assert "a" not in foresight.sharing(QueryId("c"))


def test_a_query_that_is_too_large_for_a_mechanism_is_not_offered_it() -> None:
    class Small(Broken):
        metadata = Metadata((), "", most_operators=0)

    catalog, _ = running(3)
    assert list(CatalogForesight(catalog, {"small": Small(), "broken": Broken()}, time_limit_s=60).mechanisms(Q)) == [
        "broken"
    ]


def test_a_broken_mechanism_does_not_stop_the_query_and_is_told() -> None:
    catalog = world(3, slots=9, bandwidth_mbps=1000)
    per_query = PerQuery({**LIBRARY, "broken": Broken()}, "bottom_up")
    engine = Engine(catalog, per_query)
    engine.run([QueryAdded(0, query(3, "q"))])
    assert not place_again(engine, Q, "broken").unplaced
    assert per_query.failures == [("broken", "mechanism broken failed: no nodes")]


def test_only_known_mechanisms_are_assigned() -> None:
    _, engine = running(3)
    with pytest.raises(InputError, match="no mechanism 'bottomup'; known mechanisms: bottom_up"):
        assign(engine, Q, "bottomup")
    with pytest.raises(InputError, match="no mechanism 'none'"):
        PerQuery(LIBRARY, "none")
    plain = Engine(world(1), mechanism("bottom_up"))
    with pytest.raises(TypeError, match="the engine has mechanism bottom_up, not per_query"):
        assign(plain, Q, "bottom_up")


def test_operators_are_placed_by_the_mechanism_of_their_query() -> None:
    asked: list[set[OperatorId]] = []

    class Noted(Mechanism):
        name = "noted"
        metadata = Metadata((), "")

        def place(self, problem: Problem) -> Proposal:
            asked.append(set(problem.free))
            return LIBRARY["top_down"].place(problem)

    catalog = world(3, slots=9, bandwidth_mbps=1000)
    engine = Engine(catalog, PerQuery({**LIBRARY, "noted": Noted()}, "bottom_up"))
    engine.run([QueryAdded(0, query(3, "q")), QueryAdded(0, query(4, "other"))])
    movable = set(assign(engine, Q, "noted"))
    place_again(engine, Q, "noted")
    assert asked == [movable]
