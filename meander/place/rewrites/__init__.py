"""Rewrites of a query's plan before it is placed: the same results from fewer tuples and narrower ones.

One rule, one file, one ordered table. A rule is a function from plan to plan that gives its argument back when it has
nothing to do. All are applied again and again until none of them changes anything; signatures are taken after that.

What is late is decided operator by operator. So a tuple that a filter drops before a join or a window is not counted as
late there, and late tuples have the columns that the operator reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meander.model.plan import QueryPlan
from meander.place.rewrites.fold_constants import fold_constants
from meander.place.rewrites.merge_equal_operators import merge_equal_operators
from meander.place.rewrites.merge_filters import merge_filters
from meander.place.rewrites.merge_projections import merge_projections
from meander.place.rewrites.narrow_inputs import narrow_inputs
from meander.place.rewrites.push_filters import push_filters
from meander.place.rewrites.split_conditions import split_conditions

Rule = Callable[[QueryPlan], QueryPlan]

RULES: tuple[Rule, ...] = (
    fold_constants,
    split_conditions,
    push_filters,
    merge_filters,
    merge_projections,
    narrow_inputs,
    merge_equal_operators,
)
"""All rules, in the order in which they are tried."""

RULES_NUMBER = 1
"""The number of these rules; 0 is none. A plan that runs was made by the rules of its time, and a service that starts
again has to make the same one: rules that make something else of a plan get the next number, beside the old ones."""

MOST_ROUNDS = 20
"""Rounds of all rules at most; plans as people write them need two or three."""


def rewritten(plan: QueryPlan, rules: int = RULES_NUMBER) -> QueryPlan:
    """The plan after all rewrites of the rules with this number."""
    after = plan
    if rules == 0:
        return plan
    for _, after in rewrites(plan):  # noqa: B007
        pass
    return after


def rewrites(plan: QueryPlan) -> Iterator[tuple[str, QueryPlan]]:
    """Each rewrite that applies, by name, with the plan after it."""
    for _ in range(MOST_ROUNDS):
        before = plan
        for rule in RULES:
            changed = rule(plan)
            if changed is not plan:
                plan = changed
                yield rule.__name__, plan
        if plan is before:
            return
