"""Pairs of a left and a right tuple: what window joins, conjunctions and sequences have in common.

A pair is emitted once both tuples are there: new with old and new with new, never old with old. State is the tuples of
both sides, each once, kept by time. Both sides are matched by one equality join: on fragment, on the place in time, on
the keys, and on a mark that keeps old tuples from meeting old ones (left: new 0, old 1; right: new 0 and 1, old 0).
A tuple counts when its time + span + lateness (for windows: a window's end + lateness) is above its own watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.model.expressions.tree import Call, Column, Expression
from meander.model.schema import Schema
from meander.run.expressions import spark_sql, type_text
from meander.run.frames import BUCKET, FRAGMENT, HIDDEN, NEWEST, TAG, TS, WM, Longs, arrow_type, positions
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


@dataclass(frozen=True)
class Matching:
    """The relation in time of two tuples: the places of each side (SQL arrays), and a condition over `lt` and `rt`.

    `width_ms` is the width of a place; `reach_ms` how far apart the tuples of a pair can be; `span_ms` how long a tuple
    can wait for its partner. In windows every place is one, and each has an end of its own; elsewhere a tuple is
    accepted as a whole.
    """

    left: str
    right: str
    condition: str
    width_ms: int
    reach_ms: int
    span_ms: int
    windows: bool
    exchanged: tuple[str, str] | None = None
    """The place of a right tuple, and the places of a left one, where right tuples look for left ones."""

    def looked_for(self, side: int) -> tuple[str, str]:
        """The only place of a tuple of this side, and the places of one of the other side."""
        return (self.left, self.right) if side == 0 else (self.exchanged or (self.left, self.right))


class Pairs:
    """The step of every operator that makes pairs; subclasses define the match."""

    watermark = False

    def __init__(
        self,
        inputs: tuple[Schema, Schema],
        matching: Matching,
        keys: Sequence[tuple[str, str]],
        condition: Expression | None,
        lateness_ms: int,
    ) -> None:
        self.matching = matching
        self.keys = tuple(keys)
        self.condition = condition
        self.lateness_ms = lateness_ms
        self.accepts_ms = self.lag_ms = matching.span_ms + lateness_ms
        self.left, self.right = (tuple(s.names) for s in inputs)
        hidden = tuple(StateColumn(name, "BIGINT", pa.int64()) for name in HIDDEN)
        self.states = tuple(
            StateTable(
                name,
                (*hidden, *(StateColumn(f"s{f.name}", type_text(f.type), arrow_type(f.type)) for f in schema)),
                consumed=False,
                watermark=False,
            )
            for name, schema in zip(("left", "right"), inputs, strict=True)
        )

    @property
    def cut_by(self) -> Cut | None:
        return self._cut(*self.keys[0]) if self.keys else None

    @property
    def matched_by(self) -> tuple[Cut, ...]:
        """All keys that the tuples of a pair have in common, those that the condition asks for as well."""
        return tuple(self._cut(*pair) for pair in dict.fromkeys((*self.keys, *self._equal(self.condition))))

    def _cut(self, left: str, right: str) -> Cut:
        return Cut((left, f"c{self.right.index(right)}"), (f"s{left}", f"s{right}"))

    def _equal(self, condition: Expression | None) -> Iterator[tuple[str, str]]:
        """Columns of the left and the right tuple without whose equality a condition is not true."""
        match condition:
            case Call("and", parts):
                for part in parts:
                    yield from self._equal(part)
            case Call("=", (Column(one), Column(other))):
                for left, right in ((one, other), (other, one)):
                    if left in self.left and right in self.right:
                        yield left, right

    def step(self, inputs: Sequence[DataFrame], states: Sequence[DataFrame], post: Post) -> DataFrame:
        left, right = (
            self._accepted(frame, names, [k[side] for k in self.keys])
            for side, (frame, names) in enumerate(zip(inputs, (self.left, self.right), strict=True))
        )
        old_left, old_right = (
            frame.selectExpr(FRAGMENT, *HIDDEN, *(f"s{n} AS {n}" for n in names))
            for frame, names in zip(states, (self.left, self.right), strict=True)
        )
        result = post(self._matched(left, right, old_left, old_right), (TAG, FRAGMENT, *HIDDEN))
        kept = [c for table in self.states for c in table.columns[len(HIDDEN) :]]
        wide = result.selectExpr(
            "*", f"CAST(NULL AS BIGINT) AS {BUCKET}", *(f"CAST(NULL AS {c.spark}) AS {c.name}" for c in kept)
        )
        for tag, (frame, names) in enumerate(((left, self.left), (right, self.right)), start=1):
            bucket = f"{TS} - pmod({TS}, {self.matching.width_ms}L)"
            known = {TAG: str(tag), FRAGMENT: FRAGMENT, BUCKET: bucket}
            known |= {h: h for h in HIDDEN} | {f"s{n}": n for n in names}
            wide = wide.unionAll(frame.selectExpr(*nulls_for(wide, known)))
        return wide

    def _accepted(self, frame: DataFrame, names: Sequence[str], keys: Sequence[str]) -> DataFrame:
        """New tuples that are not late and have all keys, named as in the pair."""
        given = positions(len(names))
        renamed = frame.selectExpr(FRAGMENT, *HIDDEN, *(f"{c} AS {n}" for c, n in zip(given, names, strict=True)))
        return renamed.where(" AND ".join((f"NOT {self._late()}", *(f"{key} IS NOT NULL" for key in keys))))

    def _late(self) -> str:
        return f"({self._own_end()} + {self.accepts_ms}L <= {WM})"

    def _own_end(self) -> str:
        """The start of the last window of a tuple, or its time: what `span` is counted from."""
        return f"({TS} - pmod({TS}, {self.matching.width_ms}L))" if self.matching.windows else TS

    def _matched(self, left: DataFrame, right: DataFrame, old_left: DataFrame, old_right: DataFrame) -> DataFrame:
        lefts = self._placed(left, old_left, self.matching.left, "l", ("0", "1"))
        rights = self._placed(right, old_right, self.matching.right, "r", ("array(0, 1)", "array(0)"))
        rights = rights.selectExpr("*", "explode(rmarks) AS rmark")
        matches = ["lfragment = rfragment", "lplace = rplace", "lmarks = rmark", *(f"{a} = {b}" for a, b in self.keys)]
        matches.append(self.matching.condition)
        if self.condition is not None:
            matches.append(spark_sql(self.condition))
        # Left tuples have one row each outside of windows: the smaller side to hash, and to hold in memory.
        pairs = lefts.hint("SHUFFLE_HASH").join(rights).where(" AND ".join(matches))
        return pairs.selectExpr(
            f"0 AS {TAG}",
            f"lfragment AS {FRAGMENT}",
            f"greatest(lt, rt) AS {TS}",
            f"greatest(lt, rt) - 1L AS {WM}",
            f"greatest(lnewest, rnewest) AS {NEWEST}",
            *self.left,
            *self.right,
        )

    def _placed(self, new: DataFrame, old: DataFrame, places: str, side: str, marks: tuple[str, str]) -> DataFrame:
        """New and old tuples of one side with their positions, a row for each place in time."""
        names = self.left if side == "l" else self.right
        both = new.selectExpr("*", f"{marks[0]} AS {side}marks").unionAll(
            old.selectExpr("*", f"{marks[1]} AS {side}marks")
        )
        placed = both.selectExpr("*", f"explode({places}) AS {side}place")
        if self.matching.windows:
            placed = placed.where(f"{side}place + {self.accepts_ms}L > {WM}")
        return placed.selectExpr(
            f"{FRAGMENT} AS {side}fragment",
            f"{TS} AS {side}t",
            f"{NEWEST} AS {side}newest",
            f"{side}marks",
            f"{side}place",
            *names,
        )

    def late(self, inputs: Sequence[DataFrame]) -> DataFrame:
        left, right = (
            frame.where(self._late()).selectExpr(
                f"{tag} AS {TAG}", FRAGMENT, *HIDDEN, *(f"c{i} AS {n}" for i, n in enumerate(names))
            )
            for tag, (frame, names) in enumerate(zip(inputs, (self.left, self.right), strict=True))
        )
        wide = left.selectExpr(
            "*",
            *(
                f"CAST(NULL AS {f.dataType.simpleString()}) AS {f.name}"
                for f in right.schema.fields
                if f.name in self.right
            ),
        )
        known = {name: name for name in (TAG, FRAGMENT, *HIDDEN, *self.right)}
        return wide.unionAll(right.selectExpr(*nulls_for(wide, known)))

    def is_late(self, times: Longs, watermarks: Longs) -> npt_bool:
        own = floor(times, self.matching.width_ms) if self.matching.windows else times
        return own + self.accepts_ms <= watermarks

    def needed(self, table: int, move: StepProgress) -> Ranges:
        """The range of buckets that new tuples can reach."""
        reach, width = self.matching.reach_ms, self.matching.width_ms
        ranges = floor(move.oldest - reach, width), floor(move.newest + reach, width)
        return when(move.oldest <= move.newest, ranges)

    def expired(self, table: int, after: Longs) -> Longs:
        """An accepted tuple is newer than after - lag, and its partner at most `reach` older than it."""
        reach, width = self.matching.reach_ms, self.matching.width_ms
        if self.matching.windows:
            oldest: Longs = after - self.accepts_ms + 1
            return oldest
        result: Longs = after - (self.accepts_ms + reach + width) + 2
        return result


def within(span_ms: int) -> Matching:
    """At most this far apart, in either order. A right tuple looks into its own place and both beside it."""
    place = f"{TS} - pmod({TS}, {span_ms}L)"
    return Matching(
        left=f"array({place})",
        right=f"array({place} - {span_ms}L, {place}, {place} + {span_ms}L)",
        condition=f"abs(lt - rt) <= {span_ms}L",
        width_ms=span_ms,
        reach_ms=span_ms,
        span_ms=span_ms,
        windows=False,
    )


def between(low_ms: int, high_ms: int) -> Matching:
    """Right from `low` to `high` later than left. A right tuple looks into the two places that this range can touch."""
    width, span = max(high_ms - low_ms, 1), max(abs(low_ms), abs(high_ms))
    own = f"array({TS} - pmod({TS}, {width}L))"

    def two(shift: int) -> str:
        first = f"{TS} + ({shift}L) - pmod({TS} + ({shift}L), {width}L)"
        return f"array({first}, {first} + {width}L)"

    return Matching(
        left=own,
        right=two(-high_ms),
        condition=f"rt - lt BETWEEN {low_ms}L AND {high_ms}L",
        width_ms=width,
        reach_ms=span,
        span_ms=span,
        windows=False,
        exchanged=(own, two(low_ms)),
    )


def after(span_ms: int) -> Matching:
    """Left strictly before right, at most this far apart."""
    place = f"{TS} - pmod({TS}, {span_ms}L)"
    return Matching(
        left=f"array({place})",
        right=f"array({place} - {span_ms}L, {place})",
        condition=f"lt < rt AND rt - lt <= {span_ms}L",
        width_ms=span_ms,
        reach_ms=span_ms,
        span_ms=span_ms,
        windows=False,
    )


def in_windows(size_ms: int, slide_ms: int) -> Matching:
    """Both in one window; a pair is made in every window that the two share."""
    last = f"{TS} - pmod({TS}, {slide_ms}L)"
    count = f"({size_ms - 1}L - pmod({TS}, {slide_ms}L)) div {slide_ms}L"
    places = f"transform(sequence(0L, {count}), i -> {last} - i * {slide_ms}L)"
    return Matching(
        left=places if slide_ms < size_ms else f"array({last})",
        right=places if slide_ms < size_ms else f"array({last})",
        condition="true",
        width_ms=slide_ms,
        reach_ms=size_ms - 1 if slide_ms < size_ms else 0,
        span_ms=size_ms,
        windows=True,
    )
