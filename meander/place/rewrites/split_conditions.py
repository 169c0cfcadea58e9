"""Split conditions: what a join or pattern asks of one side alone becomes a filter before it.

Tuples that can make no pair are then neither sent nor kept.
"""

from __future__ import annotations

from dataclasses import replace

from meander.model.expressions.tree import conjuncts
from meander.model.plan import QueryPlan
from meander.place.rewrites.draft import PlanDraft, conjunction
from meander.place.rewrites.pair_sides import PAIRS, PairSides, inside


def split_conditions(plan: QueryPlan) -> QueryPlan:
    draft = PlanDraft(plan)
    for number, operator in plan.operators.items():
        if not isinstance(operator, PAIRS) or operator.condition is None:
            continue
        below = draft.inputs[number]
        sides = PairSides.of(operator, *map(draft.schema, below))
        left, right, both = sides.split(conjuncts(operator.condition), inside(operator))
        if left or right:
            inputs = (draft.add_filter(each, parts) for each, parts in zip(below, (left, right), strict=True))
            rest = conjunction(both) if both else None
            draft.set(number, replace(operator, condition=rest), *inputs)
    return draft.finished()
