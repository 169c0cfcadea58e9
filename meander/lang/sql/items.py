"""Items of a SELECT list: `*`, `alias.*`, or an expression with the name of the column it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.relation import Relation, projected, shown
from meander.lang.text import Phrase
from meander.model.errors import InputError
from meander.model.expressions.tree import Call, Column, Expression, Named
from meander.model.schema import fresh


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `alias.*`"""

    phrase: Phrase
    alias: str | None


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An expression, with its name when one was written."""

    phrase: Phrase
    name: str | None


Items = Sequence[Star | SelectItem]


def name_of(item: SelectItem, expression: Expression, position: int) -> str:
    """The written name, the column's own, or one made of the function and the item's position: `avg_2`."""
    if item.name is not None:
        return item.name
    if isinstance(expression, Column):
        return item.phrase.path[-1] if item.phrase.path else expression.name
    if isinstance(expression, Call) and expression.function.replace("_", "").isalnum():
        return f"{expression.function}_{position}"
    return f"column_{position}"


def selected(relation: Relation, items: Items) -> Relation:
    """A SELECT without aggregates."""
    if len(items) == 1 and isinstance(items[0], Star) and items[0].alias is None:
        return shown(relation)
    clause = ExpressionContext(relation.scope.resolve)
    expressions = [None if isinstance(i, Star) else parse(i.phrase, clause) for i in items]
    written = [
        name_of(i, e, position)
        for position, (i, e) in enumerate(zip(items, expressions, strict=True), start=1)
        if isinstance(i, SelectItem) and e is not None
    ]
    columns: list[Named] = []
    names = iter(written)
    for item, expression in zip(items, expressions, strict=True):
        if isinstance(item, Star):
            with item.phrase.text.at(item.phrase.start):
                columns += _expanded(relation, item, [*written, *(c.name for c in columns)])
        elif expression is not None:
            columns.append(Named(next(names), expression))
    check_distinct(items, columns)
    return projected(relation, columns)


def _expanded(relation: Relation, star: Star, taken: list[str]) -> list[Named]:
    """The columns behind a star; names that are taken already get a number."""
    visible = relation.scope.star(star.alias)
    schema = relation.schema
    names = fresh((v.column for v in visible), taken)
    return [Named(n, Column(v.name, schema.type_of(v.name))) for n, v in zip(names, visible, strict=True)]


def check_distinct(items: Items, columns: list[Named]) -> None:
    names = [c.name for c in columns]
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        written = (i for i in reversed(items) if isinstance(i, SelectItem) and doubled in (i.name, *i.phrase.path[-1:]))
        last = next(written, items[-1])
        raise InputError(
            f"column {doubled!r} appears twice; give one of them another name with AS",
            last.phrase.text.where(last.phrase.start),
        )
