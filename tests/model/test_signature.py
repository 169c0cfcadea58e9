"""Signatures: equal for queries that compute the same, different when the meaning differs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.lang import sql
from meander.model.expressions.functions import call
from meander.model.expressions.tree import Call, Expression, Literal
from meander.model.expressions.tree import sql as text_of
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.model.signature import Signature, signatures
from meander.model.streams import Stream
from tests.model.expression_strategies import evaluate, predicates, rows

STREAMS = {
    name: Stream(name, Schema.of(ts="timestamp", i="bigint", j="bigint", d="double", f="boolean", g="boolean"), "ts")
    for name in ("s", "t")
}
_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "<=>": "<=>"}


def plan_of(text: str) -> QueryPlan:
    (query,) = sql(text, STREAMS).queries
    return query.plan


def signature(text: str) -> Signature:
    """The signature of what the query hands to its sink."""
    plan = plan_of(text)
    return signatures(plan)[plan.inputs[plan.sinks[0]][0]]


@st.composite
def respelled(draw: st.DrawFn, predicate: Expression) -> Expression:
    """The same predicate with commuted operands, mirrored comparisons and reordered, regrouped conjunctions."""
    match predicate:
        case Call("and" | "or" as word, args):
            parts = draw(st.permutations([draw(respelled(a)) for a in args]))
            if len(parts) > 2 and draw(st.booleans()):
                parts = [call(word, *parts[:2]), *parts[2:]]
            return call(word, *parts)
        case Call("not", (arg,)):
            return call("not", draw(respelled(arg)))
        case Call(comparison, (left, right)) if comparison in _MIRROR and draw(st.booleans()):
            return call(_MIRROR[comparison], draw(respelled(right)), draw(respelled(left)))
        case Call("+" | "*" as sign, (left, right)) if draw(st.booleans()):
            return call(sign, draw(respelled(right)), draw(respelled(left)))
        case Literal(int() as value) if not isinstance(value, bool) and draw(st.booleans()):
            return call("+", Literal(value - 1, predicate.type), Literal(1, predicate.type))
    return predicate


@given(st.data(), predicates())
def test_respelling_a_predicate_keeps_the_signature(data: st.DataObject, predicate: Expression) -> None:
    other = data.draw(respelled(predicate))
    assert signature(f"SELECT * FROM s WHERE {text_of(predicate)} INTO o") == signature(
        f"SELECT * FROM s WHERE {text_of(other)} INTO o"
    )


@given(st.data(), st.lists(predicates(1), min_size=2, max_size=4))
def test_split_and_reordered_filters_are_one(data: st.DataObject, parts: list[Expression]) -> None:
    texts = [f"({text_of(p)})" for p in parts]
    merged = f"SELECT * FROM s WHERE {' AND '.join(texts)} INTO o"
    nested = "s"
    for text in data.draw(st.permutations(texts)):
        nested = f"(SELECT * FROM {nested} WHERE {text})"
    assert signature(merged) == signature(f"SELECT * FROM {nested} INTO o")


@given(predicates(2), predicates(2), st.lists(rows, min_size=1, max_size=20))
def test_equal_signatures_mean_equal_answers(
    one: Expression, other: Expression, some: list[dict[str, bool | int | float | None]]
) -> None:
    """Never the same signature for two predicates that keep different tuples."""
    first, second = (signature(f"SELECT * FROM s WHERE {text_of(p)} INTO o") for p in (one, other))
    kept = [[row for row in some if evaluate(p, row) is True] for p in (one, other)]
    assert first != second or kept[0] == kept[1]


BASE = "SELECT i, count(*) AS n FROM s WHERE d < 30 GROUP BY i WINDOW TUMBLING(10 s) INTO o"


@pytest.mark.parametrize(
    "same",
    [
        "SELECT a.i, count(*) AS n FROM s AS a WHERE a.d < 30 GROUP BY a.i WINDOW TUMBLING(10 s) INTO o",
        "SELECT i AS k, count(*) AS other FROM s WHERE 30 > d GROUP BY i WINDOW TUMBLING(10 s) INTO o",
        "SELECT i, count(*) FROM s WHERE d < 10 * 3 GROUP BY i WINDOW TUMBLING(ts, 10000 ms) INTO o",
    ],
)
def test_names_and_spelling_do_not_matter(same: str) -> None:
    assert signature(same) == signature(BASE)


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("30", "31"),
        BASE.replace("<", "<="),
        BASE.replace("FROM s", "FROM t"),
        BASE.replace("GROUP BY i", "GROUP BY j").replace("SELECT i", "SELECT j"),
        BASE.replace("10 s", "20 s"),
        BASE.replace("TUMBLING(10 s)", "SLIDING(10 s, 5 s)"),
        BASE.replace("TUMBLING(10 s)", "SESSION(10 s)"),
        BASE.replace("TUMBLING(10 s)", "TUMBLING(10 s) ALLOW LATENESS 1 s"),
        BASE.replace("count(*)", "count(j)"),
        BASE.replace("count(*)", "sum(j)"),
        BASE.replace("WHERE d < 30 ", ""),
        BASE.replace("INTO", "HAVING n > 1 INTO"),
        BASE.replace("SELECT i, count(*) AS n", "SELECT count(*) AS n, i"),
    ],
)
def test_another_meaning_has_another_signature(changed: str) -> None:
    assert changed != BASE
    assert signature(changed) != signature(BASE)


JOIN = "SELECT * FROM s AS a JOIN t AS b ON a.i = b.i AND a.j = b.j AND a.d < b.d WITHIN 10 s INTO o"


def test_the_order_of_join_keys_does_not_matter() -> None:
    commuted = JOIN.replace("a.i = b.i AND a.j = b.j AND a.d < b.d", "b.d > a.d AND b.j = a.j AND a.i = b.i")
    assert signature(JOIN) == signature(commuted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a.i = b.i", "a.i = b.j"),
        ("WITHIN 10 s", "WITHIN 11 s"),
        ("WITHIN 10 s", "WINDOW TUMBLING(10 s)"),
        ("a.d < b.d", "a.d <= b.d"),
        ("FROM s AS a JOIN t AS b", "FROM t AS a JOIN s AS b"),
    ],
)
def test_another_join_has_another_signature(old: str, new: str) -> None:
    assert old in JOIN
    assert signature(JOIN.replace(old, new)) != signature(JOIN)


def test_patterns_are_told_apart() -> None:
    listed = "SELECT * FROM s AS a, t AS b MATCH "
    patterns = ["a THEN b WITHIN 10 s", "b THEN a WITHIN 10 s", "a AND b WITHIN 10 s", "a OR b"]
    found = {signature(f"{listed}{p} INTO o") for p in patterns}
    assert len(found) == len(patterns)


def test_the_order_of_a_union_does_not_matter() -> None:
    one = signature("SELECT i FROM s UNION ALL SELECT i FROM t INTO o")
    assert one == signature("SELECT i FROM t UNION ALL SELECT i FROM s INTO o")


def test_sinks_differ_by_name() -> None:
    plan = plan_of("SELECT * FROM s INTO a, b")
    marks = signatures(plan)
    assert len({marks[sink] for sink in plan.sinks}) == 2
