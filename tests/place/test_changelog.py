"""Entries and deltas: what depends on each other is merged, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meander.model.global_plan import GlobalPlan, OperatorState, PlanOperator
from meander.model.ids import OperatorId
from meander.model.operators import Union
from meander.model.schema import Schema
from meander.model.signature import Signature
from meander.place.changelog import ChangeLog, Delta, Entry, deltas

SCHEMA = Schema.of(ts="timestamp", v="double")


def add(plan: GlobalPlan, *inputs: OperatorId, placed: bool = True) -> OperatorId:
    own = plan.fresh_id()
    state = OperatorState.PLACED if placed else OperatorState.TO_BE_PLACED
    plan.add_operator(PlanOperator(own, Union(), SCHEMA, Signature(f"signature {own}"), inputs, state=state))
    return own


def entry(*operators: OperatorId, cause: str = "a change") -> Entry:
    return Entry(frozenset(operators), frozenset(), cause)


def test_an_invalid_union_borders_on_all_its_inputs_and_readers() -> None:
    plan = GlobalPlan()
    a, b, c = add(plan), add(plan), add(plan)
    union = add(plan, a, b, c, placed=False)
    first, second = add(plan, union), add(plan, union)
    (delta,) = deltas(plan, [entry(union)])
    assert delta == Delta((union,), (), (a, b, c, first, second), ("a change",))
    assert delta.touched == 6


def test_an_invalid_branch_of_a_join_stops_at_the_join() -> None:
    plan = GlobalPlan()
    a, b = add(plan), add(plan)
    left, right = add(plan, a, placed=False), add(plan, b)
    join = add(plan, left, right)
    (delta,) = deltas(plan, [entry(left)])
    assert (delta.operators, set(delta.boundary)) == ((left,), {a, join})


def test_entries_that_border_on_each_other_are_one_delta_in_dataflow_order() -> None:
    plan = GlobalPlan()
    source = add(plan)
    first = add(plan, source, placed=False)
    second = add(plan, first, placed=False)
    sink = add(plan, second)
    (delta,) = deltas(plan, [entry(second, cause="b"), entry(first, cause="a")])
    assert delta.operators == (first, second)
    assert set(delta.boundary) == {source, sink}
    assert sorted(delta.causes) == ["a", "b"]


def test_entries_that_share_only_a_placed_neighbour_stay_apart() -> None:
    plan = GlobalPlan()
    hub = add(plan)
    one, two = add(plan, hub, placed=False), add(plan, hub, placed=False)
    found = deltas(plan, [entry(one), entry(two)])
    assert sorted(d.operators for d in found) == [(one,), (two,)]
    assert all(d.boundary == (hub,) for d in found)


def test_an_operator_of_an_entry_that_was_repaired_or_dropped_is_left_out() -> None:
    plan = GlobalPlan()
    fine, gone = add(plan), add(plan)
    plan.drop_operators([gone])
    assert deltas(plan, [entry(fine, gone)]) == []


def test_a_broken_edge_is_a_delta_of_its_own_unless_an_end_is_placed_anyway() -> None:
    plan = GlobalPlan()
    a = add(plan)
    b = add(plan, a)
    c = add(plan, b, placed=False)
    broken = Entry(frozenset(), frozenset({(a, b), (b, c)}), "cut")
    found = deltas(plan, [broken, entry(c)])
    assert Delta((), ((a, b),), (a, b), ("cut",)) in found
    assert len(found) == 2


@given(st.data())
def test_no_two_deltas_share_or_border_on_the_same_invalid_operator(data: st.DataObject) -> None:
    plan = GlobalPlan()
    for _ in range(data.draw(st.integers(2, 30))):
        known = list(plan.operators)
        below = data.draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        add(plan, *below, placed=data.draw(st.booleans()))
    invalid = [o for o, r in plan.operators.items() if r.state is not OperatorState.PLACED]
    entries = [entry(o) for o in data.draw(st.permutations(invalid))]
    found = deltas(plan, entries)
    assert sorted(o for d in found for o in d.operators) == invalid
    for delta in found:
        assert all(plan[o].state is OperatorState.PLACED for o in delta.boundary)
        position = {o: i for i, o in enumerate(delta.operators)}
        assert all(position[i] < position[o] for o in delta.operators for i in plan[o].inputs if i in position)


def test_merging_a_long_chain_of_entries_takes_few_steps() -> None:
    plan = GlobalPlan()
    last = add(plan)
    chain = []
    for _ in range(20_000):
        last = add(plan, last, placed=False)
        chain.append(last)
    (delta,) = deltas(plan, [entry(o) for o in chain])
    assert delta.operators == tuple(chain)


def test_waiting_entries_come_back_with_topology_changes_and_with_neighbours() -> None:
    plan = GlobalPlan()
    source = add(plan)
    stuck, elsewhere = add(plan, source, placed=False), add(plan, placed=False)
    fresh = add(plan, stuck, placed=False)
    log = ChangeLog(waiting=[entry(stuck), entry(elsewhere)])
    log.write([fresh], (), "query added")
    assert [e.operators for e in log.take(plan, retry=False)] == [{fresh}, {stuck}]
    assert [e.operators for e in log.waiting] == [{elsewhere}]
    assert [e.operators for e in log.take(plan, retry=True)] == [{elsewhere}]
    log.write((), (), "nothing")
    assert log.take(plan, retry=True) == []
