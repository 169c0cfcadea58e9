"""The operators of a query plan: a closed union of frozen records, each with its input arity and output schema.

Event time travels beside the columns, not in them: every tuple has one, and an operator determines that of its results.
Operators with two inputs read both schemas side by side (`schema.beside`): left names stay, right names that are taken
get a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from meander.model.errors import InputError
from meander.model.expressions.tree import Column, Expression, Named, renamed, sql, walk
from meander.model.schema import BOOLEAN, TIMESTAMP, Field, Kind, Schema, beside
from meander.model.units import show_duration
from meander.model.windows import PairWindow, Window

WINDOW_COLUMNS = (Field("window_start", TIMESTAMP), Field("window_end", TIMESTAMP))
"""Columns that every window aggregate puts before its keys."""


@dataclass(frozen=True, slots=True)
class Source:
    """Reads one stream. With a node it is one physical producer, pinned there; without, all of the stream's."""

    stream: str
    schema: Schema
    event_time: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the tuples for which the predicate is true."""

    predicate: Expression

    def __post_init__(self) -> None:
        _must_be_boolean("WHERE", self.predicate)


@dataclass(frozen=True, slots=True)
class Map:
    """Computes each output column from the input columns."""

    columns: tuple[Named, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("a projection needs at least one column")


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A Python function of the user's, `module:function`, from Arrow batches to Arrow batches.

    It must be stateless and deterministic: batches may be cut anywhere and may be replayed after a crash.
    """

    function: str
    output: Schema

    def __post_init__(self) -> None:
        module, colon, name = self.function.partition(":")
        if not (colon and all(part.isidentifier() for part in module.split(".")) and name.isidentifier()):
            raise InputError(
                f"user function {self.function!r} must be written module:function, such as fleet.rules:enrich"
            )


@dataclass(frozen=True, slots=True)
class Union:
    """All tuples of all inputs, which have the same column types; names are the first input's."""


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """One row for each window and key: window start and end, the keys, the aggregates."""

    window: Window
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    lateness_ms: int = 0

    def __post_init__(self) -> None:
        if not self.aggregates and not self.keys:
            raise InputError("a window needs an aggregate or a key; write for example COUNT(*)")
        _must_not_be_negative("allowed lateness", self.lateness_ms)


class JoinKind(Enum):
    """Which tuples a join gives besides pairs, or instead of them."""

    INNER = "inner"
    LEFT = "left"
    """Left tuples without a partner as well, with nulls."""
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Left tuples that have a partner, once, instead of pairs."""
    ANTI = "anti"
    """Left tuples without a partner, instead of pairs."""

    @property
    def gives_pairs(self) -> bool:
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def waits_for(self) -> tuple[bool, bool]:
        """Whether tuples of the left, and of the right side, wait until no partner can come any more."""
        return self not in (JoinKind.INNER, JoinKind.RIGHT), self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """Pairs of a left and a right tuple in one window with equal keys, for which the condition is true."""

    window: PairWindow
    keys: tuple[tuple[str, str], ...]
    condition: Expression | None = None
    lateness_ms: int = 0
    kind: JoinKind = JoinKind.INNER

    def __post_init__(self) -> None:
        if not self.keys:
            raise InputError(
                "a join needs an equality between its two sides in ON; without one, use a conjunction (AND)"
            )
        if self.condition is not None:
            _must_be_boolean("ON", self.condition)
        _must_not_be_negative("allowed lateness", self.lateness_ms)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Pairs of a left and a right tuple that both happen in one window, in either order."""

    window: PairWindow
    condition: Expression | None = None
    lateness_ms: int = 0

    def __post_init__(self) -> None:
        if self.condition is not None:
            _must_be_boolean("WHERE", self.condition)
        _must_not_be_negative("allowed lateness", self.lateness_ms)


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Every tuple of either side, in the schemas side by side; the other side's columns are null."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A left tuple followed by a later right tuple within a time, for which the condition is true."""

    within_ms: int
    condition: Expression | None = None
    lateness_ms: int = 0

    def __post_init__(self) -> None:
        if self.within_ms <= 0:
            raise InputError(f"a sequence's time must be positive, not {self.within_ms} ms")
        if self.condition is not None:
            _must_be_boolean("WHERE", self.condition)
        _must_not_be_negative("allowed lateness", self.lateness_ms)


@dataclass(frozen=True, slots=True)
class Sink:
    """Hands results to a named sink. `columns` are the result's names, in the input's order."""

    name: str
    columns: tuple[str, ...]


Operator = (
    Source
    | Filter
    | Map
    | UserFunction
    | Union
    | WindowAggregate
    | WindowJoin
    | Conjunction
    | Disjunction
    | Sequence
    | Sink
)
Binary = WindowJoin | Conjunction | Disjunction | Sequence
"""Operators with a left and a right input."""

STATEFUL = (WindowAggregate, WindowJoin, Conjunction, Sequence)
"""Operators that must remember tuples between batches."""


def kind_of(operator: Operator) -> str:
    """The operator's word in DESIGN's table: `window aggregate`, `user function`, ..."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in type(operator).__name__).strip()


def arity(operator: Operator) -> tuple[int, int | None]:
    """Fewest and most inputs."""
    match operator:
        case Source():
            return 0, 0
        case Union():
            return 1, None
        case WindowJoin() | Conjunction() | Disjunction() | Sequence():
            return 2, 2
    return 1, 1


def output_schema(operator: Operator, inputs: tuple[Schema, ...]) -> Schema:
    """The schema of an operator's output, given its inputs; raises when the inputs do not fit it."""
    match operator:
        case Source(schema=schema) | UserFunction(output=schema):
            return schema
        case Filter(predicate):
            _check(inputs[0], predicate)
            return inputs[0]
        case Map(columns):
            _check(inputs[0], *(c.expression for c in columns))
            return Schema(tuple(Field(c.name, c.expression.type) for c in columns))
        case Union():
            return _union_schema(inputs)
        case WindowAggregate(keys=keys, aggregates=aggregates):
            _check(inputs[0], *(c.expression for c in (*keys, *aggregates)))
            return Schema((*WINDOW_COLUMNS, *(Field(c.name, c.expression.type) for c in (*keys, *aggregates))))
        case WindowJoin(keys=keys, condition=condition, kind=kind):
            _check_keys(keys, inputs)
            schema = _pair_schema(inputs, condition)
            return schema if kind.gives_pairs else inputs[0]
        case Conjunction(condition=condition) | Sequence(condition=condition):
            return _pair_schema(inputs, condition)
        case Disjunction():
            return beside(*inputs)
        case Sink(columns=columns):
            if len(columns) != len(inputs[0]):
                raise InputError(f"sink {operator.name!r} names {len(columns)} columns, but gets {len(inputs[0])}")
            return Schema(tuple(Field(n, f.type) for n, f in zip(columns, inputs[0], strict=True)))


def with_renamed_inputs(operator: Operator, inputs: tuple[Schema, ...], targets: tuple[Schema, ...]) -> Operator:
    """The same operator over inputs whose columns have other names (same types, same order)."""
    if inputs == targets or not inputs:
        return operator
    if len(inputs) == 2 and isinstance(operator, Binary):
        old, new = beside(*inputs).names, beside(*targets).names
    else:
        old, new = inputs[0].names, targets[0].names
    names = dict(zip(old, new, strict=True))

    def change(expression: Expression) -> Expression:
        return renamed(expression, names)

    renamed_operator = _with_expressions(operator, change)
    if isinstance(renamed_operator, WindowJoin):
        left = dict(zip(inputs[0].names, targets[0].names, strict=True))
        right = dict(zip(inputs[1].names, targets[1].names, strict=True))
        return replace(renamed_operator, keys=tuple((left[a], right[b]) for a, b in renamed_operator.keys))
    return renamed_operator


def _with_expressions(operator: Operator, change: Callable[[Expression], Expression]) -> Operator:
    def each(columns: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(c.name, change(c.expression)) for c in columns)

    match operator:
        case Filter(predicate):
            return Filter(change(predicate))
        case Map(columns):
            return Map(each(columns))
        case WindowAggregate(keys=keys, aggregates=aggregates):
            return replace(operator, keys=each(keys), aggregates=each(aggregates))
        case WindowJoin(condition=condition) | Conjunction(condition=condition) | Sequence(condition=condition):
            return operator if condition is None else replace(operator, condition=change(condition))
    return operator


def describe(operator: Operator) -> str:
    """One line for people: `filter speed < 30.0D`."""
    word = kind_of(operator)
    match operator:
        case Source(stream, node=node):
            return f"{word} {stream}" + (f" at {node}" if node else "")
        case Filter(predicate):
            return f"{word} {sql(predicate)}"
        case Map(columns):
            return f"{word} {', '.join(map(str, columns))}"
        case UserFunction(function):
            return f"{word} {function}"
        case WindowAggregate(window, keys, aggregates, lateness):
            by = f" by {', '.join(map(str, keys))}" if keys else ""
            return f"{word} {', '.join(map(str, aggregates))}{by} {window}{_late(lateness)}"
        case WindowJoin(window, keys, condition, lateness, kind):
            on = " and ".join(f"left.{a} = right.{b}" for a, b in keys)
            if kind is not JoinKind.INNER:
                word = f"{kind.value} {word}"
            return f"{word} {on}{_where(condition)} {window}{_late(lateness)}"
        case Conjunction(window, condition, lateness):
            return f"{word} {window}{_where(condition)}{_late(lateness)}"
        case Sequence(within_ms, condition, lateness):
            return f"{word} within {show_duration(within_ms)}{_where(condition)}{_late(lateness)}"
        case Sink(name, columns):
            return f"{word} {name} ({', '.join(columns)})"
    return word


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f" where {sql(condition)}"


def _late(lateness_ms: int) -> str:
    return f" allowing {show_duration(lateness_ms)} late" if lateness_ms else ""


def _must_be_boolean(clause: str, expression: Expression) -> None:
    if expression.type.kind not in (Kind.BOOLEAN, Kind.NULL):
        raise InputError(f"{clause} needs a {BOOLEAN}, but {sql(expression)} is {expression.type}; write a comparison")


def _must_not_be_negative(name: str, value: int) -> None:
    if value < 0:
        raise InputError(f"{name} must not be negative, but is {value} ms")


def _check(schema: Schema, *found: Expression) -> None:
    """Every column an expression reads must exist with the type the expression was built for."""
    known: Mapping[str, Field] = {f.name: f for f in schema}
    for expression in found:
        for node in walk(expression):
            if isinstance(node, Column) and (node.name not in known or known[node.name].type != node.type):
                actual = schema.type_of(node.name)
                raise InputError(
                    f"column {node.name!r} is {actual}, but the expression {sql(expression)} reads {node.type}"
                )


def _check_keys(keys: tuple[tuple[str, str], ...], inputs: tuple[Schema, ...]) -> None:
    for left, right in keys:
        a, b = inputs[0].type_of(left), inputs[1].type_of(right)
        if a != b:
            raise InputError(
                f"join keys {left!r} ({a}) and {right!r} ({b}) have different types; use CAST in a projection"
            )


def _pair_schema(inputs: tuple[Schema, ...], condition: Expression | None) -> Schema:
    schema = beside(*inputs)
    if condition is not None:
        _check(schema, condition)
    return schema


def _union_schema(inputs: tuple[Schema, ...]) -> Schema:
    first = inputs[0]
    for number, other in enumerate(inputs[1:], start=2):
        if other.types != first.types:
            raise InputError(
                f"union input {number} has columns ({other}), but input 1 has ({first}); "
                "select the same types in the same order on every side"
            )
    return first
