"""Random expressions over a few columns, and a naive evaluator that says what they mean."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from meander.model.expressions.functions import call
from meander.model.expressions.tree import Call, Column, Expression, Literal, literal
from meander.model.schema import BIGINT, BOOLEAN, DOUBLE

Row = Mapping[str, bool | int | float | None]
Value = bool | int | float | None

NUMBERS = (Column("i", BIGINT), Column("j", BIGINT), Column("d", DOUBLE))
FLAGS = (Column("f", BOOLEAN), Column("g", BOOLEAN))
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")

small = st.integers(-3, 3)
halves = st.sampled_from([-1.5, -0.5, 0.5, 1.0, 2.5])
constants = (small | halves).map(literal)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | small,
        "j": st.none() | small,
        "d": st.none() | halves,
        "f": st.none() | st.booleans(),
        "g": st.none() | st.booleans(),
    }
)


def numbers(depth: int = 2) -> st.SearchStrategy[Expression]:
    leaf: st.SearchStrategy[Expression] = st.sampled_from(NUMBERS) | constants
    if depth == 0:
        return leaf
    inner = numbers(depth - 1)
    return leaf | st.builds(call, st.sampled_from("+-*"), inner, inner) | inner.map(lambda e: call("negative", e))


def predicates(depth: int = 3) -> st.SearchStrategy[Expression]:
    number = numbers(1)
    leaf: st.SearchStrategy[Expression] = st.one_of(
        st.sampled_from(FLAGS),
        st.builds(call, st.sampled_from(COMPARISONS), number, number),
        st.builds(lambda a, b, c: call("between", a, b, c), number, number, number),
        st.builds(lambda a, options: call("in", a, *options), number, st.lists(constants, min_size=1, max_size=3)),
        number.map(lambda e: call("is_null", e)),
        st.booleans().map(literal),
    )
    if depth == 0:
        return leaf
    inner = predicates(depth - 1)
    several = st.lists(inner, min_size=2, max_size=3)
    return (
        leaf
        | st.builds(lambda word, parts: call(word, *parts), st.sampled_from(["and", "or"]), several)
        | inner.map(lambda e: call("not", e))
    )


_BINARY: dict[str, Callable[..., Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(expression: Expression, row: Row) -> Value:
    """The value by SQL's rules for null, written as plainly as possible."""
    match expression:
        case Column(name):
            return row[name]
        case Literal(value):
            assert not isinstance(value, str)
            return value
        case Call(function, args):
            return _apply(function, [evaluate(a, row) for a in args])
    raise AssertionError(expression)


def _apply(function: str, values: list[Value]) -> Value:
    match function:
        case "and":
            return False if False in values else None if None in values else True
        case "or":
            return True if True in values else None if None in values else False
        case "is_null":
            return values[0] is None
        case "<=>":
            return values[0] == values[1] if None not in values else values[0] is values[1]
        case "between":
            low = _apply("<=", [values[1], values[0]])
            return _apply("and", [low, _apply("<=", [values[0], values[2]])])
        case "in":
            return _apply("or", [_apply("=", [values[0], v]) for v in values[1:]])
    if None in values:
        return None
    if function == "not":
        return not values[0]
    if function == "negative":
        assert values[0] is not None
        return -values[0]
    return _BINARY[function](*values)
