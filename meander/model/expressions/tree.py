"""Typed expressions over columns, the part of Spark SQL that plans are made of.

Three node types only: a column, a literal, a call. Operators are calls whose function is their symbol. Types are
settled when a node is built (see `functions.call`), so a plan is known to be well typed before Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from meander.model.schema import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, DataType, Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the operator's input (for two inputs: of their schemas side by side)."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: bool | int | float | str | None
    type: DataType

    def __eq__(self, other: object) -> bool:
        """Equal only with the same type, and `1` is not `True` nor `1.0`."""
        return isinstance(other, Literal) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator applied to arguments; `cast` has its target in `type`."""

    function: str
    args: tuple[Expression, ...]
    type: DataType


Expression = Column | Literal | Call


@dataclass(frozen=True, slots=True)
class Named:
    """An expression with the name of the column it makes."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        text = sql(self.expression)
        return text if text == quoted(self.name) else f"{text} AS {quoted(self.name)}"


def literal(value: bool | int | float | str | None) -> Literal:
    """A constant with the type Spark would give it."""
    match value:
        case None:
            return Literal(None, NULL)
        case bool():
            return Literal(value, BOOLEAN)
        case int():
            return Literal(value, INT if -(2**31) <= value < 2**31 else BIGINT)
        case float():
            return Literal(value, DOUBLE)
        case str():
            return Literal(value, STRING)


TRUE, FALSE = literal(True), literal(False)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it."""
    yield expression
    if isinstance(expression, Call):
        for arg in expression.args:
            yield from walk(arg)


def columns(expression: Expression) -> frozenset[str]:
    """Names of all columns that the expression reads."""
    return frozenset(e.name for e in walk(expression) if isinstance(e, Column))


def rewrite(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Rebuilds the expression bottom-up, passing each node through `change`."""
    if isinstance(expression, Call):
        expression = Call(expression.function, tuple(rewrite(a, change) for a in expression.args), expression.type)
    return change(expression)


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The same expression over renamed columns; names that are not mentioned stay."""
    return rewrite(expression, lambda e: Column(names.get(e.name, e.name), e.type) if isinstance(e, Column) else e)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The parts of an AND, flattened."""
    if isinstance(expression, Call) and expression.function == "and":
        return tuple(c for arg in expression.args for c in conjuncts(arg))
    return (expression,)


INFIX = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(["=", "!=", "<", "<=", ">", ">=", "<=>", "like", "ilike", "rlike"], 4),
    "|": 5,
    "^": 6,
    "&": 7,
    "+": 8,
    "-": 8,
    **dict.fromkeys(["*", "/", "%", "div"], 9),
}
"""Operators between two operands, and how tightly they bind."""

_NOT, _TEST, _VALUE, _UNARY, _ATOM = 3, 4, 5, 10, 11


def sql(expression: Expression) -> str:
    """Spark SQL text that reads back as the same expression.

    >>> from meander.model.schema import DOUBLE
    >>> sql(Call("<", (Column("speed", DOUBLE), literal(30.0)), BOOLEAN))
    'speed < 30.0D'
    """
    return _sql(expression)[0]


def _sql(expression: Expression) -> tuple[str, int]:
    match expression:
        case Column(name):
            return quoted(name), _ATOM
        case Literal(value, type_):
            return _literal_sql(value, type_), _ATOM
        case Call("not", (arg,)):
            return f"NOT {_inside(arg, _NOT)}", _NOT
        case Call("negative", (arg,)):
            text = _inside(arg, _ATOM)
            return (f"-({text})" if text.startswith("-") else f"-{text}"), _UNARY  # two dashes would begin a comment
        case Call("~", (arg,)):
            return f"~{_inside(arg, _ATOM)}", _UNARY
        case Call("is_null", (arg,)):
            return f"{_inside(arg, _TEST + 1)} IS NULL", _TEST
        case Call("in", (arg, *options)):
            return f"{_inside(arg, _TEST + 1)} IN ({', '.join(sql(o) for o in options)})", _TEST
        case Call("between", (arg, low, high)):
            return f"{_inside(arg, _VALUE)} BETWEEN {_inside(low, _VALUE)} AND {_inside(high, _VALUE)}", _TEST
        case Call("cast", (arg,), type_):
            return f"CAST({sql(arg)} AS {str(type_).upper()})", _ATOM
        case Call("case", args):
            pairs = [f"WHEN {sql(w)} THEN {sql(t)}" for w, t in zip(args[0:-1:2], args[1::2], strict=False)]
            return f"CASE {' '.join(pairs)} ELSE {sql(args[-1])} END", _ATOM
        case Call("element_at_index", (arg, index)):
            return f"{_inside(arg, _ATOM)}[{sql(index)}]", _ATOM
        case Call("and" | "or" as word, args):
            return f" {word.upper()} ".join(_inside(a, INFIX[word] + 1) for a in args), INFIX[word]
        case Call(function, (left, right)) if function in INFIX:
            level = INFIX[function]
            tight = level + 1 if level == _TEST else level
            return f"{_inside(left, tight)} {function.upper()} {_inside(right, level + 1)}", level
        case Call("count_distinct" | "sum_distinct" | "avg_distinct" as function, (arg,)):
            return f"{function.removesuffix('_distinct')}(DISTINCT {sql(arg)})", _ATOM
        case Call(function, args):
            return f"{function}({'*' if function == 'count' and not args else ', '.join(map(sql, args))})", _ATOM
    raise AssertionError(expression)


def _inside(expression: Expression, level: int) -> str:
    text, own = _sql(expression)
    return text if own >= level else f"({text})"


def quoted(name: str) -> str:
    """The name as Spark SQL wants it: in backticks when it is not a plain word."""
    if name.isidentifier() and name.isascii() and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


_RESERVED = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "true",
        "false",
        "case",
        "when",
        "then",
        "else",
        "end",
        "cast",
        "between",
        "like",
        "rlike",
        "select",
        "from",
        "where",
        "group",
        "by",
        "having",
        "union",
        "join",
        "on",
        "as",
        "interval",
        "window",
        "date",
        "timestamp",
        "distinct",
        "div",
        "exists",
        "all",
        "any",
        "with",
        "into",
        "demand",
        "allow",
        "within",
        "match",
        "returns",
        "order",
        "limit",
        "inner",
        "left",
        "right",
        "full",
        "cross",
    ]
)


def _literal_sql(value: bool | int | float | str | None, type_: DataType) -> str:
    match value:
        case None:
            return "NULL" if type_.kind is Kind.NULL else f"CAST(NULL AS {str(type_).upper()})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) + ("L" if type_.kind is Kind.BIGINT else "")
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                return f"CAST('{value}' AS DOUBLE)"
            return f"{value!r}D" if type_.kind is Kind.DOUBLE else f"CAST({value!r}D AS FLOAT)"
        case str():
            text = "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
            return f"{type_.kind.name} {text}" if type_.kind in (Kind.TIMESTAMP, Kind.DATE) else text
