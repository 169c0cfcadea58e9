"""Trailing projection: maps at a stage's end that only choose among the columns of the operator with state before them.

The driver chooses the columns, which copies nothing. So a join has one plan, whether its projection runs with it or
elsewhere, and all of them run as one. Large batches keep the projection in the plan: fewer columns come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from meander.model.expressions.tree import Column
from meander.model.operators import Map, kind_of
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    FEW_ROWS,
    Conditions,
    StageNames,
    TaskRewrite,
    TaskSteps,
    Verdict,
)
from meander.run.execution.runner import Task
from meander.run.fragments.stage_nodes import StageNode
from meander.run.fragments.template import Stage
from meander.run.frames import positions


@dataclass(frozen=True)
class WithoutProjection:
    """A stage without its trailing projection, and what that does."""

    stage: Stage
    chosen: tuple[str, ...]
    """For each column of the whole stage's output the one that it is."""

    @staticmethod
    def of(stage: Stage) -> WithoutProjection | None:
        """None where anything else follows the operator with state, or nothing."""
        node = stage.remembering
        if node is None:
            return None
        end = stage.nodes.index(node) + 1
        chosen: Sequence[str] = node.schema.names
        for following in stage.nodes[end:]:
            own = _chosen(following)
            if own is None:
                return None
            chosen = [chosen[place] for place in own]
        if end == len(stage.nodes):
            return None
        return WithoutProjection(replace(stage, nodes=stage.nodes[:end]), tuple(chosen))

    def projected(self, result: pa.Table) -> pa.Table:
        """The result of the whole stage. Rows of state pass as they are."""
        own = set(positions(len(self.stage.schema)))
        kept = {name: result.column(name) for name in result.column_names if name not in own}
        return pa.table(kept | {f"c{i}": result.column(name) for i, name in enumerate(self.chosen)})


class TrailingProjection(TaskRewrite[Task]):
    name = "trailing projection"
    about = "Maps at the end that only choose columns of an operator with state are left to the driver."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        without = now.memo.of(WithoutProjection.of, stage)
        if without is not None:
            chosen = ", ".join(names.output(f"c{i}") for i in range(len(without.chosen)))
            return Verdict(True, f"the driver chooses {chosen}", to_rows=FEW_ROWS)
        node = stage.remembering
        if node is None:
            return Verdict(False, "there is no operator with state")
        if node is stage.nodes[-1]:
            return Verdict(False, f"nothing follows the {kind_of(node.operator)}")
        return Verdict(False, f"what follows the {kind_of(node.operator)} drops rows or computes columns")

    def rewrite_task(self, task: Task, now: Conditions) -> TaskSteps[Task] | None:
        without = now.memo.of(WithoutProjection.of, task.stage)
        if without is None or not now.is_ready(without.stage) or task.rows > FEW_ROWS:
            return None
        return self._steps(without, task)

    @staticmethod
    def _steps(without: WithoutProjection, task: Task) -> TaskSteps[Task]:
        (result,) = yield [Task(without.stage, task.tables)]
        return without.projected(result)


def _chosen(node: StageNode) -> list[int] | None:
    """For each column of a map the place of the one below that it hands on as it is."""
    if not isinstance(node.operator, Map):
        return None
    types = dict(zip(node.schema.names, node.schema.types, strict=True))
    found = []
    for named in node.operator.columns:
        expression = named.expression
        if not isinstance(expression, Column) or expression.type != types[named.name]:
            return None
        found.append(int(expression.name[1:]))
    return found
