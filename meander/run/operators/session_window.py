"""Window aggregate over sessions: a window for each burst of tuples of one key, neighbours at most a gap apart.

State is pieces of sessions: first and last event time and partial aggregates. Steps append the pieces that their
tuples make; pieces whose gap is bridged grow together when the watermark moves and they are read. A session ends a gap
after its last tuple and closes when the watermark has passed its end + lateness. A tuple counts when its own time +
lateness is not below its watermark: an older one could belong to a session that is closed already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from meander.model.operators import WindowAggregate
from meander.model.windows import Session
from meander.run.frames import AFTER, BEGIN, FRAGMENT, NEWEST, TS, WM, Longs
from meander.run.operators.partials import Aggregation
from meander.run.operators.state import Cut, Post, Ranges, StateColumn, StateTable, StepProgress, floor, npt_bool, when
from meander.run.operators.time_window import CARRIED, state_names, tagged


class SessionWindow:
    watermark = True

    def __init__(self, operator: WindowAggregate, window: Session) -> None:
        self.gap_ms = window.gap_ms
        self.lateness_ms = operator.lateness_ms
        self.lag_ms = operator.lateness_ms + 1  # a tuple at the very end still belongs to the session, as in Spark
        self.aggregation = Aggregation(operator)
        times = (StateColumn(name, "BIGINT", pa.int64()) for name in (NEWEST, "first", "last"))
        columns = (*times, *self.aggregation.key_columns(), *self.aggregation.partial_columns())
        self.states = (StateTable("sessions", columns, consumed=True, watermark=True, mergeable=True),)

    @property
    def cut_by(self) -> Cut | None:
        return self.aggregation.cut_by(len(self.states))

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame:
        a, (table,) = self.aggregation, self.states
        rows = [FRAGMENT, AFTER, *table.names]
        read = inputs[0].where(f"{TS} + {self.lateness_ms}L >= {WM}").selectExpr(FRAGMENT, AFTER, NEWEST, TS, *a.read())
        started = a.started(read, FRAGMENT, AFTER, NEWEST, f"{TS} AS first", f"{TS} AS last")
        group = ", ".join((FRAGMENT, *a.keys))
        over = f"OVER (PARTITION BY {group} ORDER BY first"
        before = f"max(last) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        numbered = (
            started.unionAll(states[0].selectExpr(*rows))
            .selectExpr("*", f"CASE WHEN first <= {before} + {self.gap_ms}L THEN 0 ELSE 1 END AS opens")
            .selectExpr("*", f"sum(opens) {over} ROWS UNBOUNDED PRECEDING) AS number")
        )
        merged = (
            numbered.groupBy(FRAGMENT, *a.keys, "number")
            .agg(
                F.expr("min(first) AS first"),
                *(F.expr(f"max({c}) AS {c}") for c in ("last", AFTER, NEWEST)),
                *map(F.expr, a.merged()),
            )
            .selectExpr("*", f"last + {self.gap_ms}L AS e", f"last + {self.gap_ms + self.lag_ms}L <= {AFTER} AS closed")
        )
        bucket = f"first - pmod(first, {self.gap_ms}L)"
        return post(tagged(merged, a, table, bucket, "first", "e"), (*CARRIED, *state_names(self.states)))

    def late(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return inputs[0].where(f"{TS} + {self.lateness_ms}L < {WM}")

    def is_late(self, times: Longs, watermarks: Longs) -> npt_bool:
        return times + self.lateness_ms < watermarks

    def needed(self, table: int, move: StepProgress) -> Ranges:
        """The range of all sessions that began before the watermark: those that close, and those that may merge with
        them."""
        last = floor(move.after - self.lag_ms, self.gap_ms)
        return when(move.after > move.before, (np.full(len(last), BEGIN), last))

    def expired(self, table: int, after: Longs) -> Longs:
        return np.full(len(after), BEGIN)
