"""A SELECT with a window: one window aggregate, then HAVING, then the select list.

The select list may mix aggregates, keys and expressions over both. Each distinct aggregate is computed once; the rest
of an expression is computed from the aggregate's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meander.lang.expressions import ExpressionContext, Resolver, contains_aggregate, parse
from meander.lang.relation import Relation, filtered, projected
from meander.lang.scope import Scope
from meander.lang.sql.items import Items, SelectItem, Star, check_distinct, name_of
from meander.lang.text import Phrase
from meander.model.errors import InputError
from meander.model.expressions.functions import is_aggregate
from meander.model.expressions.tree import Call, Column, Expression, Named, renamed
from meander.model.operators import WINDOW_COLUMNS, WindowAggregate, output_schema
from meander.model.schema import TIMESTAMP, fresh
from meander.model.windows import Window

_WINDOW_NAMES = tuple(f.name for f in WINDOW_COLUMNS)
_MARK = "\0"
"""Starts the name of a column that stands for a column of the aggregate's output."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """The parts of a windowed SELECT besides its list."""

    window: Window
    lateness_ms: int = 0
    keys: Sequence[SelectItem] = ()
    having: Phrase | None = None


@dataclass
class _Settled:
    """Aggregates found so far, in order, with the names that the select list gives them."""

    keys: Mapping[Expression, str]
    aggregates: dict[Call, str] = field(default_factory=dict)

    def settle(self, expression: Expression) -> Expression:
        """The expression over the aggregate's output."""
        if expression in self.keys:
            return Column(self.keys[expression], expression.type)
        match expression:
            case Column(name, type_) if name.startswith(_MARK):
                return Column(name.removeprefix(_MARK), type_)
            case Column(name):
                remedy = f"group by it or use first({name})"
                raise InputError(f"column {name!r} is neither in GROUP BY nor inside an aggregate; {remedy}")
            case Call(function, args, type_) if is_aggregate(function):
                self.aggregates.setdefault(expression, "")
                return Column(self._placeholder(expression), type_)
            case Call(function, args, type_):
                return Call(function, tuple(self.settle(a) for a in args), type_)
        return expression

    def _placeholder(self, aggregate: Call) -> str:
        return f"{_MARK}{list(self.aggregates).index(aggregate)}"

    def named(self) -> tuple[tuple[Named, ...], dict[str, str]]:
        """The aggregates as columns, and the name of each placeholder."""
        wished = [name or f"{a.function}_{i}" for i, (a, name) in enumerate(self.aggregates.items(), start=1)]
        names = fresh(wished, (*_WINDOW_NAMES, *self.keys.values()))
        columns = tuple(Named(n, a) for n, a in zip(names, self.aggregates, strict=True))
        return columns, {f"{_MARK}{i}": n for i, n in enumerate(names)}


def aggregated(relation: Relation, items: Items, grouping: Grouping) -> Relation:
    """The relation of a windowed SELECT."""
    for star in items:
        if isinstance(star, Star):
            raise star.phrase.error("* cannot be used with a window; list the keys and aggregates")
    plain = [i for i in items if isinstance(i, SelectItem)]
    keys = _keys(relation.scope, plain, grouping.keys)
    settled = _Settled({k.expression: k.name for k in keys})
    names = _output_names(relation.scope, keys)
    clause = ExpressionContext(names, relation.scope.resolve)
    parsed = [parse(i.phrase, clause) for i in plain]
    outputs: list[Named] = []
    for position, (item, expression) in enumerate(zip(plain, parsed, strict=True), start=1):
        name = name_of(item, expression, position).removeprefix(_MARK)
        with item.phrase.text.at(item.phrase.start):
            outputs.append(Named(name, settled.settle(expression)))
        if isinstance(expression, Call) and is_aggregate(expression.function):
            settled.aggregates[expression] = settled.aggregates[expression] or name
    having = None
    if grouping.having is not None:
        aliases = {o.name: e for o, e in zip(outputs, parsed, strict=True)}
        in_having = ExpressionContext(_first(aliases, names), relation.scope.resolve)
        with grouping.having.text.at(grouping.having.start):
            having = settled.settle(parse(grouping.having, in_having))
    aggregates, placed = settled.named()
    operator = WindowAggregate(grouping.window, keys, aggregates, grouping.lateness_ms)
    scope = Scope.of(output_schema(operator, (relation.schema,)), relation.scope.only_alias)
    result = Relation(operator, (relation,), scope, "window_end")
    if having is not None and grouping.having is not None:
        with grouping.having.text.at(grouping.having.start):
            result = filtered(result, renamed(having, placed))
    check_distinct(items, outputs)
    return projected(result, [Named(o.name, renamed(o.expression, placed)) for o in outputs])


def _keys(scope: Scope, items: Sequence[SelectItem], keys: Sequence[SelectItem]) -> tuple[Named, ...]:
    """GROUP BY, with a name for each key. A name of the select list may stand for its expression."""
    by_alias = {i.name: i for i in items if i.name}
    clause = ExpressionContext(scope.resolve, no_aggregates="GROUP BY takes columns and expressions over them")
    found: dict[Expression, str] = {}
    for position, key in enumerate(keys, start=1):
        word = key.phrase.path[0] if len(key.phrase.path) == 1 else None
        if word in _WINDOW_NAMES and word not in scope:
            continue
        if word is not None and word not in scope and word in by_alias:
            key = by_alias[word]
        expression = parse(key.phrase, clause)
        name = key.name or _select_name(scope, items, expression) or name_of(key, expression, position)
        found.setdefault(expression, name)
    names = fresh(found.values(), _WINDOW_NAMES)
    return tuple(Named(n, e) for n, e in zip(names, found, strict=True))


def _select_name(scope: Scope, items: Sequence[SelectItem], key: Expression) -> str | None:
    """The name that the select list gives to a computed key."""
    if isinstance(key, Column):
        return None
    clause = ExpressionContext(scope.resolve, scope.resolve)
    for item in items:
        if item.name is None:
            continue
        try:
            expression = parse(item.phrase, clause)
        except InputError:  # reported with the select list
            continue
        if expression == key and not contains_aggregate(expression):
            return item.name
    return None


def _output_names(scope: Scope, keys: Sequence[Named]) -> Resolver:
    """Names outside of aggregates: the window's columns, names of computed keys, columns of the input."""
    marked: dict[str, Expression] = {n: Column(_MARK + n, TIMESTAMP) for n in _WINDOW_NAMES}
    computed = {k.name: k.expression for k in keys if not isinstance(k.expression, Column) and k.name not in scope}
    return _first(marked | computed, scope.resolve)


def _first(known: Mapping[str, Expression], others: Resolver) -> Resolver:
    def resolve(alias: str | None, column: str) -> Expression:
        return known[column] if alias is None and column in known else others(alias, column)

    return resolve
