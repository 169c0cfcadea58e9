"""Expressions: their text reads back as themselves, and helpers see all of them."""

from __future__ import annotations

import pytest
from hypothesis import given

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.scope import Scope
from meander.lang.text import Text
from meander.model.errors import InputError
from meander.model.expressions.functions import call, cast
from meander.model.expressions.tree import (
    Column,
    Expression,
    Literal,
    Named,
    columns,
    conjuncts,
    literal,
    quoted,
    renamed,
    sql,
)
from meander.model.schema import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, Schema
from tests.model.expression_strategies import Row, evaluate, predicates, rows

SCOPE = Scope.of(Schema.of(i="bigint", j="bigint", d="double", f="boolean", g="boolean"))
N, D = Column("i", BIGINT), Column("d", DOUBLE)


def read(text: str) -> Expression:
    return parse(Text(text).phrase(), ExpressionContext(SCOPE.resolve))


@given(predicates(), rows)
def test_text_reads_back_with_the_same_meaning(predicate: Expression, row: Row) -> None:
    assert evaluate(read(sql(predicate)), row) == evaluate(predicate, row)


@given(predicates())
def test_text_that_was_read_reads_back_as_itself(predicate: Expression) -> None:
    once = read(sql(predicate))
    assert read(sql(once)) == once


def test_literals_differ_by_type() -> None:
    assert len({literal(1), literal(1.0), literal(True), Literal(1, BIGINT), literal("1")}) == 5
    assert literal(2**31).type == BIGINT
    assert literal(2**31 - 1).type == INT


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (call("*", call("+", N, N), N), "(i + i) * i"),
        (call("-", N, call("-", N, N)), "i - (i - i)"),
        (call("not", call("or", call("<", N, literal(1)), call("is_null", D))), "NOT (i < 1 OR d IS NULL)"),
        (call("=", call("<", N, literal(1)), literal(True)), "(i < 1) = TRUE"),
        (literal("it's \\ here"), "'it\\'s \\\\ here'"),
        (Literal(5, BIGINT), "5L"),
        (literal(None), "NULL"),
        (cast(N, DOUBLE), "CAST(i AS DOUBLE)"),
        (Literal("2026-03-01 00:00:00", TIMESTAMP), "TIMESTAMP '2026-03-01 00:00:00'"),
        (Column("two words", STRING), "`two words`"),
        (Column("select", STRING), "`select`"),
    ],
)
def test_sql_text(expression: Expression, text: str) -> None:
    assert sql(expression) == text


def test_named_shows_its_name_only_when_it_differs() -> None:
    assert str(Named("i", N)) == "i"
    assert str(Named("n", N)) == "i AS n"


def test_quoted_backtick() -> None:
    assert quoted("a`b") == "`a``b`"


def test_columns_and_conjuncts() -> None:
    both = call("and", call("<", N, D), call("and", call("is_null", N), call("=", D, D)))
    assert columns(both) == {"i", "d"}
    assert len(conjuncts(both)) == 3
    assert columns(renamed(both, {"i": "x"})) == {"x", "d"}


def test_types_follow_spark() -> None:
    assert call("+", N, literal(1)).type == BIGINT
    assert call("+", N, literal(1.5)).type == DOUBLE
    assert call("/", N, N).type == DOUBLE
    assert call("<", N, D).type == BOOLEAN


def test_a_wrong_argument_says_what_is_taken() -> None:
    with pytest.raises(InputError, match=r"\+ takes a number, a number, but got i \(bigint\), 'a' \(string\)"):
        call("+", N, literal("a"))
