"""Window aggregate over tumbling and sliding windows.

State is partial aggregates by window and key, one row for each that a step touched; the rows of a window are read when
it closes. A window [start, end) closes when the watermark reaches end + lateness; a tuple counts in each of its windows
whose end + lateness is above the tuple's own watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from meander.model.operators import WindowAggregate
from meander.model.windows import Sliding, Tumbling
from meander.run.frames import AFTER, BEGIN, BUCKET, FRAGMENT, NEWEST, TAG, TS, WM, Longs
from meander.run.operators.partials import Aggregation, kept
from meander.run.operators.state import Cut, Post, Ranges, StateColumn, StateTable, StepProgress, floor, npt_bool, when

CARRIED = (TAG, FRAGMENT, BUCKET, TS, WM, NEWEST)


class TimeWindow:
    """Tumbling windows are sliding ones whose slide is their size."""

    watermark = True

    def __init__(self, operator: WindowAggregate, window: Tumbling | Sliding) -> None:
        self.size_ms = window.size_ms
        self.slide_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
        self.lag_ms = operator.lateness_ms
        self.aggregation = Aggregation(operator)
        time = (StateColumn(NEWEST, "BIGINT", pa.int64()), StateColumn("w", "BIGINT", pa.int64()))
        columns = (*time, *self.aggregation.key_columns(), *self.aggregation.partial_columns())
        self.states = (StateTable("windows", columns, consumed=True, watermark=True, mergeable=True),)

    @property
    def cut_by(self) -> Cut | None:
        return self.aggregation.cut_by(len(self.states))

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame:
        a, (table,) = self.aggregation, self.states
        rows = [FRAGMENT, AFTER, *table.names]
        started = a.started(self._assigned(inputs[0]), *rows[:4])
        merged = (
            started.unionAll(states[0].selectExpr(*rows))
            .groupBy(FRAGMENT, "w", *a.keys)
            .agg(*(F.expr(f"max({c}) AS {c}") for c in (AFTER, NEWEST)), *map(F.expr, a.merged()))
            .selectExpr("*", f"w + {self.size_ms}L AS e", f"w + {self.size_ms + self.lag_ms}L <= {AFTER} AS closed")
        )
        return post(tagged(merged, a, table, "w", "w", "e"), (*CARRIED, *state_names(self.states)))

    def _assigned(self, rows: DataFrame) -> DataFrame:
        """A row for each tuple and window that takes it."""
        last = f"{TS} - pmod({TS}, {self.slide_ms}L)"
        if self.slide_ms == self.size_ms:
            start = last
        else:
            more = f"({self.size_ms - 1}L - pmod({TS}, {self.slide_ms}L)) div {self.slide_ms}L"
            start = f"explode(transform(sequence(0L, {more}), i -> {last} - i * {self.slide_ms}L))"
        read = rows.selectExpr(FRAGMENT, AFTER, NEWEST, f"{start} AS w", TS, WM, *self.aggregation.read())
        return read.where(f"w + {self.size_ms + self.lag_ms}L > {WM}")

    def late(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return inputs[0].where(f"{TS} - pmod({TS}, {self.slide_ms}L) + {self.size_ms + self.lag_ms}L <= {WM}")

    def is_late(self, times: Longs, watermarks: Longs) -> npt_bool:
        return floor(times, self.slide_ms) + (self.size_ms + self.lag_ms) <= watermarks

    def needed(self, table: int, move: StepProgress) -> Ranges:
        """The windows that this step closes."""
        last = floor(move.after - (self.size_ms + self.lag_ms), self.slide_ms)
        return when(move.after > move.before, (np.full(len(last), BEGIN), last))

    def expired(self, table: int, after: Longs) -> Longs:
        return np.full(len(after), BEGIN)


def tagged(merged: DataFrame, a: Aggregation, table: StateTable, bucket: str, start: str, end: str) -> DataFrame:
    """Groups with a column `closed` as rows of output (tag 0) and of state (tag 1)."""
    return merged.selectExpr(
        f"CASE WHEN closed THEN 0 ELSE 1 END AS {TAG}",
        FRAGMENT,
        f"CASE WHEN NOT closed THEN {bucket} END AS {BUCKET}",
        f"CASE WHEN closed THEN {end} END AS {TS}",
        f"CASE WHEN closed THEN {end} - 1L END AS {WM}",
        NEWEST,
        *kept((c for c in table.columns if c.name != NEWEST), "NOT closed"),
        *a.results("closed", start, end),
    )


def state_names(states: Sequence[StateTable]) -> tuple[str, ...]:
    """Columns of a step's result that hold state and nothing else."""
    found = dict.fromkeys(n for table in states for n in table.names)
    return tuple(n for n in found if n not in CARRIED)
