"""Merge equal operators: what two parts of a query both compute is computed once."""

from __future__ import annotations

from meander.model.ids import OperatorId
from meander.model.operators import Operator, Sink
from meander.model.plan import QueryPlan
from meander.place.rewrites.draft import PlanDraft


def merge_equal_operators(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    known: dict[tuple[Operator, tuple[OperatorId, ...]], OperatorId] = {}
    for number in plan.order:
        operator = plan.operators[number]
        first = known.setdefault((operator, draft.inputs[number]), number)
        if first != number and not isinstance(operator, Sink):
            draft.bypass(number, first)
    return draft.finished()
