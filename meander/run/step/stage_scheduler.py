"""The stage scheduler: the groups of a step run as soon as their inputs are done, and ready ones run together.

A step's dataflow goes through groups of fragments, and in each through stages. However a placement cuts it into
fragments, the longest way through it stays the same, and that is how many rounds a step takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.run.execution.runner import Runner, Task
from meander.run.fragments.routing import Group
from meander.run.fragments.stage_nodes import StageEdge, rows_of
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BEGIN, BUCKET, END, FRAGMENT, HIDDEN, TS
from meander.run.operators.state import Ranges, StateTable, StepProgress
from meander.run.resident.resident import ResidentState
from meander.run.step.late_tuples import emit_late
from meander.run.step.work import GroupBatch, StepReport, Work
from meander.run.store.commit import StateAppend, StateDrop
from meander.run.store.state import StateTables
from meander.run.store.store import Store

STATES_PER_STAGE = 16
"""State tables are numbered stage * 16 + table inside a fragment."""


@dataclass(slots=True)
class _Running:
    """A group's batch, the number of waves of its stages that have begun, and the tasks of the last one."""

    batch: GroupBatch
    waves: int = 0
    tasks: list[Task] = field(default_factory=list)


class StageScheduler:
    """Runs groups over one state, with the functions that read and emit passed in."""

    def __init__(
        self,
        state: StateTables,
        runner: Runner,
        read: Callable[[Group], GroupBatch | None],
        emit: Callable[[GroupBatch], None],
        work: Work,
        report: StepReport,
        resident: ResidentState | None = None,
    ) -> None:
        """Without resident state all state that a step may need is read."""
        self.state, self.runner, self.read, self.emit = state, runner, read, emit
        self.work, self.report, self.resident = work, report, resident
        self.done: list[GroupBatch] = []
        self._waiting: dict[int, Group] = {}
        self._running: dict[int, _Running] = {}
        self._quiet: Collection[int] = ()

    def run(self, groups: Sequence[Group], quiet: Collection[int] = ()) -> None:
        """Groups in dataflow order; each names by their places those before it that have to be done first.

        Those that are quiet have nothing to do unless something is handed to them.
        """
        self._waiting, self._quiet = dict(enumerate(groups)), quiet
        self._begin()
        while self._running:
            self._round()
            for place in list(self._running):
                self._go_on(place)
            self._begin()

    def _begin(self) -> None:
        """Reads for the groups that wait for no other group any more."""
        for place, group in list(self._waiting.items()):
            if any(before in self._waiting or before in self._running for before in group.after):
                continue
            del self._waiting[place]
            if place in self._quiet and group.inputs.isdisjoint(self.work.handed):
                continue
            started = time.perf_counter()
            batch = self.read(group)
            if batch is not None:
                batch.seconds += time.perf_counter() - started
                self._running[place] = _Running(batch)
                self._go_on(place)

    def _go_on(self, place: int) -> None:
        """To the next wave that has something to run over; the group ends when there is none."""
        started, each = time.perf_counter(), self._running[place]
        waves, each.tasks = each.batch.template.waves, []
        while not each.tasks and each.waves < len(waves):
            tasks = (self.task(each.batch, stage) for stage in waves[each.waves])
            each.tasks = [task for task in tasks if task is not None]
            each.waves += 1
        if not each.tasks:
            self.emit(each.batch)
            self.done.append(each.batch)
            del self._running[place]
        each.batch.seconds += time.perf_counter() - started

    def _round(self) -> None:
        """The stages at which all running groups are."""
        self.report.rounds += 1
        busy = [(each.batch, task) for each in self._running.values() for task in each.tasks]
        for (batch, task), ran in zip(busy, self.runner.run_all([task for _, task in busy]), strict=True):
            started = time.perf_counter()
            self._keep(batch, task.stage, ran.result)
            emit_late(batch, task.stage, self.runner, task.tables[: len(task.stage.reads)], self.work, self.report)
            batch.seconds += ran.seconds + time.perf_counter() - started

    def _keep(self, batch: GroupBatch, stage: Stage, result: pa.Table) -> None:
        """Puts what a stage gave where others read it."""
        split = stage.split(result)
        batch.edges[StageEdge(stage=stage.number)] = split.output
        for number, rows in enumerate(split.states):
            if len(rows):
                self.work.states.append(_state_append(rows, stage.number * STATES_PER_STAGE + number))

    def task(self, batch: GroupBatch, stage: Stage) -> Task | None:
        """The input of a stage; without any its output is empty."""
        tables = [self._input(batch, stage, edge) for edge in stage.reads]
        task = Task(stage, [*tables, *self._states(batch, stage, tables)])
        if task.rows:
            return task
        batch.edges[StageEdge(stage=stage.number)] = stage.nothing
        return None

    @staticmethod
    def _input(batch: GroupBatch, stage: Stage, edge: StageEdge) -> pa.Table:
        table = rows_of(batch.edges, edge)
        if not stage.watermark:
            return table
        _, reached = batch.passed(batch.template.feeding[stage.number])
        after = (reached - stage.lag_ms)[batch.rows_of(table)]
        at = table.column_names.index(HIDDEN[-1]) + 1
        return table.add_column(at, AFTER, pa.array(after, pa.int64()))

    def _states(self, batch: GroupBatch, stage: Stage, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The state rows that the stage asks for; consumed and expired rows are dropped."""
        stateful = stage.stateful
        if stateful is None:
            return []
        move = self._move(batch, stage, tables)
        found: list[pa.Table] = []
        for number, spec in enumerate(stage.states):
            key = stage.number * STATES_PER_STAGE + number
            first, last = stateful.needed(number, move)
            wanted = np.flatnonzero(first <= last)
            fragments = [FragmentId(f) for f in batch.numbers[wanted].tolist()]
            ranges = first[wanted], last[wanted] + 1
            rows = None
            if self.resident is not None and not spec.consumed:
                rows = self.resident.read(stage, number, key, tables, fragments, *ranges)
            found.append(self._read_whole(batch, spec, key, fragments, ranges, move) if rows is None else rows)
            expired = stateful.expired(number, move.after)
            old = np.flatnonzero((expired > BEGIN) & (move.after > move.before))
            if len(old):
                self.work.drops.append(StateDrop.of(key, batch.numbers[old], expired[old], below=True))
        return found

    def _read_whole(
        self,
        batch: GroupBatch,
        spec: StateTable,
        key: int,
        fragments: Sequence[FragmentId],
        ranges: Ranges,
        move: StepProgress,
    ) -> pa.Table:
        """All rows in the ranges; those that are consumed are dropped."""
        reading = self.state.read(fragments, key, *ranges)
        if spec.consumed and len(reading.fragments):
            self.work.drops.append(StateDrop.of(key, reading.fragments, reading.buckets))
        if reading.table is None:
            return spec.frame_schema.empty_table()
        fragment = reading.fragments[reading.owners].astype(np.int32)
        columns = {FRAGMENT: pa.array(fragment, pa.int32())}
        if spec.watermark:
            columns[AFTER] = pa.array(move.after[np.searchsorted(batch.numbers, fragment)], pa.int64())
        rest = {name: reading.table.column(name) for name in spec.names}
        return pa.table({**columns, **rest}, schema=spec.frame_schema)

    @staticmethod
    def _move(batch: GroupBatch, stage: Stage, tables: Sequence[pa.Table]) -> StepProgress:
        oldest = np.full(len(batch.numbers), END, np.int64)
        newest = np.full(len(batch.numbers), BEGIN, np.int64)
        for table in tables:
            rows, times = batch.rows_of(table), table.column(TS).to_numpy()
            np.minimum.at(oldest, rows, times)
            np.maximum.at(newest, rows, times)
        before, after = batch.passed(batch.template.feeding[stage.number])
        return StepProgress(before - stage.lag_ms, after - stage.lag_ms, oldest, newest)


def resident_state(store: Store) -> ResidentState:
    """The resident state of a store, in as much memory as its newest batches have."""
    return ResidentState(store.state, store.directory / "resident", store.options.memory_budget_bytes)


def _state_append(rows: pa.Table, key: int) -> StateAppend:
    """New state rows, cut into their partitions."""
    fragments = rows.column(FRAGMENT).to_numpy().astype(np.int64)
    buckets = rows.column(BUCKET).to_numpy().astype(np.int64)
    ahead, up = np.diff(fragments), np.diff(buckets)
    if ((ahead < 0) | ((ahead == 0) & (up < 0))).any():
        order = np.lexsort((buckets, fragments))
        fragments, buckets, rows = fragments[order], buckets[order], rows.take(pa.array(order))
        ahead, up = np.diff(fragments), np.diff(buckets)
    first = np.concatenate([[0], np.flatnonzero((ahead != 0) | (up != 0)) + 1])
    lengths = np.diff(first, append=len(fragments))
    body = rows.drop_columns([FRAGMENT, BUCKET])
    return StateAppend.sliced(body, key, fragments[first], buckets[first], lengths)
