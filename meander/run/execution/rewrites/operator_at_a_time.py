"""Operator at a time: each operator of a stage is a small stage of its own, and tuples go from one to the next.

It gives what the stage gives, with a run for every operator instead of one for all. What an operator looks like does
not depend on its neighbours, so its own plan is ready wherever the operator goes, while the plan of a stage is new
whenever operators come together that were apart before. So it serves until the stage has a plan of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.model.operators import Union
from meander.model.schema import Schema
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    Conditions,
    StageNames,
    TaskRewrite,
    TaskSteps,
    Verdict,
)
from meander.run.execution.runner import Task
from meander.run.fragments.stage_nodes import StageEdge, StageNode, rows_of
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, FRAGMENT, HIDDEN, TAG, frame_schema

OFTEN = 3
"""Runs of this kind after which a stage is worth a plan of its own."""


class OperatorAtATime(TaskRewrite[Task]):
    name = "operator at a time"
    about = "A stage whose plan is not ready runs by the plans of its operators, one after the other."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        if len(stage.nodes) < 2:
            return Verdict(False, "the stage is a single operator" if stage.nodes else "the stage has no operator")
        count = len(now.memo.of(operator_stages, stage))
        plans = "1 plan" if count == 1 else f"{count} plans"
        return Verdict(True, f"{plans} until its own one is ready, which is prepared after {OFTEN} such runs")

    def rewrite_task(self, task: Task, now: Conditions) -> TaskSteps[Task] | None:
        stage = task.stage
        if now.is_ready(stage) or not runs_by_operator(stage, now):
            return None
        now.ran_by_operator(stage)
        return steps_of(task, now.memo.of(operator_stages, stage))


def runs_by_operator(stage: Stage, now: Conditions) -> bool:
    """Whether the plans of all operators are ready."""
    return len(stage.nodes) > 1 and all(map(now.is_ready, now.memo.of(operator_stages, stage)))


def operator_stages(stage: Stage) -> list[Stage]:
    """The operators of a stage that take a plan, as stages of their own."""
    return [_alone(stage, node) for node in stage.nodes if not _only_unites(stage, node)]


def steps_of(task: Task, operators: Sequence[Stage]) -> TaskSteps[Task]:
    """A task for each of the stage's operators."""
    (stage, tables), left = task, iter(operators)
    inputs, states = tables[: len(stage.reads)], tables[len(stage.reads) :]
    made = {-1 - i: _without_watermark(table) for i, table in enumerate(inputs)}
    kept: pa.Table | None = None
    for number, node in enumerate(stage.nodes):
        below = [made[i] for i in node.inputs]
        if _only_unites(stage, node):
            made[number] = rows_of({StageEdge(port=i): t for i, t in enumerate(below)}, _all(len(below)))
            continue
        alone = next(left)
        given = [_with_watermark(t, inputs) for t in below] if alone.watermark else below
        if alone.states:
            (result,) = yield [Task(alone, [*given, *states])]
            kept = result.filter(pc.not_equal(result.column(TAG), 0)).drop_columns(_columns(result))
            made[number] = alone.split(result).output
        elif any(map(len, given)):
            (result,) = yield [Task(alone, given)]
            made[number] = alone.split(result).output
        else:
            made[number] = frame_schema(alone.schema).empty_table()
    output = made[len(stage.nodes) - 1]
    if kept is None:
        return output
    tagged = output.append_column(TAG, pa.array(np.zeros(len(output)), kept.schema.field(TAG).type))
    return pa.concat_tables([tagged, kept], promote_options="default")


def _alone(stage: Stage, node: StageNode) -> Stage:
    schemas = _schemas(stage, node)
    reads = tuple(StageEdge(port=i) for i in range(len(schemas)))
    alone = StageNode(node.operator, tuple(-1 - i for i in range(len(schemas))), node.schema, node.names)
    return Stage(0, reads, schemas, (alone,), 0)


def _schemas(stage: Stage, node: StageNode) -> tuple[Schema, ...]:
    return tuple(stage.nodes[i].schema if i >= 0 else stage.schemas[-1 - i] for i in node.inputs)


def _only_unites(stage: Stage, node: StageNode) -> bool:
    """Whether a node just puts tuples together, which takes no job."""
    return isinstance(node.operator, Union) and all(s.types == node.schema.types for s in _schemas(stage, node))


def _all(count: int) -> StageEdge:
    return StageEdge(port=0) if count == 1 else StageEdge(union=tuple(StageEdge(port=i) for i in range(count)))


def _columns(table: pa.Table) -> list[str]:
    """The user's columns, which rows of state do not have."""
    return [n for n in table.column_names if n[0] == "c" and n[1:].isdigit()]


def _without_watermark(table: pa.Table) -> pa.Table:
    return table.drop_columns([AFTER]) if AFTER in table.column_names else table


def _with_watermark(table: pa.Table, inputs: Sequence[pa.Table]) -> pa.Table:
    """Rows with the watermark of their fragment, which the rows that they come from carried."""
    fragments = np.concatenate([t.column(FRAGMENT).to_numpy() for t in inputs])
    watermarks = np.concatenate([t.column(AFTER).to_numpy() for t in inputs])
    known, first = np.unique(fragments, return_index=True)
    own = watermarks[first][np.searchsorted(known, table.column(FRAGMENT).to_numpy())] if len(known) else watermarks
    return table.add_column(table.column_names.index(HIDDEN[-1]) + 1, AFTER, pa.array(own, pa.int64()))
