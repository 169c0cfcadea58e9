"""Merge filters: filters in a row are one; conditions that are always true, or asked twice, are left out."""

from __future__ import annotations

from meander.model.expressions.canonical import canonical
from meander.model.expressions.tree import TRUE, Expression, conjuncts
from meander.model.ids import OperatorId
from meander.model.operators import Filter
from meander.model.plan import QueryPlan
from meander.place.rewrites.draft import PlanDraft, conjunction


def merge_filters(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    for number in plan.order:
        if isinstance(plan.operators[number], Filter):
            _merge(draft, number)
    return draft.finished()


def _merge(draft: PlanDraft, number: OperatorId) -> None:
    operator, below = draft.operators[number], draft.inputs[number][0]
    assert isinstance(operator, Filter)
    parts = list(conjuncts(operator.predicate))
    under = draft.operators[below]
    if isinstance(under, Filter) and draft.only_reader(below):
        parts = [*conjuncts(under.predicate), *parts]
        below = draft.inputs[below][0]
    different: dict[Expression, Expression] = {}
    for part in parts:
        different.setdefault(canonical(part), part)
    different.pop(TRUE, None)
    if not different:
        draft.bypass(number, below)
    elif len(different) < len(parts) or below != draft.inputs[number][0]:
        draft.set(number, Filter(conjunction(list(different.values()))), below)
