"""Compaction: crowded state becomes few pieces again, beside running steps.

Every step appends its rows as a piece of its own, so a window that stays open for long gathers very many. Partial
aggregates are merged by the operator itself: its own step over nothing but state rows, with a watermark before
everything, adds them up and closes nothing. Rows of other operators are laid side by side. A pass is bounded in rows;
rows that a step drops meanwhile stay dropped, appended ones are kept, and a crash leaves either the old pieces or the
new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.execution.runner import Runner
from meander.run.failures import reason_of
from meander.run.fragments.routing import Routing
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BEGIN, FRAGMENT
from meander.run.operators.state import StateTable
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.journal import JournalError
from meander.run.store.partitions import PartitionKey
from meander.run.store.state import Crowd
from meander.run.store.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The conditions of a crowded partition, and the size of a pass."""

    merged_pieces: int = 16
    """Partial aggregates are merged from so many pieces on: what remains is as small as the groups are few."""
    joined_pieces: int = 64
    """Other rows are laid together from so many pieces on, once the new ones are as many as those laid together."""
    most_pieces: int = 1024
    """... or from so many pieces on in any case, and as many again for each `large_rows` laid together before."""
    large_rows: int = 50_000
    most_rows: int = 200_000
    """Rows that a pass reads at most, unless a single partition has more."""
    interval_s: float = 1.0


@dataclass(slots=True)
class CompactionMetrics:
    """The totals since the process began."""

    passes: int = 0
    partitions: int = 0
    rows: int = 0
    seconds: float = 0.0
    problem: str | None = None
    """The reason why the last pass failed, if it did."""


class _Task(NamedTuple):
    """Partitions that are merged in one go: by one stage's plan, or laid together."""

    stage: Stage | None
    table: int
    keys: list[PartitionKey]


class Compaction:
    """The state of one host. `tick` may be called by hand, or by the thread that `start` begins."""

    def __init__(
        self, store: Store, routing: Routing, runner: Runner, options: CompactionOptions | None = None
    ) -> None:
        self.store, self.routing, self.runner = store, routing, runner
        self.options = options or CompactionOptions()
        self.metrics = CompactionMetrics()
        self._found: list[str] = []
        self._problems: list[str] = []
        """The failures of this pass, and of the one before."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> int:
        """One pass: merges crowded partitions, the most crowded first; returns the number of partitions that became
        one piece."""
        started = time.perf_counter()
        epoch = self.store.state.epoch
        self._problems, self._found = self._found, []
        tasks = self._tasks()
        done = sum(self._try(task, epoch) for task in tasks)
        self.metrics.problem = self._found[0] if self._found else None
        if tasks:
            self.metrics.passes += 1
            self.metrics.partitions += done
            self.metrics.seconds += time.perf_counter() - started
        return done

    def _try(self, task: _Task, epoch: int) -> int:
        """Merges the parts of a task; parts that cannot be merged stay as they were, and hold up no others."""
        try:
            return self._run(task, epoch)
        except JournalError:
            raise
        except Exception as error:
            problem = f"state of fragment {task.keys[0].fragment}: {reason_of(error)}"
            if problem not in self._problems:
                _log.warning("compaction is put off: %s", problem)
            self._found.append(problem)
            return 0

    def _tasks(self) -> list[_Task]:
        fewest = min(self.options.merged_pieces, self.options.joined_pieces)
        tasks: dict[tuple[str, int], _Task] = {}
        rows = 0
        for crowd in sorted(self.store.state.crowds(fewest), key=lambda c: -c.pieces):
            stage = self._stage(crowd.key)
            if stage is None:
                continue
            number = crowd.key.operator % STATES_PER_STAGE
            merges = stage.states[number].mergeable
            if not self.is_crowded(crowd, merges):
                continue
            if rows and rows + crowd.rows > self.options.most_rows:
                break
            rows += crowd.rows
            task = _Task(stage if merges else None, number, [])
            tasks.setdefault((stage.key if merges else "", crowd.key.operator), task).keys.append(crowd.key)
        return list(tasks.values())

    def _stage(self, key: PartitionKey) -> Stage | None:
        """The stage whose state this is; none for a fragment that does not run here, or runs as something else."""
        installed = self.routing.fragments.get(key.fragment)
        stages = installed.bound.template.stages if installed else ()
        number, table = divmod(key.operator, STATES_PER_STAGE)
        return stages[number] if number < len(stages) and table < len(stages[number].states) else None

    def is_crowded(self, crowd: Crowd, merges: bool) -> bool:
        """Whether a partition is to become one piece, by the operator's own plan if it merges."""
        if merges:
            return crowd.pieces >= self.options.merged_pieces
        grown = crowd.pieces >= self.options.joined_pieces and crowd.rows >= 2 * crowd.first_rows
        most = self.options.most_pieces * (1 + crowd.first_rows // self.options.large_rows)
        return grown or crowd.pieces >= most

    def _run(self, task: _Task, epoch: int) -> int:
        def merge(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
            self.metrics.rows += len(table)
            return (table, owners) if task.stage is None else merged(self.runner, task.stage, task.table, table, owners)

        return self.store.state.compact(task.keys, merge, epoch)

    def start(self) -> None:
        """Compacts in a thread of its own until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="compaction", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while not self._stopping.wait(self.options.interval_s):
            try:
                self.tick()
            except Exception as error:  # the pieces are as good as they were
                self.metrics.problem = reason_of(error)
                _log.warning("compaction is put off: %s", self.metrics.problem)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def merged(runner: Runner, stage: Stage, number: int, table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
    """State rows of many partitions as fewer rows of the same meaning.

    Partitions stand in for fragments: nothing of one can end up in another, whichever of them is given up later.
    """
    inputs = [schema.empty_table() for schema in stage.frame_schemas]
    inputs[len(stage.reads) + number] = _as_frame(stage.states[number], table, owners)
    rows = stage.split(runner.run(stage, inputs)).states[number]
    found: Int64s = rows.column(FRAGMENT).to_numpy().astype(np.int64)
    return rows.select(list(stage.states[number].names)).cast(stage.states[number].schema), found


def _as_frame(spec: StateTable, table: pa.Table, owners: Sequence[int] | Int64s) -> pa.Table:
    columns = {FRAGMENT: pa.array(np.asarray(owners, np.int32))}
    if spec.watermark:
        columns[AFTER] = pa.array(np.full(len(table), BEGIN, np.int64))
    return pa.table({**columns, **{n: table.column(n) for n in spec.names}}, schema=spec.frame_schema)
