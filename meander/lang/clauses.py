"""Clauses that both languages have: a condition, a WHERE, the time column of a window."""

from __future__ import annotations

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.relation import Relation, filtered
from meander.lang.scope import Scope
from meander.lang.text import Phrase
from meander.model.errors import InputError
from meander.model.expressions.tree import Expression


def condition(scope: Scope, phrase: Phrase) -> Expression:
    """The condition of a WHERE or ON."""
    hint = "a condition on an aggregate is written after HAVING"
    return parse(phrase, ExpressionContext(scope.resolve, no_aggregates=hint))


def restricted(relation: Relation, where: Phrase) -> Relation:
    """A relation with its WHERE."""
    predicate = condition(relation.scope, where)
    with where.text.at(where.start):
        return filtered(relation, predicate)


def check_event_time(relation: Relation, column: Phrase | None) -> None:
    """A window may name its time column, but only the input's event time can be meant."""
    if column is None:
        return
    with column.text.at(column.start):
        if not column.path:
            raise InputError(f"a window's first argument is the event-time column, not {column.source!r}")
        alias = column.path[0] if len(column.path) == 2 else None
        found = relation.scope.resolve(alias, column.path[-1])
        if relation.event_time is None:
            raise InputError("the event time of this input is not a column of it; leave the column out")
        if found.name != relation.event_time:
            raise InputError(f"{column.source!r} is not the event time of this input; write {relation.event_time!r}")
