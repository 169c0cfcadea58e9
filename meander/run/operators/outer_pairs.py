"""Joins that also ask for tuples without a partner: left, right, full, semi and anti joins.

Pairs are emitted at once, as in an inner join. A tuple that may turn out to have no partner waits, in a table of its
own, until the watermark has passed all that could still meet it; then it is compared with all tuples of the other side.
In windows a tuple waits in each of its windows, and is judged in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from meander.model.expressions.tree import Expression
from meander.model.operators import JoinKind
from meander.model.schema import Schema
from meander.run.expressions import spark_sql, type_text
from meander.run.frames import AFTER, BEGIN, BUCKET, FRAGMENT, HIDDEN, NEWEST, TAG, TS, WM, Longs, positions
from meander.run.operators.pairs import Matching, Pairs
from meander.run.operators.state import Cut, Post, Ranges, StateColumn, StateTable, StepProgress, floor, nulls_for, when

PLACE = "place"
"""The start of the window in which a tuple waits; outside of windows its own time."""

TABLES = ("left", "right")


class OuterPairs(Pairs):
    """The step of a join that is not an inner one."""

    watermark = True

    def __init__(
        self,
        inputs: tuple[Schema, Schema],
        matching: Matching,
        keys: Sequence[tuple[str, str]],
        condition: Expression | None,
        lateness_ms: int,
        kind: JoinKind,
    ) -> None:
        super().__init__(inputs, matching, keys, condition, lateness_ms)
        self.kind = kind
        self.sides = tuple(side for side, waits in enumerate(kind.waits_for) if waits)
        self.lag_ms = self.accepts_ms if matching.windows else self.accepts_ms + matching.reach_ms
        """From the place of a tuple to the watermark at which it has waited for long enough, too."""
        self.types = tuple({f.name: type_text(f.type) for f in schema} for schema in inputs)
        place = StateColumn(PLACE, "BIGINT", pa.int64())
        pairs = self.states
        waiting = tuple(
            StateTable(f"waiting_{TABLES[s]}", (*pairs[s].columns, place), consumed=True, watermark=True)
            for s in self.sides
        )
        self.states = (*pairs, *waiting)

    @property
    def cut_by(self) -> Cut | None:
        left, right = self.keys[0]
        inputs = (left, f"c{self.right.index(right)}")
        waiting = (f"s{(left, right)[s]}" for s in self.sides)
        return Cut(inputs, (f"s{left}", f"s{right}", *waiting))

    @property
    def matched_by(self) -> tuple[Cut, ...]:
        """None: a tuple that has waited is compared with all that the other side remembers."""
        return ()

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame:
        names = (self.left, self.right)
        arrived = tuple(self._arrived(frame, own) for frame, own in zip(inputs, names, strict=True))
        accepted = tuple(
            frame.where(" AND ".join(f"{key[side]} IS NOT NULL" for key in self.keys)).drop(AFTER)
            for side, frame in enumerate(arrived)
        )
        old = tuple(
            frame.selectExpr(FRAGMENT, *HIDDEN, *(f"s{n} AS {n}" for n in own))
            for frame, own in zip(states[:2], names, strict=True)
        )
        waiting = [self._waiting(side, arrived[side], states[2 + number]) for number, side in enumerate(self.sides)]
        given = self._judged(waiting, accepted, old)
        if self.kind.gives_pairs:
            given = given.unionAll(self._matched(accepted[0], accepted[1], old[0], old[1]))
        wide = self._with_state(post(given, (TAG, FRAGMENT, *HIDDEN)))
        for tag, (frame, own) in enumerate(zip(accepted, names, strict=True), start=1):
            bucket = f"{TS} - pmod({TS}, {self.matching.width_ms}L)"
            wide = wide.unionAll(frame.selectExpr(*nulls_for(wide, self._kept(tag, own, bucket))))
        for tag, (side, frame) in enumerate(zip(self.sides, waiting, strict=True), start=3):
            bucket = f"{PLACE} - pmod({PLACE}, {self.matching.width_ms}L)"
            kept = {**self._kept(tag, names[side], bucket), PLACE: PLACE}
            wide = wide.unionAll(frame.where(f"NOT {self._judged_now()}").selectExpr(*nulls_for(wide, kept)))
        return wide

    def _kept(self, tag: int, names: Sequence[str], bucket: str) -> dict[str, str]:
        known = {TAG: str(tag), FRAGMENT: FRAGMENT, BUCKET: bucket}
        return known | {h: h for h in HIDDEN} | {f"s{n}": n for n in names}

    def _with_state(self, result: DataFrame) -> DataFrame:
        """The results, with room for the columns of all state tables."""
        kept = {c.name: c for table in self.states for c in table.columns[len(HIDDEN) :]}
        empty = (f"CAST(NULL AS {c.spark}) AS {c.name}" for c in kept.values())
        return result.selectExpr("*", f"CAST(NULL AS BIGINT) AS {BUCKET}", *empty)

    def _arrived(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """New tuples that are not late, named as in the pair."""
        given = zip(positions(len(names)), names, strict=True)
        return frame.selectExpr(FRAGMENT, *HIDDEN, AFTER, *(f"{c} AS {n}" for c, n in given)).where(
            f"NOT {self._late()}"
        )

    def _judged_now(self) -> str:
        return f"({PLACE} + {self.lag_ms}L <= {AFTER})"

    def _waiting(self, side: int, arrived: DataFrame, waited: DataFrame) -> DataFrame:
        """Tuples of a side that wait, new and old, a row for each place."""
        names = (self.left, self.right)[side]
        columns = (FRAGMENT, *HIDDEN, AFTER, *names, PLACE)
        if self.matching.windows:
            new = arrived.selectExpr("*", f"explode({self.matching.left}) AS {PLACE}").where(
                f"{PLACE} + {self.accepts_ms}L > {WM}"
            )
        else:
            new = arrived.selectExpr("*", f"{TS} AS {PLACE}")
        old = waited.selectExpr(FRAGMENT, *HIDDEN, AFTER, *(f"s{n} AS {n}" for n in names), PLACE)
        return new.selectExpr(*columns).unionAll(old.selectExpr(*columns))

    def _judged(
        self, waiting: Sequence[DataFrame], accepted: Sequence[DataFrame], old: Sequence[DataFrame]
    ) -> DataFrame:
        """Tuples that have waited for long enough, with or without a partner as the join wants them."""
        found: list[DataFrame] = []
        for side, frame in zip(self.sides, waiting, strict=True):
            ready = self._placed_at(side, frame.where(self._judged_now()), PLACE)
            others = self._others(1 - side, accepted[1 - side], old[1 - side]).hint("SHUFFLE_HASH")
            how = "left_semi" if self.kind is JoinKind.SEMI else "left_anti"
            found.append(self._shown(side, ready.join(others, F.expr(" AND ".join(self._meet())), how)))
        return found[0] if len(found) == 1 else found[0].unionAll(found[1])

    def _meet(self) -> list[str]:
        equal = ["lfragment = rfragment", "lplace = rplace", *(f"{a} = {b}" for a, b in self.keys)]
        return [*equal, self.matching.condition, *([] if self.condition is None else [spark_sql(self.condition)])]

    def _placed_at(self, side: int, frame: DataFrame, place: str) -> DataFrame:
        """Tuples that have waited, each at one place of the match."""
        own = place if self.matching.windows else f"({self.matching.looked_for(side)[0]})[0]"
        return self._named(side, frame.selectExpr("*", f"{own} AS at"))

    def _others(self, side: int, new: DataFrame, old: DataFrame) -> DataFrame:
        """All tuples of a side that can be a partner, at each of the places where one may wait."""
        both = new.unionAll(old).selectExpr("*", f"explode({self.matching.looked_for(1 - side)[1]}) AS at")
        if self.matching.windows:
            both = both.where(f"at + {self.accepts_ms}L > {WM}")
        return self._named(side, both)

    def _named(self, side: int, frame: DataFrame) -> DataFrame:
        letter, names = "lr"[side], (self.left, self.right)[side]
        hidden = {FRAGMENT: "fragment", TS: "t", NEWEST: "newest", "at": "place"}
        return frame.selectExpr(*(f"{name} AS {letter}{short}" for name, short in hidden.items()), *names)

    def _shown(self, side: int, rows: DataFrame) -> DataFrame:
        """A tuple as a row of the result: with nulls for the other side, where the join gives pairs."""
        letter = "lr"[side]
        time = (f"{letter}t AS {TS}", f"{letter}t - 1L AS {WM}", f"{letter}newest AS {NEWEST}")
        mine, theirs = (self.left, self.right)[side], self.types[1 - side]
        nulls = [f"CAST(NULL AS {type_}) AS {name}" for name, type_ in theirs.items()]
        columns = [*mine] if not self.kind.gives_pairs else [*mine, *nulls] if side == 0 else [*nulls, *mine]
        return rows.selectExpr(f"0 AS {TAG}", f"{letter}fragment AS {FRAGMENT}", *time, *columns)

    def needed(self, table: int, move: StepProgress) -> Ranges:
        """The range that new tuples can reach, and those tuples that have waited for long enough."""
        reach, width = self.matching.reach_ms, self.matching.width_ms
        moved = move.after > move.before
        until = floor(move.after - self.lag_ms, width)
        if table >= len(TABLES):
            return when(moved, (np.full(len(until), BEGIN), until))
        first, last = super().needed(table, move)
        begin, end = when(moved, (floor(move.before - self.lag_ms - reach, width), until + reach + width))
        return np.minimum(first, begin), np.maximum(last, end)

    def expired(self, table: int, after: Longs) -> Longs:
        if table >= len(TABLES):
            return np.full(len(after), BEGIN)
        oldest = super().expired(table, after)
        return oldest if self.matching.windows else oldest - self.matching.reach_ms
