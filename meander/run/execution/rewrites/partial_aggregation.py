"""A large batch of a window aggregate in two rounds, so that rows need not be put together by a key first.

In the first round the rows are cut anywhere, and with a watermark before everything no window closes: each part gives
partial aggregates. In the second these meet with the state that was read, at the true watermark. Where the rows are
plain, which those of a source mostly are, a plan of its own spares the first round their hidden columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BEGIN, FRAGMENT, NEWEST, TS, WM
from meander.run.operators.time_window import TimeWindow

PLAIN = {WM: f"{BEGIN}L", NEWEST: TS, AFTER: f"{BEGIN}L"}
"""Hidden columns of plain rows in the first round, as they follow from the others."""


def takes_two_rounds(stage: Stage) -> bool:
    """Whether the stage keeps nothing but partial aggregates."""
    return isinstance(stage.stateful, TimeWindow)


def are_plain(stage: Stage, tables: Sequence[pa.Table]) -> bool:
    """Whether no row is late for any window, and each has nothing newer in it than itself."""
    for table in tables[: len(stage.reads)]:
        times, watermarks, newest = (table.column(name).to_numpy() for name in (TS, WM, NEWEST))
        if not (times >= watermarks).all() or not (times == newest).all():
            return False
    return True


def first_round(stage: Stage, parts: Sequence[Sequence[pa.Table]]) -> list[list[pa.Table]]:
    """The parts' rows, with a watermark before everything and without state."""
    edges, states = len(stage.reads), [spec.frame_schema.empty_table() for spec in stage.states]
    return [[*map(_before_everything, part[:edges]), *states] for part in parts]


def second_round(stage: Stage, tables: Sequence[pa.Table], results: Sequence[pa.Table]) -> list[pa.Table]:
    """What the first round gave, and the state."""
    edges, (spec,) = len(stage.reads), stage.states
    partial = pa.concat_tables([stage.split(result).states[0] for result in results])
    fragments = partial.column(FRAGMENT).to_numpy()
    after = pa.array(_watermarks(tables[:edges], fragments), pa.int64())
    rest = {name: partial.column(name) for name in spec.names}
    made = pa.table({FRAGMENT: partial.column(FRAGMENT), AFTER: after, **rest}).cast(spec.frame_schema)
    nothing = [table.schema.empty_table() for table in tables[:edges]]
    return [*nothing, pa.concat_tables([tables[edges].cast(spec.frame_schema), made])]


def _before_everything(table: pa.Table) -> pa.Table:
    at = table.column_names.index(AFTER)
    return table.set_column(at, table.schema.field(at), pa.array(np.full(len(table), BEGIN, np.int64)))


def _watermarks(tables: Sequence[pa.Table], fragments: Int64s) -> Int64s:
    """For each fragment the watermark that its rows carry: all the same."""
    found = np.full(1 + max((int(f.max()) for f in (_of(t) for t in tables) if f.size), default=0), BEGIN, np.int64)
    for table in tables:
        found[_of(table)] = table.column(AFTER).to_numpy()
    of_each: Int64s = found[fragments]
    return of_each


def _of(table: pa.Table) -> Int64s:
    found: Int64s = table.column(FRAGMENT).to_numpy()
    return found
