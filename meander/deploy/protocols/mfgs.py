"""Move the fine-grained state: operators move with their state, from the sources upwards.

Sequentially one operator after the other, each when the one before runs at its new place; concurrently all operators of
a level at the same time. Operators whose node does not change are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId


def levels(plan: GlobalPlan, moving: Iterable[OperatorId]) -> list[list[OperatorId]]:
    """Moving operators by their distance from the sources, lowest first."""
    depth: dict[OperatorId, int] = {}
    wanted = [o for o in moving if o in plan.operators]
    for start in wanted:
        stack = [start]
        while stack:
            operator = stack[-1]
            waiting = [i for i in plan[operator].inputs if i not in depth]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            depth[operator] = 1 + max((depth[i] for i in plan[operator].inputs), default=-1)
    found: dict[int, list[OperatorId]] = {}
    for operator in sorted(wanted):
        found.setdefault(depth[operator], []).append(operator)
    return [found[level] for level in sorted(found)]


def one_by_one(plan: GlobalPlan, moving: Iterable[OperatorId]) -> list[list[OperatorId]]:
    """Moving operators, each alone, lowest first."""
    return [[operator] for level in levels(plan, moving) for operator in level]


def all_at_once(plan: GlobalPlan, moving: Iterable[OperatorId]) -> list[list[OperatorId]]:
    """Moving operators, all together: independent ones move at the same time, others as one."""
    found = [o for o in moving if o in plan.operators]
    return [found] if found else []
