"""The tail of a stage: maps at its end that only choose among the columns of the operator with memory before them.

Wherever a join runs, with its projection or apart from it, Spark then runs the same plan, and all of them as one. The
driver chooses the columns, which copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from meander.model.expressions.tree import Column
from meander.model.operators import Map
from meander.run.execution.rewrites.operator_at_a_time import Course
from meander.run.execution.runner import Task
from meander.run.fragments.stage_nodes import StageNode
from meander.run.fragments.template import Stage
from meander.run.frames import positions


@dataclass(frozen=True)
class WithoutProjection:
    """A stage without its tail, and what the tail does."""

    stage: Stage
    chosen: tuple[str, ...]
    """For each column of the whole stage's output the one that it is."""

    def whole(self, result: pa.Table) -> pa.Table:
        """The result of the whole stage. Rows of state pass as they are."""
        own = set(positions(len(self.stage.schema)))
        kept = {name: result.column(name) for name in result.column_names if name not in own}
        return pa.table(kept | {f"c{i}": result.column(name) for i, name in enumerate(self.chosen)})


def without_its_tail(tailless: WithoutProjection, tables: Sequence[pa.Table]) -> Course:
    """A stage that its tail is taken from and given back to."""
    return tailless.whole((yield Task(tailless.stage, tables)))


def without_tail(stage: Stage) -> WithoutProjection | None:
    """The stage up to its operator with memory, if nothing but a tail comes after that."""
    remembering = stage.remembering
    if remembering is None:
        return None
    end = stage.nodes.index(remembering) + 1
    chosen: Sequence[str] = remembering.schema.names
    for node in stage.nodes[end:]:
        own = _chosen(node)
        if own is None:
            return None
        chosen = [chosen[place] for place in own]
    return WithoutProjection(replace(stage, nodes=stage.nodes[:end]), tuple(chosen)) if end < len(stage.nodes) else None


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
