"""Window aggregate over counts: a window for every `size` tuples of one key, a new one every `slide` tuples.

Tuples are counted in event-time order, ties by their values, and only once the watermark has passed them: so it does
not matter in which order or in which step they came. State is the tuples that wait, and for each key the windows that
are not full: how many tuples they have and their partial aggregates. A window is [first tuple's time, last tuple's time
+ 1 ms); a window that never fills is never emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from meander.model.operators import WindowAggregate
from meander.model.windows import Count
from meander.run.frames import AFTER, BEGIN, BUCKET, FRAGMENT, NEWEST, TAG, TS, WM, Longs
from meander.run.operators.partials import Aggregation, kept
from meander.run.operators.state import (
    Cut,
    Post,
    Ranges,
    StateColumn,
    StateTable,
    StepProgress,
    floor,
    npt_bool,
    nulls_for,
    when,
)
from meander.run.operators.time_window import CARRIED, state_names

BUCKET_MS = 1000
"""Waiting tuples are kept by seconds."""


class CountWindow:
    watermark = True

    def __init__(self, operator: WindowAggregate, window: Count) -> None:
        self.size, self.slide = window.size, window.slide
        self.lag_ms = operator.lateness_ms
        self.aggregation = a = Aggregation(operator)
        self.waiting = StateTable(
            "waiting", (*_longs(TS, NEWEST), *a.key_columns(), *a.argument_columns()), consumed=True, watermark=True
        )
        self.open = StateTable(
            "open",
            (*_longs(NEWEST, "seen", "first", "last"), *a.key_columns(), *a.partial_columns()),
            consumed=True,
            watermark=True,
        )
        self.states = (self.waiting, self.open)

    @property
    def cut_by(self) -> Cut | None:
        return self.aggregation.cut_by(len(self.states))

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame:
        a = self.aggregation
        names = (FRAGMENT, AFTER, *self.waiting.names)
        new = inputs[0].where(f"{TS} + {self.lag_ms}L >= {WM}").selectExpr(FRAGMENT, AFTER, TS, NEWEST, *a.read())
        tuples = new.unionAll(states[0].selectExpr(*names))
        ready = f"{TS} + {1 + self.lag_ms}L <= {AFTER}"
        counted = self._counted(tuples.where(ready), states[1])
        full = post(counted, (*CARRIED, *state_names(self.states)))
        known = {TAG: "1", FRAGMENT: FRAGMENT, BUCKET: f"{TS} - pmod({TS}, {BUCKET_MS}L)"}
        known |= {name: name for name in self.waiting.names}
        return full.unionAll(tuples.where(f"NOT ({ready})").selectExpr(*nulls_for(full, known)))

    def _counted(self, ready: DataFrame, open_: DataFrame) -> DataFrame:
        """Windows after the ready tuples, full or not."""
        a = self.aggregation
        times = ("CAST(NULL AS BIGINT) AS seen", f"{TS} AS first", f"{TS} AS last")
        tuples = a.started(ready, FRAGMENT, AFTER, NEWEST, *times, *a.arguments.values())
        nothing = (f"CAST(NULL AS {c.spark}) AS {c.name}" for c in a.argument_columns())
        partials = a.partials.values()
        windows = open_.selectExpr(FRAGMENT, AFTER, NEWEST, "seen", "first", "last", *nothing, *a.keys, *partials)
        group = f"PARTITION BY {', '.join((FRAGMENT, *a.keys))}"
        order = ", ".join(("seen IS NULL", "first", *a.arguments.values(), NEWEST))
        placed = tuples.unionAll(windows).selectExpr(
            "*",
            f"count(seen) OVER ({group}) AS opened",
            f"coalesce(min(seen) OVER ({group}), 0L) AS base",
            f"row_number() OVER ({group} ORDER BY {order}) AS number",
        )
        # Position and window numbers count from the window that began last, which is number 0 and has `base` tuples.
        numbered = placed.selectExpr("*", "base + number - opened - 1L AS place").selectExpr(
            "*", f"explode(CASE WHEN seen IS NULL THEN {self._windows()} ELSE {self._window()} END) AS window"
        )
        merged = numbered.groupBy(FRAGMENT, *a.keys, "window").agg(
            F.expr("sum(coalesce(seen, 1L)) AS seen"),
            F.expr("min(first) AS first"),
            *(F.expr(f"max({c}) AS {c}") for c in ("last", NEWEST)),
            *map(F.expr, a.merged()),
        )
        closed = merged.selectExpr("*", f"seen = {self.size}L AS closed", "last + 1L AS e")
        columns = [c for c in self.open.columns if c.name != NEWEST]
        return closed.selectExpr(
            f"CASE WHEN closed THEN 0 ELSE 2 END AS {TAG}",
            FRAGMENT,
            f"CASE WHEN NOT closed THEN 0L END AS {BUCKET}",
            f"CASE WHEN closed THEN e END AS {TS}",
            f"CASE WHEN closed THEN e - 1L END AS {WM}",
            NEWEST,
            *kept(columns, "NOT closed"),
            *(f"CAST(NULL AS {c.spark}) AS {c.name}" for c in a.argument_columns()),
            *a.results("closed", "first", "e"),
        )

    def _windows(self) -> str:
        """Numbers of the windows that a tuple is in; windows before the first one do not exist."""
        behind = f"place - {self.size}L"
        oldest = f"({behind} - pmod({behind}, {self.slide}L)) div {self.slide}L + 1L"
        return f"sequence(greatest({oldest}, least(0L, 1L - opened)), place div {self.slide}L)"

    def _window(self) -> str:
        return f"array((base - seen) div {self.slide}L)"

    def late(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return inputs[0].where(f"{TS} + {self.lag_ms}L < {WM}")

    def is_late(self, times: Longs, watermarks: Longs) -> npt_bool:
        return times + self.lag_ms < watermarks

    def needed(self, table: int, move: StepProgress) -> Ranges:
        """The tuples that the watermark has passed, and with them the windows of all keys."""
        first = np.full(len(move.after), BEGIN)
        last = floor(move.after - self.lag_ms - 1, BUCKET_MS) if table == 0 else np.zeros(len(first), np.int64)
        return when(move.after > move.before, (first, last))

    def expired(self, table: int, after: Longs) -> Longs:
        return np.full(len(after), BEGIN)


def _longs(*names: str) -> list[StateColumn]:
    return [StateColumn(name, "BIGINT", pa.int64()) for name in names]
