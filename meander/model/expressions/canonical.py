"""A normal form for expressions: two expressions with the same meaning should become the same text.

Commuted operands are ordered, comparisons point one way, conjunctions are flat sorted sets, constants are folded.
Nothing is re-associated across floating-point additions, because that changes results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from meander.model.expressions.tree import FALSE, TRUE, Call, Expression, Literal, literal, renamed, rewrite, sql
from meander.model.schema import BOOLEAN, DOUBLE, DataType, Kind

_MIRROR = {">": "<", ">=": "<="}
_NEGATED = {"<": ">=", "<=": ">", "=": "!=", "!=": "=", ">": "<=", ">=": "<"}
_COMMUTATIVE = frozenset({"+", "*", "=", "!=", "<=>", "greatest", "least"})
_NULL_SAFE = frozenset(
    {"coalesce", "is_null", "<=>", "case", "if", "concat_ws", "array", "hash", "xxhash64", "and", "or"}
)
_Number = int | float
_ARITHMETIC: dict[str, Callable[[_Number, _Number], _Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARISON: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
}
_RANGE = {Kind.INT: 2**31, Kind.BIGINT: 2**63}


def canonical(expression: Expression) -> Expression:
    """The normal form.

    >>> from meander.model.expressions.functions import call
    >>> from meander.model.expressions.tree import Column
    >>> speed = Column("speed", DOUBLE)
    >>> sql(canonical(call(">", speed, call("*", literal(10), literal(3)))))
    '30.0D < speed'
    """
    return rewrite(expression, _normal)


def folded(expression: Expression) -> Expression:
    """The expression with what its constants make of each other, otherwise as it is."""
    return rewrite(expression, lambda node: _fold(_widened(node)) if isinstance(node, Call) else node)


def canonical_sql(expression: Expression, positions: Mapping[str, str]) -> str:
    """The normal form as text, with columns written as positions so that their names do not matter."""
    return sql(canonical(renamed(expression, positions)))


def _normal(node: Expression) -> Expression:
    if not isinstance(node, Call):
        return node
    match node:
        case Call("between", (arg, low, high)):
            return _normal(
                Call("and", (_normal(_compare("<=", low, arg)), _normal(_compare("<=", arg, high))), BOOLEAN)
            )
        case Call("in", (arg, option)):
            return _normal(_compare("=", arg, option))
        case Call("in", (arg, *options)):
            distinct = sorted(set(options), key=sql)
            return (
                Call("in", (arg, *distinct), BOOLEAN) if len(distinct) > 1 else _normal(_compare("=", arg, distinct[0]))
            )
        case Call(">" | ">=" as comparison, (left, right)):
            return _normal(_compare(_MIRROR[comparison], right, left))
        case Call("not", (arg,)):
            return _negated(arg)
        case Call("and" | "or" as word, args):
            return _set(word, args)
    folded = _fold(_widened(node))
    if isinstance(folded, Call) and folded.function in _COMMUTATIVE:
        return Call(folded.function, tuple(sorted(folded.args, key=sql)), folded.type)
    return folded


def _compare(comparison: str, left: Expression, right: Expression) -> Call:
    return Call(comparison, (left, right), BOOLEAN)


def _negated(arg: Expression) -> Expression:
    match arg:
        case Literal(bool() as value):
            return FALSE if value else TRUE
        case Call("not", (inner,)):
            return inner
        case Call(comparison, (left, right)) if comparison in _NEGATED:  # exact: Spark orders NaN above all numbers
            return _normal(_compare(_NEGATED[comparison], left, right))
        case Call("and" | "or" as word, args):
            other = "or" if word == "and" else "and"
            return _set(other, tuple(_negated(a) for a in args))
    return Call("not", (arg,), BOOLEAN)


def _set(word: str, args: tuple[Expression, ...]) -> Expression:
    """AND or OR as a flat, sorted set without neutral elements; the absorbing constant wins (also against null)."""
    neutral, absorbing = (TRUE, FALSE) if word == "and" else (FALSE, TRUE)
    flat: set[Expression] = set()
    for arg in args:
        flat.update(arg.args if isinstance(arg, Call) and arg.function == word else (arg,))
    if absorbing in flat:
        return absorbing
    flat.discard(neutral)
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat))
    return Call(word, tuple(sorted(flat, key=sql)), BOOLEAN)


def _widened(node: Call) -> Call:
    """Whole-number literals beside doubles become doubles, as Spark's own coercion makes them."""
    if node.function not in (*_ARITHMETIC, *_COMPARISON, "/", "%"):
        return node
    if not any(a.type.kind is Kind.DOUBLE for a in node.args) and node.function != "/":
        return node
    return Call(node.function, tuple(_as_double(a) for a in node.args), node.type)


def _as_double(arg: Expression) -> Expression:
    if isinstance(arg, Literal) and isinstance(arg.value, int) and arg.type.is_integral:
        return Literal(float(arg.value), DOUBLE)
    return arg


def _fold(node: Call) -> Expression:
    if not node.args or not all(isinstance(a, Literal) for a in node.args):
        return node
    values = [a.value for a in node.args if isinstance(a, Literal)]
    if node.function in _NULL_SAFE:
        return node
    if any(v is None for v in values):
        foldable = node.function in _ARITHMETIC or node.function in _COMPARISON
        return Literal(None, node.type) if foldable else node
    match node.function, values:
        case function, [int() | float() as a, int() | float() as b] if function in _ARITHMETIC:
            return _number(_ARITHMETIC[function](a, b), node)
        case "/", [int() | float() as a, int() | float() as b] if b != 0:
            return _number(float(a) / float(b), node)
        case "negative", [int() | float() as a]:
            return _number(-a, node)
        case function, [a, b] if function in _COMPARISON and type(a) is type(b) and a == a and b == b:
            return literal(_COMPARISON[function](a, b))
        case "cast", [int() as a] if node.type.kind in (Kind.DOUBLE, Kind.BIGINT) and not isinstance(a, bool):
            return Literal(float(a), DOUBLE) if node.type.kind is Kind.DOUBLE else Literal(a, node.type)
    return node


def _number(value: _Number, node: Call) -> Expression:
    """A folded number, unless it would overflow: then Spark must see (and refuse) the original."""
    type_: DataType = node.type
    if type_.is_integral:
        if isinstance(value, int) and -_RANGE[type_.kind] <= value < _RANGE[type_.kind]:
            return Literal(value, type_)
        return node
    if type_.kind is Kind.DOUBLE and value == value and abs(value) != float("inf"):
        return Literal(float(value), type_)
    return node
