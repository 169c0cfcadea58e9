"""Narrow inputs: columns that nobody above reads do not reach joins, patterns and unions.

A projection of the user's own gives only the columns that are read. Where there is none, one is put before the operator
if that makes rows clearly smaller: it is one more operator to place. None is put before a window aggregate: that keeps
no rows, and a projection beside it would take the room in which it could be near its sources itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.expressions.tree import Column, Expression, Named, columns, renamed
from meander.model.ids import OperatorId
from meander.model.operators import (
    Conjunction,
    Disjunction,
    Filter,
    Map,
    Operator,
    Sequence,
    Union,
    WindowAggregate,
    WindowJoin,
    output_schema,
)
from meander.model.plan import QueryPlan
from meander.model.schema import Schema, beside
from meander.place.rates import row_bytes

WORTHWHILE = 3 / 4
"""The share of a row that may be left, at most, where a projection is added."""

Names = dict[str, str]
"""Columns by their name in the plan as it was, with the name that they have now."""


def narrow_inputs(plan: QueryPlan) -> QueryPlan:
    wanted = _wanted(plan)
    if all(len(wanted[o]) == len(plan.schemas[o]) for o in plan.operators):
        return plan
    result = _Narrowing(plan, wanted).built()
    return plan if result == plan else result


def _wanted(plan: QueryPlan) -> dict[OperatorId, set[str]]:
    """The columns of each operator that somebody reads."""
    wanted: dict[OperatorId, set[str]] = {o: set() for o in plan.operators}
    for number in reversed(plan.order):
        schemas = [plan.schemas[i] for i in plan.inputs[number]]
        reads = _reads(plan.operators[number], plan.schemas[number], schemas, wanted[number])
        for below, schema, names in zip(plan.inputs[number], schemas, reads, strict=True):
            wanted[below] |= names or {_narrowest(schema)}
    return wanted


def _reads(operator: Operator, own: Schema, inputs: list[Schema], wanted: set[str]) -> list[set[str]]:
    match operator:
        case Filter(predicate):
            return [wanted | columns(predicate)]
        case Map(named):
            return [_all(n.expression for n in named if n.name in wanted)]
        case WindowAggregate(_, keys, aggregates):
            return [_all(n.expression for n in (*keys, *aggregates))]
        case Union() if _smaller(own, wanted):
            places = [i for i, name in enumerate(own.names) if name in wanted]
            return [{schema.names[i] for i in places} for schema in inputs]
        case WindowJoin(keys=keys, condition=condition):
            left, right = _sides(inputs, wanted, condition)
            return [left | {a for a, _ in keys}, right | {b for _, b in keys}]
        case Conjunction(condition=condition) | Sequence(condition=condition):
            return [*_sides(inputs, wanted, condition)]
        case Disjunction():
            return [*_sides(inputs, wanted, None)]
    return [set(schema.names) for schema in inputs]


def _all(expressions: Iterable[Expression]) -> set[str]:
    return {name for each in expressions for name in columns(each)}


def _sides(inputs: list[Schema], wanted: set[str], condition: Expression | None) -> tuple[set[str], set[str]]:
    left, right = inputs
    read = wanted | (columns(condition) if condition is not None else frozenset())
    names = beside(left, right).names[len(left) :]
    return read & set(left.names), {own for own, name in zip(right.names, names, strict=True) if name in read}


def _narrowest(schema: Schema) -> str:
    return min(schema, key=lambda f: row_bytes(Schema((f,)))).name


def _smaller(schema: Schema, names: Iterable[str]) -> bool:
    left = Schema(tuple(f for f in schema if f.name in set(names)))
    return row_bytes(left) <= WORTHWHILE * row_bytes(schema)


class _Narrowing:
    """Builds the plan again, from the sources up."""

    def __init__(self, plan: QueryPlan, wanted: dict[OperatorId, set[str]]) -> None:
        self.plan, self.wanted = plan, wanted
        self.operators: dict[OperatorId, Operator] = {}
        self.inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}
        self.schemas: dict[OperatorId, Schema] = {}
        self.new: dict[OperatorId, tuple[OperatorId, Names]] = {}

    def built(self) -> QueryPlan:
        for number in self.plan.order:
            self.new[number] = self._again(number)
        return QueryPlan(self.operators, self.inputs).numbered()

    def _again(self, number: OperatorId) -> tuple[OperatorId, Names]:
        plan, operator = self.plan, self.plan.operators[number]
        inputs = plan.inputs[number]
        reads = _reads(operator, plan.schemas[number], [plan.schemas[i] for i in inputs], self.wanted[number])
        own = plan.schemas[number].names
        match operator:
            case Filter(predicate):
                below, names = self.new[inputs[0]]
                return self._add(Filter(renamed(predicate, names)), names, below)
            case Map(named):
                below, names = self.new[inputs[0]]
                kept = tuple(c for c in named if c.name in self.wanted[number])
                return self._add(Map(_columns(kept, names)), {c.name: c.name for c in kept}, below)
            case WindowAggregate(window, keys, aggregates, lateness):
                below, names = self.new[inputs[0]]
                again = WindowAggregate(window, _columns(keys, names), _columns(aggregates, names), lateness)
                return self._add(again, {n: n for n in own}, below)
            case Union():
                found = [self._exactly(i, names) for i, names in zip(inputs, reads, strict=True)]
                first = [plan.schemas[inputs[0]].names.index(n) for n in found[0][1]]
                names = {own[at]: new for at, new in zip(first, found[0][1].values(), strict=True)}
                return self._add(operator, names, *(below for below, _ in found))
            case WindowJoin() | Conjunction() | Sequence() | Disjunction():
                return self._pair(operator, inputs, reads)
        return self._add(operator, {n: n for n in own}, *(self.new[i][0] for i in inputs))

    def _pair(
        self,
        operator: WindowJoin | Conjunction | Sequence | Disjunction,
        inputs: tuple[OperatorId, ...],
        reads: list[set[str]],
    ) -> tuple[OperatorId, Names]:
        (left, lefts), (right, rights) = (self._narrowed(i, r) for i, r in zip(inputs, reads, strict=True))
        left_schema, right_schema = (self.schemas[each] for each in (left, right))
        together = beside(left_schema, right_schema).names[len(left_schema) :]
        numbered = dict(zip(right_schema.names, together, strict=True))
        before = [self.plan.schemas[i] for i in inputs]
        names = dict(lefts)
        for name, original in zip(beside(*before).names[len(before[0]) :], before[1].names, strict=True):
            if original in rights:
                names[name] = numbered[rights[original]]
        match operator:
            case WindowJoin(window, keys, condition, lateness, kind):
                pairs = tuple((lefts[a], rights[b]) for a, b in keys)
                operator = WindowJoin(window, pairs, _renamed(condition, names), lateness, kind)
            case Conjunction(window, condition, lateness):
                operator = Conjunction(window, _renamed(condition, names), lateness)
            case Sequence(within, condition, lateness):
                operator = Sequence(within, _renamed(condition, names), lateness)
        return self._add(operator, names, left, right)

    def _narrowed(self, number: OperatorId, reads: set[str]) -> tuple[OperatorId, Names]:
        """An input without columns that are not read, if that is worth a projection."""
        below, names = self.new[number]
        kept = {names[n] for n in reads or {_narrowest(self.plan.schemas[number])}}
        return self._exactly(number, reads) if _smaller(self.schemas[below], kept) else (below, names)

    def _exactly(self, number: OperatorId, reads: set[str]) -> tuple[OperatorId, Names]:
        below, names = self.new[number]
        schema = self.schemas[below]
        reads = reads or {_narrowest(self.plan.schemas[number])}
        kept = {n: names[n] for n in self.plan.schemas[number].names if n in reads}
        if list(kept.values()) == list(schema.names):
            return below, kept
        spec = Map(tuple(Named(n, Column(n, schema.type_of(n))) for n in kept.values()))
        return self._add(spec, kept, below)[0], kept

    def _add(self, operator: Operator, names: Names, *inputs: OperatorId) -> tuple[OperatorId, Names]:
        new = OperatorId(len(self.operators) + 1)
        self.operators[new], self.inputs[new] = operator, inputs
        self.schemas[new] = output_schema(operator, tuple(self.schemas[i] for i in inputs))
        return new, names


def _columns(named: tuple[Named, ...], names: Names) -> tuple[Named, ...]:
    return tuple(Named(n.name, renamed(n.expression, names)) for n in named)


def _renamed(condition: Expression | None, names: Names) -> Expression | None:
    return None if condition is None else renamed(condition, names)
