"""Late tuples: how they are found, and their channels.

A tuple is late for an operator when no window takes it any more, by the watermark of its own producer. Late tuples are
always counted. Where a query asks for them they are appended, in the commit of the step, to a channel of their own,
with the columns that the operator reads; delivery hands that to a sink like any other result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.model.schema import Schema
from meander.run.channels.base import ChannelAppend
from meander.run.execution.runner import Runner
from meander.run.fragments.routing import LateWire
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT, HIDDEN, TS, WM, arrow_schema, positions
from meander.run.step.work import GroupBatch, StepReport, Work

COUNTER = "late"
"""The counter of a fragment's late tuples."""

OPERATOR, EVENT_TIME, WATERMARK = "_operator", "_event_time", "_watermark"
"""The columns before those of a late tuple: the operator, its event time and the watermark that it missed, in ms."""


def late_schema(schema: Schema) -> pa.Schema:
    """A late tuple as its channel carries it."""
    own = ((OPERATOR, pa.string()), (EVENT_TIME, pa.int64()), (WATERMARK, pa.int64()))
    return pa.schema([*(pa.field(_free(name, schema), type_) for name, type_ in own), *arrow_schema(schema)])


def _free(name: str, schema: Schema) -> str:
    while name in schema.names:
        name = f"_{name}"
    return name


def late_tuples(runner: Runner, stage: Stage, tables: Sequence[pa.Table]) -> tuple[pa.Table, ...]:
    """Late tuples by the input of the stage's operator, as it reads them; nothing at all when there are none.

    A look at times and watermarks finds them. Only where filters or maps lie below the operator, Spark has to process
    those that were found.
    """
    if stage.stateful is None:
        return ()
    masks = [stage.stateful.is_late(t.column(TS).to_numpy(), t.column(WM).to_numpy()) for t in tables]
    if not any(mask.any() for mask in masks):
        return ()
    found = [table.filter(pa.array(mask)) for table, mask in zip(tables, masks, strict=True)]
    if stage.read_directly is None:
        return stage.split_late(runner.late(stage, found))
    return tuple(
        pa.concat_tables(
            found[leaf].select([FRAGMENT, *HIDDEN, *positions(len(stage.schemas[leaf]))]) for leaf in leaves
        )
        for leaves in stage.read_directly
    )


def emit_late(
    batch: GroupBatch, stage: Stage, runner: Runner, tables: Sequence[pa.Table], work: Work, report: StepReport
) -> None:
    """Counts the late tuples of a stage and appends them to the channels of those who want them."""
    for side, rows in enumerate(late_tuples(runner, stage, tables)):
        if not len(rows):
            continue
        report.late += len(rows)
        at = batch.rows_of(rows)
        counts = np.bincount(at, minlength=len(batch.fragments))
        present: list[int] = np.flatnonzero(counts).tolist()
        for i in (i for i in present if not batch.fragments[i].is_beside):
            key = (FragmentId(int(batch.numbers[i])), COUNTER)
            work.counters[key] = work.counters.get(key, 0) + int(counts[i])
        wanted = [(wire, i) for i in present for wire in _wires(batch, i, stage, side)]
        if wanted:
            work.appends += _appends(rows.take(pa.array(np.argsort(at, kind="stable"))), counts, wanted)


def _wires(batch: GroupBatch, fragment: int, stage: Stage, side: int) -> tuple[LateWire, ...]:
    return batch.fragments[fragment].late.get((stage.number, side), ())


def _appends(rows: pa.Table, counts: np.ndarray, wanted: list[tuple[LateWire, int]]) -> list[ChannelAppend]:
    """Rows sorted by fragment, for their channels; one table for each schema."""
    starts = np.cumsum(counts) - counts
    by_schema: dict[pa.Schema, list[tuple[LateWire, int]]] = {}
    for wire, i in wanted:
        by_schema.setdefault(wire.schema, []).append((wire, i))
    made = []
    for schema, entries in by_schema.items():
        lengths = [int(counts[i]) for _, i in entries]
        whole = pa.concat_tables([rows.slice(int(starts[i]), int(counts[i])) for _, i in entries])
        texts = np.repeat(np.array([wire.operator for wire, _ in entries], object), lengths)
        columns = [pa.array(texts, pa.string()), whole.column(TS), whole.column(WM)]
        columns += [whole.column(n) for n in whole.column_names if n not in (FRAGMENT, *HIDDEN)]
        table = pa.table(columns, names=schema.names).cast(schema)
        made.append(ChannelAppend.sliced(table, [wire.channel for wire, _ in entries], lengths))
    return made
