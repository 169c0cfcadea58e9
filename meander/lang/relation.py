"""Relations: parts of a plan under construction. Both query languages build their plans here and nowhere else.

A relation knows its last operator, that operator's output, the names of its columns, and the column of the event time.
Every function returns a new relation; `plan` turns a finished one into a query plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from meander.lang.join_keys import KeySides, bound_of
from meander.lang.limits import are_checked
from meander.lang.scope import Scope
from meander.model.errors import InputError, unknown
from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, Expression, Named, conjuncts
from meander.model.ids import OperatorId
from meander.model.operators import (
    Conjunction,
    Disjunction,
    Filter,
    JoinKind,
    Map,
    Operator,
    Sink,
    Source,
    Union,
    UserFunction,
    WindowJoin,
    output_schema,
)
from meander.model.operators import Sequence as SequenceOperator
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.model.windows import PairWindow

MOST_UNITED = 1_000
"""Parts of one union."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The output of an operator. `event_time` is the column that holds the tuples' time, if there is one."""

    operator: Operator
    inputs: tuple[Relation, ...]
    scope: Scope
    event_time: str | None

    @property
    def schema(self) -> Schema:
        return self.scope.schema


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of a pair: the distance of its tuples in time, and the lateness of a tuple."""

    window: PairWindow
    lateness_ms: int = 0


def source(stream: Stream) -> Relation:
    operator = Source(stream.name, stream.schema, stream.event_time)
    return Relation(operator, (), Scope.of(stream.schema, stream.name), stream.event_time)


def called(relation: Relation, alias: str) -> Relation:
    """The same relation, whose columns are `alias.column`."""
    relation = shown(relation)
    return replace(relation, scope=Scope.of(relation.schema, alias))


def filtered(relation: Relation, predicate: Expression) -> Relation:
    return replace(relation, operator=Filter(predicate), inputs=(relation,))


def projected(relation: Relation, columns: Sequence[Named]) -> Relation:
    """The columns, or the relation itself when they are all it has, as it has them."""
    same = tuple(Named(f.name, Column(f.name, f.type)) for f in relation.schema)
    if tuple(columns) == same:
        return relation
    operator = Map(tuple(columns))
    schema = output_schema(operator, (relation.schema,))
    times = [c.name for c in columns if isinstance(c.expression, Column) and c.expression.name == relation.event_time]
    scope = Scope.of(schema, relation.scope.only_alias)
    return Relation(operator, (relation,), scope, times[0] if times else None)


def joined(left: Relation, right: Relation, on: Expression, bound: Bound, kind: JoinKind = JoinKind.INNER) -> Relation:
    """A window join. Equalities between a left and a right side are its keys, the rest its condition.

    A key that is more than a column becomes a column of its side that nobody sees.
    """
    scope = left.scope.beside(right.scope)
    originals = dict(zip(scope.schema.names[len(left.schema) :], right.schema.names, strict=True))
    sides = KeySides(left.schema, right.schema, {*scope.schema.names})
    rest = [part for part in conjuncts(on) if not sides.take(part, originals)]
    condition = None if not rest else rest[0] if len(rest) == 1 else call("and", *rest)
    left, right = (_with_keys(each, added) for each, added in zip((left, right), sides.added, strict=True))
    operator = WindowJoin(bound.window, tuple(sides.keys), condition, bound.lateness_ms, kind)
    pair = _pair(operator, left, right)
    return pair if kind.gives_pairs else replace(pair, scope=left.scope)


def bounded_by(left: Relation, right: Relation, on: Expression) -> tuple[PairWindow | None, Expression]:
    """How far apart in time ON wants the tuples of a join, if it does, and what else it says."""
    names = left.scope.beside(right.scope).schema.names[len(left.schema) :]
    numbered = dict(zip(right.schema.names, names, strict=True))
    right_time = None if right.event_time is None else numbered[right.event_time]
    return bound_of(on, left.event_time, right_time)


def _with_keys(relation: Relation, added: Sequence[Named]) -> Relation:
    """The relation with columns more that its names do not show."""
    if not added:
        return relation
    own = (Named(f.name, Column(f.name, f.type)) for f in relation.schema)
    operator = Map((*own, *added))
    schema = output_schema(operator, (relation.schema,))
    return Relation(operator, (relation,), Scope(schema, relation.scope.columns), relation.event_time)


def shown(relation: Relation) -> Relation:
    """The relation with no other columns than its names show."""
    visible = [c.name for c in relation.scope.columns]
    if len(visible) == len(relation.schema):
        return relation
    columns = [Named(name, Column(name, relation.schema.type_of(name))) for name in visible]
    result = projected(relation, columns)
    return replace(result, scope=Scope(result.schema, relation.scope.columns))


def both(left: Relation, right: Relation, bound: Bound, condition: Expression | None = None) -> Relation:
    """A conjunction: both happen, in either order."""
    return _pair(Conjunction(bound.window, condition, bound.lateness_ms), left, right)


def followed(
    left: Relation, right: Relation, within_ms: int, condition: Expression | None = None, lateness_ms: int = 0
) -> Relation:
    """A sequence: left, then right."""
    return _pair(SequenceOperator(within_ms, condition, lateness_ms), left, right)


def either(left: Relation, right: Relation) -> Relation:
    """A disjunction: one or the other, the other's columns null."""
    return _pair(Disjunction(), left, right)


def _pair(operator: Operator, left: Relation, right: Relation) -> Relation:
    output_schema(operator, (left.schema, right.schema))
    return Relation(operator, (left, right), left.scope.beside(right.scope), None)


def united(relations: Iterable[Relation]) -> Relation:
    """All tuples of all relations; unions of unions become one."""
    flat: list[Relation] = []
    for relation in map(shown, relations):
        flat += relation.inputs if isinstance(relation.operator, Union) else (relation,)
    if len(flat) == 1:
        return flat[0]
    if len(flat) > MOST_UNITED and are_checked():
        raise InputError(f"this UNION ALL has {len(flat):,} parts; at most {MOST_UNITED:,} are put together")
    schema = output_schema(Union(), tuple(r.schema for r in flat))
    first = flat[0]
    places = {r.schema.names.index(r.event_time) if r.event_time else None for r in flat}
    return Relation(
        Union(), tuple(flat), Scope.of(schema, first.scope.only_alias), first.event_time if len(places) == 1 else None
    )


def applied(relation: Relation, function: str, output: Schema) -> Relation:
    """A user function; the event-time column survives when the function returns it."""
    kept = relation.event_time if relation.event_time in output else None
    scope = Scope.of(output, relation.scope.only_alias)
    return Relation(UserFunction(function, output), (relation,), scope, kept)


def check_sink(name: str, known: Collection[str] | None) -> None:
    """Sinks are checked when the known ones are given."""
    if known is not None and name not in known:
        raise unknown("sink", name, known)


def plan(relation: Relation, sinks: Sequence[str]) -> QueryPlan:
    """The plan that hands the relation to the sinks. Equal parts of it are one operator, read several times."""
    if not sinks:
        raise InputError("a query needs at least one sink")
    relation = shown(relation)
    operators: dict[OperatorId, Operator] = {}
    inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}
    known: dict[tuple[Operator, tuple[OperatorId, ...]], OperatorId] = {}
    visited: dict[int, OperatorId] = {}

    def add(operator: Operator, below: tuple[OperatorId, ...]) -> OperatorId:
        if (operator, below) not in known:
            new = known[operator, below] = OperatorId(len(known) + 1)
            operators[new], inputs[new] = operator, below
        return known[operator, below]

    def visit(part: Relation) -> OperatorId:
        if id(part) not in visited:
            visited[id(part)] = add(part.operator, tuple(visit(i) for i in part.inputs))
        return visited[id(part)]

    top = visit(relation)
    for number, name in enumerate(sinks):
        if name in sinks[:number]:
            raise InputError(f"sink {name!r} is named twice")
        add(Sink(name, relation.schema.names), (top,))
    return QueryPlan(operators, inputs).numbered()
