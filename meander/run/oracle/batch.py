"""The batch oracle: the correct output of a plan, computed once over the whole input.

It runs the same operators as the data plane, in one step, with all of the input there and the watermark at the end of
time, so that every window closes. Whatever a run does (cuts, moves, crashes), its output must be this multiset of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from meander.model.errors import InputError
from meander.model.operators import Sink, Source
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.run.fragments.stage_nodes import StageEdge, rows_of
from meander.run.fragments.template import BoundFragment, bind, output_table
from meander.run.frames import (
    AFTER,
    END,
    FRAGMENT,
    HIDDEN,
    arrow_schema,
    channel_schema,
    frame,
    frame_schema,
    positions,
    with_hidden,
)
from meander.run.session import active, own_session

PRODUCER = "_producer"
"""The column of an input that names each tuple's producer; without it, a stream has one producer."""


@dataclass(frozen=True)
class OracleAnswer:
    """Rows of each sink under its names, with hidden columns; and the tuples that came too late, by operator."""

    sinks: Mapping[str, pa.Table]
    late: Mapping[int, int]


def oracle(
    spark: SparkSession, plan: QueryPlan, inputs: Mapping[str, pa.Table], disorder_ms: Mapping[str, int] | int = 0
) -> dict[str, pa.Table]:
    """The rows of each sink, user's columns only.

    `inputs` hold each stream's tuples in arrival order, with a `_producer` column when there are several producers.
    """
    return {
        name: table.drop_columns(list(HIDDEN)) for name, table in answer(spark, plan, inputs, disorder_ms).sinks.items()
    }


def answer(
    spark: SparkSession, plan: QueryPlan, inputs: Mapping[str, pa.Table], disorder_ms: Mapping[str, int] | int = 0
) -> OracleAnswer:
    """The rows of each sink with their hidden columns, and how many tuples were late for each operator."""
    bound, spark = bind(plan.operators, plan.inputs), own_session(spark)
    tables: dict[StageEdge, pa.Table] = {}
    for number, operator_id in enumerate(bound.ports):
        source = plan.operators[operator_id]
        assert isinstance(source, Source)
        tables[StageEdge(port=number)] = _entered(source, inputs, disorder_ms)
    with active(spark):
        late = run_to_the_end(spark, bound, tables)
    sinks: dict[str, pa.Table] = {}
    for operator_id, edge in zip(bound.outputs, bound.template.outputs, strict=True):
        sink = plan.operators[operator_id]
        assert isinstance(sink, Sink)
        rows = output_table(tables[edge], plan.schemas[operator_id])
        sinks[sink.name] = pa.concat_tables([sinks[sink.name], rows]) if sink.name in sinks else rows
    return OracleAnswer(sinks, late)


def run_to_the_end(spark: SparkSession, bound: BoundFragment, tables: dict[StageEdge, pa.Table]) -> dict[int, int]:
    """Runs all stages over whole inputs (columns by position) and adds their outputs; returns late tuples counted.

    Stages that compute the same run as one frame, told apart by the fragment column, as they would in a slot.
    """
    late: dict[int, int] = {}
    waiting = list(bound.template.stages)
    while waiting:
        ready = [s for s in waiting if all(part in tables for edge in s.reads for part in edge.union or (edge,))]
        same = [s for s in ready if s.key == ready[0].key]
        waiting = [s for s in waiting if s not in same]
        stage = same[0]
        frames = []
        for place, schema in zip(range(len(stage.reads)), stage.frame_schemas, strict=False):
            parts = [_numbered(rows_of(tables, s.reads[place]), number) for number, s in enumerate(same)]
            table = pa.concat_tables(parts)
            if stage.watermark:
                table = table.append_column(AFTER, pa.array(np.full(len(table), END)))
            frames.append(frame(spark, table.select(schema.names).cast(schema)))
        frames += [frame(spark, t.frame_schema.empty_table()) for t in stage.states]
        output = stage.split(stage.plan(frames).toArrow()).output
        counted: dict[int, int] = {}
        if stage.stateful is not None:
            counted = dict(stage.late(frames).groupBy(FRAGMENT).count().collect())
        for number, each in enumerate(same):
            mine = output.filter(pc.equal(output.column(FRAGMENT), number)) if len(same) > 1 else output
            tables[StageEdge(stage=each.number)] = _numbered(mine, 0)
            if each.stateful is not None:
                late[bound.stateful[each.number]] = counted.get(number, 0)
    return late


def _numbered(table: pa.Table, fragment: int) -> pa.Table:
    numbers = pa.array(np.full(len(table), fragment, np.int32))
    return table.set_column(table.column_names.index(FRAGMENT), FRAGMENT, numbers)


def _entered(source: Source, inputs: Mapping[str, pa.Table], disorder_ms: Mapping[str, int] | int) -> pa.Table:
    """A source's tuples with hidden columns, each producer with its own watermark, columns by position."""
    if source.stream not in inputs:
        raise InputError(f"no input for stream {source.stream!r}; inputs: {', '.join(inputs) or 'none'}")
    table = inputs[source.stream]
    disorder = disorder_ms if isinstance(disorder_ms, int) else disorder_ms.get(source.stream, 0)
    if PRODUCER not in table.column_names:
        parts = [table]
    else:
        producers = table.column(PRODUCER)
        names = [source.node] if source.node is not None else pc.unique(producers).to_pylist()
        parts = [table.filter(pc.equal(producers, name)) for name in names]
    columns = list(source.schema.names)
    entered = [with_hidden(_typed(p.select(columns), source.schema), source.event_time, disorder) for p in parts]
    whole = pa.concat_tables(entered) if entered else channel_schema(source.schema).empty_table()
    whole = whole.rename_columns([*HIDDEN, *positions(len(columns))])
    fragment = pa.array(np.zeros(len(whole), np.int32))
    return whole.add_column(0, FRAGMENT, fragment).cast(frame_schema(source.schema))


def _typed(table: pa.Table, schema: Schema) -> pa.Table:
    return table.cast(arrow_schema(schema))
