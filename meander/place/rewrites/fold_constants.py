"""Fold constants: what is known before the query starts is computed once, not for every tuple."""

from __future__ import annotations

from dataclasses import replace

from meander.model.expressions.canonical import folded
from meander.model.expressions.tree import Named
from meander.model.operators import Filter, Map, Operator
from meander.model.plan import QueryPlan
from meander.place.rewrites.draft import PlanDraft
from meander.place.rewrites.pair_sides import PAIRS


def fold_constants(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    for number, operator in plan.operators.items():
        new = _folded(operator)
        if new != operator:
            draft.set(number, new, *plan.inputs[number])
    return draft.finished()


def _folded(operator: Operator) -> Operator:
    match operator:
        case Filter(predicate):
            return Filter(folded(predicate))
        case Map(columns):
            return Map(tuple(Named(c.name, folded(c.expression)) for c in columns))
    if isinstance(operator, PAIRS) and operator.condition is not None:
        return replace(operator, condition=folded(operator.condition))
    return operator
