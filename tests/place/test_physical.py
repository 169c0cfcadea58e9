"""From a query as written to operators that run: one source per producer, stateless work beside it."""

from __future__ import annotations

import pytest

from meander.lang.sql.script import sql
from meander.model.errors import InputError
from meander.model.operators import kind_of
from meander.model.plan import Query, QueryPlan, drawn
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.place.physical import Preparation, expanded

SCHEMA = Schema.of(ts="timestamp", id="bigint", v="double")
STREAMS = {
    "one": Stream("one", SCHEMA, "ts", ("a",)),
    "three": Stream("three", SCHEMA, "ts", ("a", "b", "c")),
    "none": Stream("none", SCHEMA, "ts", ()),
}
SINKS = {"out": SinkTarget("out", "a")}


def query(text: str) -> Query:
    (found,) = sql(text, STREAMS, SINKS, "q").queries
    return found


def kinds(plan: QueryPlan) -> dict[str, int]:
    found: dict[str, int] = {}
    for operator in plan.operators.values():
        found[kind_of(operator)] = found.get(kind_of(operator), 0) + 1
    return found


def test_stateless_operators_are_repeated_behind_each_producer() -> None:
    plan = expanded(query("SELECT id FROM three WHERE v < 3 INTO out").plan, STREAMS)
    assert kinds(plan) == {"source": 3, "filter": 3, "map": 3, "union": 1, "sink": 1}


def test_one_producer_needs_no_union() -> None:
    plan = expanded(query("SELECT id FROM one WHERE v < 3 INTO out").plan, STREAMS)
    assert kinds(plan) == {"source": 1, "filter": 1, "map": 1, "sink": 1}


def test_branches_meet_before_the_first_operator_that_needs_all_tuples() -> None:
    text = "SELECT id, count(*) AS n FROM three WHERE v < 3 GROUP BY id WINDOW TUMBLING(ts, 10 s) INTO out"
    plan = expanded(query(text).plan, STREAMS)
    shape = kinds(plan)
    assert (shape["source"], shape["filter"], shape["union"]) == (3, 3, 1)
    assert drawn(plan).index("union") < drawn(plan).index("filter")


def test_filters_in_a_row_become_one() -> None:
    plan = expanded(query("SELECT * FROM (SELECT * FROM one WHERE v < 3) WHERE id > 1 INTO out").plan, STREAMS)
    assert kinds(plan)["filter"] == 1


def test_a_plan_is_prepared_once() -> None:
    preparation = Preparation(STREAMS, SINKS)
    first = query("SELECT id FROM three INTO out")
    again = Query(first.id, first.plan)
    assert preparation.prepare(first).physical is preparation.prepare(again).physical
    physical = preparation.prepare(first).physical
    assert set(physical.signatures) == set(physical.row_bytes) == set(physical.plan.operators)
    assert physical.sinks == set(physical.plan.sinks)
    assert {physical.plan.operators[o].__class__.__name__ for o in physical.tops} == {"Union"}
    preparation.forget()
    assert preparation.prepare(first).physical is not physical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FROM none INTO out", "query 'q': stream 'none' has no node that produces it"),
        ("SELECT id FROM one INTO out", "query 'q': no sink 'out'; known sinks: other"),
    ],
)
def test_what_cannot_run_is_named(text: str, message: str) -> None:
    sinks = {"other": SinkTarget("other", "a")} if "one" in text.split() else SINKS
    with pytest.raises(InputError) as caught:
        Preparation(STREAMS, sinks).prepare(query(text))
    assert message in str(caught.value)
