"""The normal form keeps the meaning, is stable, and is the same for different spellings."""

from __future__ import annotations

import pytest
from hypothesis import given

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.scope import Scope
from meander.lang.text import Text
from meander.model.expressions.canonical import canonical, canonical_sql
from meander.model.expressions.tree import Expression, sql
from meander.model.schema import Schema
from tests.model.expression_strategies import Row, evaluate, numbers, predicates, rows

SCOPE = Scope.of(Schema.of(i="bigint", j="bigint", d="double", f="boolean", g="boolean", name="string", ts="timestamp"))


def expression(text: str) -> Expression:
    return parse(Text(text).phrase(), ExpressionContext(SCOPE.resolve))


@given(predicates(), rows)
def test_normal_form_means_the_same(predicate: Expression, row: Row) -> None:
    assert evaluate(canonical(predicate), row) == evaluate(predicate, row)


@given(numbers(3), rows)
def test_normal_form_of_numbers_means_the_same(number: Expression, row: Row) -> None:
    assert evaluate(canonical(number), row) == evaluate(number, row)


@given(predicates())
def test_normal_form_is_its_own_normal_form(predicate: Expression) -> None:
    once = canonical(predicate)
    assert canonical(once) == once


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("i < 3", "3 > i"),
        ("i < 3 AND f", "f AND i < 3"),
        ("i < 3 AND (f AND g)", "(g AND i < 3) AND f"),
        ("f OR g OR f", "g OR f"),
        ("i + j = 3", "3 = j + i"),
        ("NOT (i < 3 OR f)", "NOT f AND i >= 3"),
        ("NOT NOT f", "f"),
        ("i > 2 * 5", "10 < i"),
        ("d < 30", "30.0 > d"),
        ("d * 2 < 1", "2.0 * d < 1.0"),
        ("i BETWEEN 1 AND 5", "i >= 1 AND 5 >= i"),
        ("i IN (1, 2)", "i IN (2, 1, 2)"),
        ("i IN (3)", "i = 3"),
        ("f AND TRUE", "f"),
        ("f OR TRUE", "TRUE"),
        ("ts >= '2026-03-01'", "TIMESTAMP '2026-03-01 00:00:00' <= ts"),
        ("i <> 3", "3 != i"),
        ("i IS NOT NULL", "NOT i IS NULL"),
    ],
)
def test_spellings_of_the_same(one: str, other: str) -> None:
    assert canonical(expression(one)) == canonical(expression(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("i < 3", "i <= 3"),
        ("i < 3", "i < 4"),
        ("i < 3", "j < 3"),
        ("i - j = 0", "j - i = 0"),
        ("i < 3 AND f", "i < 3 OR f"),
        ("d + 0.1 + 0.2 = 1", "d + (0.1 + 0.2) = 1"),
        ("name = '1'", "name = '2'"),
        ("i = 1", "i <=> 1"),
        ("i % 2 = 0", "2 % i = 0"),
    ],
)
def test_different_meanings_stay_different(one: str, other: str) -> None:
    assert canonical(expression(one)) != canonical(expression(other))


def test_an_overflow_is_left_for_spark_to_refuse() -> None:
    assert sql(canonical(expression("2147483647 + 1"))) == "1 + 2147483647"


def test_names_do_not_matter_as_positions() -> None:
    first = canonical_sql(expression("i < j"), {"i": "#0", "j": "#1"})
    second = canonical_sql(expression("j < i"), {"j": "#0", "i": "#1"})
    assert first == second
