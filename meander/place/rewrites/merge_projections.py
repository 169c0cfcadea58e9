"""Merge projections: one that reads another becomes one, where nothing would be computed twice."""

from __future__ import annotations

from collections import Counter

from meander.model.expressions.tree import Call, Column, Expression, Named, walk
from meander.model.ids import OperatorId
from meander.model.operators import Map
from meander.model.plan import QueryPlan
from meander.place.rewrites.draft import PlanDraft, substituted

LARGEST = 100
"""Parts of one column's expression at most."""


def merge_projections(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    for number in plan.order:
        if isinstance(plan.operators[number], Map):
            _merge(draft, number)
    return draft.finished()


def _merge(draft: PlanDraft, number: OperatorId) -> None:
    operator, below = draft.operators[number], draft.inputs[number][0]
    assert isinstance(operator, Map)
    if operator.columns == tuple(Named(f.name, Column(f.name, f.type)) for f in draft.schema(below)):
        draft.bypass(number, below)
        return
    under = draft.operators[below]
    if not isinstance(under, Map) or not draft.only_reader(below):
        return
    meaning: dict[str, Expression] = {c.name: c.expression for c in under.columns}
    used = Counter(e.name for c in operator.columns for e in walk(c.expression) if isinstance(e, Column))
    if any(used[name] > 1 and isinstance(each, Call) for name, each in meaning.items()):
        return
    merged = tuple(Named(c.name, substituted(c.expression, meaning)) for c in operator.columns)
    if all(sum(1 for _ in walk(c.expression)) <= LARGEST for c in merged):
        draft.set(number, Map(merged), *draft.inputs[below])
