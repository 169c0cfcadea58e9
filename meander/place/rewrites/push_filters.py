"""Push filters: a filter moves below projections, unions, joins, patterns and windows, towards the sources.

Below a window only what is asked of its keys, below a pair only what is asked of one side. An operator that others read
as well keeps its tuples: the filter stays above it.
"""

from __future__ import annotations

from meander.model.expressions.tree import Column, Expression, columns, conjuncts, walk
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Map, Union, WindowAggregate
from meander.model.plan import QueryPlan
from meander.model.schema import Kind
from meander.place.rewrites.draft import PlanDraft, conjunction, substituted
from meander.place.rewrites.pair_sides import PAIRS, PairSides, above

LARGEST = 100
"""Parts of an expression that a filter may become by what its columns stand for."""

_INEXACT = (Kind.FLOAT, Kind.DOUBLE, Kind.ARRAY)
"""Types of keys with equal values that are not all the same: there are two zeros."""

Moved = tuple[list[Expression], list[list[Expression]]]
"""Conditions that stay, and those that go to each input."""


def push_filters(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    for number in reversed(plan.order):
        operator = plan.operators[number]
        if isinstance(operator, Filter):
            below = draft.inputs[number][0]
            if draft.only_reader(below):
                _push(draft, number, conjuncts(operator.predicate), below)
    return draft.finished()


def _push(draft: PlanDraft, number: OperatorId, parts: tuple[Expression, ...], below: OperatorId) -> None:
    stays, goes = _moved(draft, parts, below)
    if not any(goes):
        return
    inputs = [draft.add_filter(each, some) for each, some in zip(draft.inputs[below], goes, strict=True)]
    if stays:
        draft.set(below, draft.operators[below], *inputs)
        draft.set(number, Filter(conjunction(stays)), below)
    else:
        draft.set(number, draft.operators[below], *inputs)


def _moved(draft: PlanDraft, parts: tuple[Expression, ...], below: OperatorId) -> Moved:
    operator, inputs = draft.operators[below], draft.inputs[below]
    if isinstance(operator, PAIRS):
        left, right, both = PairSides.of(operator, *map(draft.schema, inputs)).split(parts, above(operator))
        return both, [left, right]
    match operator:
        case Map(named):
            return _asked_of(parts, {n.name: n.expression for n in named})
        case WindowAggregate(_, keys):
            return _asked_of(
                parts, {k.name: k.expression for k in keys if k.expression.type.kind not in _INEXACT}, only=True
            )
        case Union():
            names = draft.schema(below).names
            goes = []
            for each in inputs:
                schema = draft.schema(each)
                meaning: dict[str, Expression] = {
                    name: Column(own.name, own.type) for name, own in zip(names, schema, strict=True)
                }
                goes.append([substituted(part, meaning) for part in parts])
            return [], goes
    return list(parts), [[] for _ in inputs]


def _asked_of(parts: tuple[Expression, ...], meaning: dict[str, Expression], only: bool = False) -> Moved:
    """Conditions over columns that stand for expressions of the input."""
    stays, goes = [], []
    for part in parts:
        known = columns(part) <= meaning.keys() and (bool(columns(part)) or not only)
        moved = substituted(part, meaning) if known else part
        if known and sum(1 for _ in walk(moved)) <= LARGEST:
            goes.append(moved)
        else:
            stays.append(part)
    return stays, [goes]
