"""Runs stages on Spark without planning them again: a plan is prepared once, each batch only swaps its input.

Tasks go through the sections of the table of rewrites that depend on the round, the batch and the columns; what comes
out are runs of plans, in the driver or on executors.

Planning takes most of a small batch's time. A stage's plan depends on nothing but schemas, so it is analysed, optimised
and compiled once, over empty input; for a batch the Arrow bytes inside the input's single partition are replaced and
the same plan runs again, as a task on the slot's own thread. This uses parts of Spark that are not public, so nothing
relies on it: a plan that keeps something between runs (a shuffle, a broadcast, a Python worker), and every failure
here, goes the plain way.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.locks import lock
from meander.run.execution.executors.runner import ExecutorsRunner, has_executors
from meander.run.execution.prepared_plan import PREFIX, NotRepeatableError, PreparedPlan, exchange_folder
from meander.run.execution.rewrites import BATCH, COLUMNS, ROUND
from meander.run.execution.rewrites.late_materialisation import needs_no_plan
from meander.run.execution.rewrites.rewrite import FEW_ROWS, Conditions, ExecutionPlace, PlanRun, StagePlan, walk
from meander.run.execution.runner import PlainRunner, Ran, Task
from meander.run.execution.spark_internals import SparkInternals
from meander.run.execution.stage_use import ExecutionMode
from meander.run.failures import reason_of
from meander.run.fragments.template import Stage
from meander.run.process import is_running
from meander.run.session import active, usable_cores

_log = logging.getLogger(__name__)

MOST_FAILURES = 3
"""Failures after which a stage goes the plain way for good."""

LARGEST_BYTES = 100_000_000
"""Larger inputs go the plain way, where Spark partitions them."""

UNUSED_S = 300.0
"""How long a plan is kept that nothing uses: a query may come back, a device may return to where it was."""

FAILURES = (
    *(NotRepeatableError, Py4JError, PySparkException, pa.ArrowException),
    *(OSError, AttributeError, TypeError, ValueError),
)
"""The errors of prepared plans; the batch then goes the plain way."""


class PreparedRunner:
    """Implements `Runner`. A plan is prepared when it is first needed, once for each slot that runs it meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        cores: int | None = None,
        executors: ExecutorsRunner | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cores` is how many partitions of a large batch run beside each other: as many as there are, by default.

        `executors` fetch large batches themselves: by default where there are any.
        """
        self.spark = spark
        self.plain = PlainRunner(spark)
        self._internals: SparkInternals | None = None
        self._executors = executors or (ExecutorsRunner(spark) if has_executors(spark) else None)
        self._idle: dict[str, list[PreparedPlan]] = {}
        self._refused: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._used: dict[str, float] = {}
        """When a stage was last used, by its key."""
        self._clock = clock
        self._runs: Counter[str] = Counter()
        self.evicted = 0
        """Plans that were given up because nothing used them any more."""
        self._lock = lock("prepared plans")
        self.conditions = Conditions(
            usable_cores() if cores is None else cores,
            None if self._executors is None else self._executors.least_rows,
            self._is_ready,
            self._is_refused,
        )
        """The conditions that this runner gives to rewrites."""
        self._pool = ThreadPoolExecutor(max(1, self.conditions.cores), "partition")
        _sweep(exchange_folder())

    @property
    def refused(self) -> dict[str, str]:
        """Stages that go the plain way, with the reason."""
        return dict(self._refused)

    @property
    def runs(self) -> Mapping[str, int]:
        """Plans that ran: prepared, plain or on executors."""
        with self._lock:
            return dict(self._runs)

    def mode_of(self, stage: Stage) -> tuple[ExecutionMode, str | None]:
        """How the stage's next batch runs, with the reason if its plan is refused."""
        if self._needs_no_plan(stage):
            return ExecutionMode.PREPARED, None
        if (reason := self._refused.get(stage.key)) is not None:
            return ExecutionMode.REFUSED, reason
        return (ExecutionMode.PREPARED if self._idle.get(stage.key) else ExecutionMode.PLAIN), None

    def evict(self, wanted: Collection[str]) -> set[str]:
        """Gives up what is known of stages that nothing has used for a while, except for those with a wanted key.

        The answer is the keys of the stages.
        """
        now, plans = self._clock(), list[PreparedPlan]()
        with self._lock:
            known = {*self._used, *self.conditions.memo.keys, *map(_stage_key, self._idle)}
            gone = {k for k in known - set(wanted) if now - self._used.setdefault(k, now) >= UNUSED_S}
            for plan_key in [key for key in self._idle if _stage_key(key) in gone]:
                plans += self._idle.pop(plan_key)
            for key in gone:
                self.conditions.memo.forget(key)
                for kept in (self._used, self._refused, self._failures):
                    kept.pop(key, None)
            self.evicted += len(plans)
        for plan in plans:
            plan.close()
        return gone

    @property
    def failures(self) -> int:
        """Batches that had to go the plain way, although their stage was not refused before."""
        return sum(self._failures.values())

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Prepares plans ahead of their first batch, by running them over nothing. Those that ran before are ready."""
        for stage in {s.key: s for s in stages}.values():
            try:
                if not self.is_warm([stage]):
                    self.run(stage, [schema.empty_table() for schema in stage.frame_schemas])
            except Exception as error:  # its first batch will say so too, and nobody else's plan has to wait for it
                _log.warning("a plan cannot be prepared: %s", reason_of(error))

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        """Whether all of these ran before, or need no preparation."""
        return all(map(self._is_ready, stages))

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self._used[stage.key] = self._clock()
        return walk(BATCH, [PlanRun(stage, tables)], self.conditions, self._run_beside)[0].result

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        return walk(ROUND, tasks, self.conditions, lambda given: [self._timed(task) for task in given])

    def _timed(self, task: Task) -> Ran:
        started = time.perf_counter()
        result = self.run(*task)
        return Ran(result, time.perf_counter() - started)

    def _run_beside(self, runs: Sequence[PlanRun]) -> list[Ran]:
        """One run on this thread, several beside each other."""
        return [self._run(runs[0])] if len(runs) == 1 else list(self._pool.map(self._run, runs))

    def _run(self, run: PlanRun) -> Ran:
        stage = run.stage
        if run.place is ExecutionPlace.EXECUTORS:
            return walk(COLUMNS, [_with_frame_schemas(run)], self.conditions, self._run_on_executors)[0]
        if (stage.key in self._refused or _is_too_large(run.tables)) and not self._needs_no_plan(stage):
            return self._run_plain(run)
        try:
            return walk(COLUMNS, [_with_frame_schemas(run)], self.conditions, self._run_prepared)[0]
        except NotRepeatableError as error:
            self._failed(stage, error)
            return self._run_plain(run)
        except FAILURES as error:
            result = self._run_plain(run)  # where that fails too, the plan is not to blame
            self._failed(stage, error)
            return result

    def _run_prepared(self, runs: Sequence[PlanRun]) -> list[Ran]:
        (run,) = runs
        prepared = self._take(run.planned)
        try:
            result = prepared.run(run.tables)
        except FAILURES:
            prepared.close()
            raise
        with self._lock:
            self._idle.setdefault(run.planned.key, []).append(prepared)
            self._runs["prepared"] += 1
        return [Ran(result, 0.0)]

    def _run_on_executors(self, runs: Sequence[PlanRun]) -> list[Ran]:
        assert self._executors is not None
        (run,) = runs
        self._count("executors")
        return [Ran(self._executors.run(run.planned.make, run.tables), 0.0)]

    def _run_plain(self, run: PlanRun) -> Ran:
        self._count("plain")
        return Ran(self.plain.run(run.stage, run.tables), 0.0)

    def _count(self, how: str) -> None:
        with self._lock:
            self._runs[how] += 1

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.plain.late(stage, tables)

    def close(self) -> None:
        """Removes the files that plans exchange their input and output by."""
        self._pool.shutdown()
        if self._executors is not None:
            self._executors.close()
        with self._lock:
            for plans in self._idle.values():
                for plan in plans:
                    plan.close()
            self._idle.clear()

    def _failed(self, stage: Stage, error: Exception) -> None:
        """A plan that cannot be repeated is given up; other failures may have been the batch's, such as its size."""
        reason = _first_line(error)
        self._failures[stage.key] = self._failures.get(stage.key, 0) + 1
        if isinstance(error, NotRepeatableError) or self._failures[stage.key] >= MOST_FAILURES:
            self._refused[stage.key] = reason
        _log.info("a batch of a stage runs unprepared: %s", reason)

    def _is_refused(self, stage: Stage) -> bool:
        return stage.key in self._refused

    def _is_ready(self, stage: Stage) -> bool:
        return stage.key in self._idle or stage.key in self._refused or self._needs_no_plan(stage)

    def _needs_no_plan(self, stage: Stage) -> bool:
        return needs_no_plan(stage, self.conditions)

    def _take(self, plan: StagePlan) -> PreparedPlan:
        """A prepared plan that nothing runs."""
        with self._lock:
            idle = self._idle.get(plan.key)
            if idle:
                return idle.pop()
            self._internals = internals = self._internals or SparkInternals(self.spark)
        with active(self.spark):
            return PreparedPlan(internals, plan)


def _stage_key(plan_key: str) -> str:
    """The key of the stage that a plan is of."""
    return plan_key.partition(",")[0]


def _with_frame_schemas(run: PlanRun) -> PlanRun:
    given = zip(run.tables, run.stage.frame_schemas, strict=True)
    return run._replace(tables=[t if t.schema.equals(schema) else t.cast(schema) for t, schema in given])


def _is_too_large(tables: Sequence[pa.Table]) -> bool:
    """To count bytes takes a while."""
    return sum(map(len, tables)) > FEW_ROWS and sum(t.nbytes for t in tables) > LARGEST_BYTES


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _sweep(folder: Path) -> None:
    """Removes what processes that are gone left behind."""
    for path in folder.glob(f"{PREFIX}*"):
        number = path.name.removeprefix(PREFIX).split("-")[0]
        if number.isdigit() and not is_running(int(number)):
            path.unlink(missing_ok=True)
