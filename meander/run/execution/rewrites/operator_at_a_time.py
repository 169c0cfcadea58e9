"""A stage operator by operator: each one a small stage of its own, the tuples handed from one to the next.

It gives what the stage gives, with a job for every operator instead of one for all. What an operator looks like does
not depend on its neighbours, so its own plan is ready wherever the operator goes, while the plan of a stage is new
whenever operators come together that were apart before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.model.operators import Union
from meander.model.schema import Schema
from meander.run.execution.runner import Task
from meander.run.fragments.stage_nodes import StageEdge, StageNode, rows_of
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, FRAGMENT, HIDDEN, TAG, frame_schema

Course = Generator[Task, pa.Table, pa.Table]
"""What has to run, one task after the other; it is sent each one's result, and returns the whole's."""


def pieces(stage: Stage) -> list[Stage]:
    """The operators of a stage that take a job."""
    return [_piece(stage, node) for node in stage.nodes if not _only_unites(stage, node)]


def in_one_piece(stage: Stage, tables: Sequence[pa.Table]) -> Course:
    """The stage as it is."""
    return (yield Task(stage, tables))


def in_pieces(stage: Stage, tables: Sequence[pa.Table]) -> Course:
    """The stage over its frames' tables, with a task for each operator."""
    inputs, states = tables[: len(stage.reads)], tables[len(stage.reads) :]
    made = {-1 - i: _without_watermark(table) for i, table in enumerate(inputs)}
    kept: pa.Table | None = None
    for number, node in enumerate(stage.nodes):
        below = [made[i] for i in node.inputs]
        if _only_unites(stage, node):
            made[number] = rows_of({StageEdge(port=i): t for i, t in enumerate(below)}, _all(len(below)))
            continue
        piece = _piece(stage, node)
        given = [_with_watermark(t, inputs) for t in below] if piece.watermark else below
        if piece.states:
            result = yield Task(piece, [*given, *states])
            kept = result.filter(pc.not_equal(result.column(TAG), 0)).drop_columns(_columns(result))
            made[number] = piece.split(result).output
        elif any(map(len, given)):
            made[number] = piece.split((yield Task(piece, given))).output
        else:
            made[number] = frame_schema(piece.schema).empty_table()
    output = made[len(stage.nodes) - 1]
    if kept is None:
        return output
    tagged = output.append_column(TAG, pa.array(np.zeros(len(output)), kept.schema.field(TAG).type))
    return pa.concat_tables([tagged, kept], promote_options="default")


def _piece(stage: Stage, node: StageNode) -> Stage:
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
