"""The global query plan: checked states, shared plans that join and split, and who needs whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.global_plan import TRANSITIONS, GlobalPlan, OperatorState, PlanOperator, RunningQuery
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Sink, Source, Union
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.signature import Signature

SCHEMA = Schema.of(ts="timestamp", v="double")
ANY_PLAN = QueryPlan(
    {OperatorId(1): Source("s", SCHEMA, "ts"), OperatorId(2): Sink("out", ("ts", "v"))},
    {OperatorId(1): (), OperatorId(2): (OperatorId(1),)},
)


def add(plan: GlobalPlan, *inputs: OperatorId) -> OperatorId:
    own = plan.fresh_id()
    plan.add_operator(PlanOperator(own, Union(), SCHEMA, Signature(f"signature {own}"), inputs))
    return own


def need(plan: GlobalPlan, name: str, *sinks: OperatorId) -> None:
    plan.add_query(RunningQuery(Query(QueryId(name), ANY_PLAN), sinks))


@pytest.mark.parametrize("before", OperatorState)
@pytest.mark.parametrize("after", OperatorState)
def test_only_listed_changes_of_state_are_possible(before: OperatorState, after: OperatorState) -> None:
    record = PlanOperator(OperatorId(7), Union(), SCHEMA, Signature("x"), (), state=before)
    if (before, after) in TRANSITIONS:
        record.become(after)
        assert record.state is after
    else:
        with pytest.raises(InputError, match=f"operator 7 is {before.value} and cannot become {after.value}"):
            record.become(after)
        assert record.state is before


def test_nothing_comes_back_from_removed() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is OperatorState.REMOVED]


def test_an_operator_joins_the_plans_it_reads_and_removing_it_splits_them() -> None:
    plan = GlobalPlan()
    a, b = add(plan), add(plan)
    first, second = add(plan, a), add(plan, b)
    assert plan.plan_of(a) == plan.plan_of(first) != plan.plan_of(b)
    bridge = add(plan, first, second)
    assert list(plan.plans.values()) == [{a, b, first, second, bridge}]
    plan.drop_operators([bridge])
    assert sorted(map(sorted, plan.plans.values())) == [[a, first], [b, second]]
    assert plan.plan_of(a) == plan.plan_of(first) != plan.plan_of(second)


def test_a_split_that_nobody_asked_about_is_found_after_more_changes() -> None:
    plan = GlobalPlan()
    a, b, c = add(plan), add(plan), add(plan)
    bridge, other = add(plan, a, b), add(plan, b, c)
    plan.drop_operators([bridge])
    late = add(plan, a)
    plan.drop_operators([other])
    again = add(plan, late, c)
    assert sorted(map(sorted, plan.plans.values())) == [[a, c, late, again], [b]]


def test_removing_a_query_returns_what_nobody_else_needs() -> None:
    plan = GlobalPlan()
    source = add(plan)
    shared, own = add(plan, source), add(plan, source)
    sink_1, sink_2 = add(plan, shared), add(plan, shared, own)
    need(plan, "one", sink_1)
    need(plan, "two", sink_2)
    assert sorted(plan.serving(QueryId("two"))) == [source, shared, own, sink_2]
    assert sorted(plan.remove_query(QueryId("two"))) == [own, sink_2]
    assert plan[shared].users == 1
    assert sorted(plan.remove_query(QueryId("one"))) == [source, shared, sink_1]
    with pytest.raises(InputError, match="no query 'one'"):
        plan.remove_query(QueryId("one"))


def test_an_operator_that_reads_another_twice_needs_it_once() -> None:
    plan = GlobalPlan()
    source = add(plan)
    twice = add(plan, source, source)
    assert (plan[source].users, list(plan[source].readers)) == (1, [twice])
    assert plan.edges_of(twice) == [(source, twice)]
    plan.drop_operators([twice])
    assert not plan[source].readers


@given(st.data())
def test_shared_plans_are_the_connected_components_whenever_somebody_looks(data: st.DataObject) -> None:
    plan = GlobalPlan()
    for _ in range(data.draw(st.integers(1, 40))):
        existing = list(plan.operators)
        remove = data.draw(st.booleans())
        if existing and remove:
            leaf = [o for o in existing if not plan[o].readers]
            plan.drop_operators(data.draw(st.lists(st.sampled_from(leaf), min_size=1, max_size=3, unique=True)))
        else:
            some = st.lists(st.sampled_from(existing), max_size=3, unique=True) if existing else st.just([])
            add(plan, *data.draw(some))
        if data.draw(st.booleans()):
            assert sorted(map(sorted, plan.plans.values())) == components(plan)
    assert sorted(map(sorted, plan.plans.values())) == components(plan)
    assert all(o in plan.plans[plan.plan_of(o)] for o in plan.operators)


def components(plan: GlobalPlan) -> list[list[OperatorId]]:
    seen: set[OperatorId] = set()
    found = []
    for start in plan.operators:
        if start in seen:
            continue
        stack, part = [start], {start}
        while stack:
            for neighbour in plan.neighbours(stack.pop()):
                if neighbour not in part:
                    part.add(neighbour)
                    stack.append(neighbour)
        seen |= part
        found.append(sorted(part))
    return sorted(found)
