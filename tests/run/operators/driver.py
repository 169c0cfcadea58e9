"""A small driver for tests: steps a template for many fragments at once and keeps state in memory.

It does what a slot does, without channels, journal or streaming: attaches watermarks, hands in the state that a stage
asks for, appends what comes back and drops what has expired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from meander.run.fragments.stage_nodes import StageEdge, rows_of
from meander.run.fragments.template import BoundFragment, Stage
from meander.run.frames import AFTER, BEGIN, BUCKET, END, FRAGMENT, TS, WM, Longs, frame
from meander.run.operators.state import Stateful, StateTable, StepProgress

Mask = npt.NDArray[np.bool_]


class Driver:
    """Steps all fragments 0..count-1 together; watermarks begin before everything."""

    def __init__(self, spark: SparkSession, bound: BoundFragment, fragments: int) -> None:
        self.spark, self.bound, self.template = spark, bound, bound.template
        self.before = np.full(fragments, BEGIN)
        self.late: Counter[tuple[int, int]] = Counter()
        """Late tuples by fragment and operator."""
        self.state = {
            (stage.number, i): empty_state(table)
            for stage in self.template.stages
            for i, table in enumerate(stage.states)
        }
        self.jobs = 0

    def step(self, ports: Mapping[int, pa.Table], after: Longs) -> dict[StageEdge, pa.Table]:
        """Runs every stage once; `after` are the fragments' watermarks behind the tuples of the ports."""
        edges = {StageEdge(port=number): table for number, table in ports.items()}
        for stage in self.template.stages:
            edges[StageEdge(stage=stage.number)] = self._run(stage, edges, after)
        self.before = after
        return edges

    def _run(self, stage: Stage, edges: Mapping[StageEdge, pa.Table], after: Longs) -> pa.Table:
        move = self._move(stage, edges, after)
        read = [rows_of(edges, e) for e in stage.reads]
        tables = [self._with_watermark(t, move) if stage.watermark else t for t in read]
        for i, state in enumerate(stage.states):
            rows = self._handed(stage, i, move).drop_columns([BUCKET])
            tables.append(self._with_watermark(rows, move) if state.watermark else rows)
        schemas = stage.frame_schemas
        frames = [frame(self.spark, t.select(s.names).cast(s)) for t, s in zip(tables, schemas, strict=True)]
        result = stage.split(self._collect(stage.plan(frames)))
        for i, rows in enumerate(result.states):
            self.state[stage.number, i] = pa.concat_tables([self.state[stage.number, i], rows])
            self._expire(stage, i, move.after)
        if stage.stateful is not None:
            self._count_late(stage, stage.stateful, tables[: len(stage.reads)], frames)
        return result.output

    def _collect(self, result: DataFrame) -> pa.Table:
        self.jobs += 1
        return result.toArrow()

    def _move(self, stage: Stage, edges: Mapping[StageEdge, pa.Table], after: Longs) -> StepProgress:
        oldest, newest = np.full(len(after), END), np.full(len(after), BEGIN)
        for edge in stage.reads:
            table = rows_of(edges, edge)
            fragments, times = column(table, FRAGMENT), column(table, TS)
            np.minimum.at(oldest, fragments, times)
            np.maximum.at(newest, fragments, times)
        return StepProgress(self.before - stage.lag_ms, after - stage.lag_ms, oldest, newest)

    def _with_watermark(self, table: pa.Table, move: StepProgress) -> pa.Table:
        return table.append_column(AFTER, pa.array(move.after[column(table, FRAGMENT)]))

    def _handed(self, stage: Stage, number: int, move: StepProgress) -> pa.Table:
        assert stage.stateful is not None
        first, last = stage.stateful.needed(number, move)
        held = self.state[stage.number, number]
        fragments, buckets = column(held, FRAGMENT), column(held, BUCKET)
        inside: Mask = (first[fragments] <= buckets) & (buckets <= last[fragments])
        if stage.states[number].consumed:
            self.state[stage.number, number] = held.filter(pa.array(~inside))
        return held.filter(pa.array(inside))

    def _expire(self, stage: Stage, number: int, after: Longs) -> None:
        assert stage.stateful is not None
        held = self.state[stage.number, number]
        limit = stage.stateful.expired(number, after)
        kept: Mask = column(held, BUCKET) >= limit[column(held, FRAGMENT)]
        self.state[stage.number, number] = held.filter(pa.array(kept))

    def _count_late(self, stage: Stage, stateful: Stateful, tables: list[pa.Table], frames: list[DataFrame]) -> None:
        """The late plan runs only when a tuple could be late, as in a slot."""
        if not any(stateful.is_late(column(t, TS), column(t, WM)).any() for t in tables):
            return
        operator = self.bound.stateful[stage.number]
        for rows in stage.split_late(self._collect(stage.late(frames))):
            for fragment in column(rows, FRAGMENT).tolist():
                self.late[fragment, operator] += 1


def empty_state(table: StateTable) -> pa.Table:
    return pa.schema([(FRAGMENT, pa.int32()), (BUCKET, pa.int64()), *table.schema]).empty_table()


def column(table: pa.Table, name: str) -> Longs:
    values: Longs = table.column(name).to_numpy().astype(np.int64)
    return values
