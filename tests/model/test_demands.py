"""Demands: bounds, conditions, and what is refused because nothing could meet it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meander.model.conditions import Clause, Fact, Facts, Test, can_hold
from meander.model.demands import Demand, Metric, check_consistent, contradiction
from meander.model.errors import InputError
from tests.model.demand_strategies import CLAUSES, DEMANDS, FACTS

RUSH = Clause((Test(Fact.HOUR, "BETWEEN", 7, 9),))


def test_between_includes_both_ends_and_wraps_around_midnight() -> None:
    night = Test(Fact.HOUR, "BETWEEN", 22, 5)
    assert [h for h in range(24) if RUSH.holds({Fact.HOUR: h})] == [7, 8, 9]
    assert [h for h in range(24) if night.holds({Fact.HOUR: h})] == [0, 1, 2, 3, 4, 5, 22, 23]


def test_an_unknown_fact_makes_no_test_true_and_every_negation() -> None:
    assert not RUSH.holds({})
    assert Clause(RUSH.tests, negated=True).holds({})


@pytest.mark.parametrize(
    ("text", "measured", "short"),
    [
        ("latency < 100 ms", 150, 0.5),
        ("latency < 100 ms", 99, 0),
        ("frequency >= 2 /s", 1, 0.5),
        ("hops = 3", 4, 1 / 3),
    ],
)
def test_shortfall_is_relative_to_the_bound(text: str, measured: float, short: float) -> None:
    metric, comparison, bound = text.split(" ", 2)
    assert Demand.of(metric, comparison, bound).shortfall(measured) == pytest.approx(short)


@given(demand=DEMANDS, measured=st.floats(0, 1e9))
def test_shortfall_is_zero_exactly_when_met(demand: Demand, measured: float) -> None:
    assert (demand.shortfall(measured) == 0) == demand.met(measured)


@pytest.mark.parametrize(
    ("demands", "consistent"),
    [
        (["latency < 50 ms", "latency > 50 ms"], False),
        (["latency <= 50 ms", "latency >= 50 ms"], True),
        (["latency <= 50 ms", "latency > 50 ms"], False),
        (["latency = 50 ms", "latency < 50 ms"], False),
        (["latency < 50 ms", "latency > 10 ms", "latency = 30 ms"], True),
        (["load > 1"], False),
        (["load >= 1"], True),
        (["hops < 0"], False),
        (["hops <= 0"], True),
        (["latency < 50 ms", "overhead > 1 MB"], True),
    ],
)
def test_contradictions(demands: list[str], consistent: bool) -> None:
    words = [text.split(" ", 2) for text in demands]
    found = contradiction([Demand.of(metric, comparison, bound) for metric, comparison, bound in words])
    assert (found is None) == consistent


def test_contradictory_bounds_are_fine_when_they_never_apply_together() -> None:
    low = Demand(Metric.LATENCY, "<", 50, when=(RUSH,))
    high = Demand(Metric.LATENCY, ">", 100, when=(Clause(RUSH.tests, negated=True),))
    check_consistent([low, high])
    with pytest.raises(InputError, match="contradicts latency < 50 ms WHEN hour BETWEEN 7 AND 9; leave one out"):
        check_consistent([low, Demand(Metric.LATENCY, ">", 100)])


@given(demands=st.lists(DEMANDS, max_size=4), facts=FACTS, values=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_what_some_value_meets_together_is_no_contradiction(
    demands: list[Demand], facts: Facts, values: list[float]
) -> None:
    """If at some moment one value meets all demands of a metric, each pair of them can be met."""
    for value in values:
        together = [d for d in demands if d.applies(facts) and d.met(value)]
        assume(together)
        assert contradiction(together) is None


@given(demands=st.lists(DEMANDS, min_size=2, max_size=2), facts=FACTS, value=st.floats(0, 2))
def test_a_contradiction_is_never_met(demands: list[Demand], facts: Facts, value: float) -> None:
    found = contradiction(demands)
    if found is not None and demands[0].metric is demands[1].metric and found.at == 1 and value <= 1:
        met = all(d.applies(facts) and d.met(value) for d in demands)
        assert not met or "contradicts" not in found.reason


@given(clauses=st.lists(CLAUSES, max_size=3), facts=FACTS)
def test_conditions_that_hold_somewhere_can_hold(clauses: list[Clause], facts: Facts) -> None:
    if all(c.holds(facts) for c in clauses):
        assert can_hold(clauses)


@pytest.mark.parametrize(
    ("fact", "comparison", "low", "high", "complaint"),
    [
        ("hour", "<", "24", None, "a whole number from 0 to 23, not 24"),
        ("weekday", "=", "0", None, "from 1 to 7"),
        ("churn", "BETWEEN", "3", "2", "write the smaller number first"),
        ("churn", "<", "-1", None, "never negative"),
        ("speed", "<", "1", None, "no fact 'speed'; known facts"),
        ("churn", "<", "1 kg", None, "unknown churn unit 'kg'"),
    ],
)
def test_bad_tests(fact: str, comparison: str, low: str, high: str | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Test.of(fact, comparison, low, high)
