"""Runs stages on Spark without planning them again: a plan is prepared once, each batch only swaps its input.

Planning takes most of a small batch's time. A stage's plan depends on nothing but schemas, so it is analysed, optimised
and compiled once, over empty input; for a batch the Arrow bytes inside the input's single partition are replaced and
the same plan runs again, as a task on the slot's own thread. This uses parts of Spark that are not public, so nothing
relies on it: a plan that keeps something between runs (a shuffle, a broadcast, a Python worker), and every failure
here, goes the plain way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.run.execution.driver_plan import DriverPlans
from meander.run.execution.executors.runner import ExecutorsRunner, has_executors
from meander.run.execution.prepared_plan import PREFIX, NotRepeatableError, PreparedPlan, exchange_folder
from meander.run.execution.rewrites.late_materialisation import LateMaterialisation, is_lean
from meander.run.execution.rewrites.merge_equal_plans import twins_of
from meander.run.execution.rewrites.partial_aggregation import (
    PLAIN,
    are_plain,
    first_round,
    second_round,
    takes_two_rounds,
)
from meander.run.execution.rewrites.partitioning import cut, has_plain_key, worth_cutting
from meander.run.execution.rewrites.prune_columns import PrunedColumns
from meander.run.execution.runner import PlainRunner, Ran, Task
from meander.run.execution.stage_use import ExecutionMode
from meander.run.failures import reason_of
from meander.run.fragments.template import Stage
from meander.run.process import is_running
from meander.run.session import active, usable_cores

_log = logging.getLogger(__name__)

MOST_FAILURES = 3
"""Failures after which a stage goes the plain way for good."""

LARGEST_BYTES = 100_000_000
"""Larger inputs go the plain way, where Spark cuts them."""

UNUSED_S = 300.0
"""How long a plan is kept that nothing uses: a query may come back, a device may return to where it was."""

PLAIN_ROWS = ", plain rows"
"""Ends the key of a stage's plan over rows alone, without state."""

FEW_ROWS = 50_000
"""So many are never too large, and not looked at."""

FAILURES = (
    *(NotRepeatableError, Py4JError, PySparkException, pa.ArrowException),
    *(OSError, AttributeError, TypeError, ValueError),
)
"""What may go wrong with a prepared plan; its batch then goes the plain way."""


class PreparedRunner:
    """Implements `Runner`. A plan is prepared when it is first needed, once for each slot that runs it meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        cores: int | None = None,
        executors: ExecutorsRunner | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cores` is into how many parts a large batch is cut at most: as many as there are, by default.

        `executors` fetch large batches themselves: by default where there are any.
        """
        self.spark = spark
        self.plain = PlainRunner(spark)
        self._plans: DriverPlans | None = None
        self._executors = executors or (ExecutorsRunner(spark) if has_executors(spark) else None)
        self._idle: dict[str, list[PreparedPlan]] = {}
        self._travelling: dict[str, LateMaterialisation | PrunedColumns | None] = {}
        self._refused: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._used: dict[str, float] = {}
        """When a stage was last used, by its key."""
        self._clock = clock
        self._runs: Counter[str] = Counter()
        self.evicted = 0
        """Plans that were given up because nothing used them any more."""
        self._lock = threading.Lock()
        self._cores = usable_cores() if cores is None else cores
        self._pool = ThreadPoolExecutor(max(1, self._cores), "part")
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

    def way_of(self, stage: Stage) -> tuple[ExecutionMode, str | None]:
        """How the stage's next batch runs, with the reason if its plan is refused."""
        if self._only_passes(stage):
            return ExecutionMode.PREPARED, None
        if (reason := self._refused.get(stage.key)) is not None:
            return ExecutionMode.REFUSED, reason
        return (ExecutionMode.PREPARED if self._idle.get(stage.key) else ExecutionMode.PLAIN), None

    def evict(self, wanted: Collection[str]) -> set[str]:
        """Gives up what is known of stages that nothing has used for a while, but for those with a wanted key.

        Says which.
        """
        now, plans = self._clock(), list[PreparedPlan]()
        with self._lock:
            known = {*self._used, *self._travelling, *(key.removesuffix(PLAIN_ROWS) for key in self._idle)}
            gone = {k for k in known - set(wanted) if now - self._used.setdefault(k, now) >= UNUSED_S}
            for key in gone:
                for mine in (key, key + PLAIN_ROWS):
                    plans += self._idle.pop(mine, [])
                for kept in (self._used, self._travelling, self._refused, self._failures):
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
        return all(s.key in self._idle or s.key in self._refused or self._only_passes(s) for s in stages)

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self._used[stage.key] = self._clock()
        if self._executors is not None and sum(map(len, tables)) >= self._executors.least_rows:
            self._count("executors")
            return self._run_by(self._executors, stage, tables)
        count = 1 if stage.key in self._refused else worth_cutting(tables, self._cores)
        plain = count > 1 and takes_two_rounds(stage) and are_plain(stage, tables)
        parts = cut(stage, tables, count, by_key=not plain)
        if len(parts) == 1:
            return self._run(stage, tables)
        if plain or (stage.stateful is not None and not has_plain_key(stage, tables)):
            partial = self._run_parts(stage, first_round(stage, parts), plain=plain)
            return self._run(stage, second_round(stage, tables, partial))
        return pa.concat_tables(self._run_parts(stage, parts))

    def _run_by(self, executors: ExecutorsRunner, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        """The stage over rows that executors fetch: those of its columns that travel."""
        travelling, given = self._travelling_of(stage), _as_frames(stage, tables)
        if isinstance(travelling, LateMaterialisation) and travelling.computes_nothing:
            return travelling.passed(given)
        if travelling is None:
            return executors.run(stage.plan, given)
        return travelling.whole(given, executors.run(travelling.plan, travelling.outgoing(given)))

    def _run_parts(self, stage: Stage, parts: Sequence[Sequence[pa.Table]], *, plain: bool = False) -> list[pa.Table]:
        return list(self._pool.map(lambda part: self._run(stage, part, plain=plain), parts))

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        """Those with the same plan as one."""
        found: dict[int, Ran] = {}
        for group in twins_of(tasks):
            found.update(group.apart(self._timed(group.task)))
        return [found[number] for number in range(len(tasks))]

    def _timed(self, task: Task) -> Ran:
        started = time.perf_counter()
        result = self.run(*task)
        return Ran(result, time.perf_counter() - started)

    def _run(self, stage: Stage, tables: Sequence[pa.Table], *, plain: bool = False) -> pa.Table:
        lean = self._travelling_of(stage)
        if isinstance(lean, LateMaterialisation) and lean.computes_nothing:
            return lean.passed(_as_frames(stage, tables))
        if stage.key in self._refused or _is_too_large(tables):
            return self._run_plain(stage, tables)
        run = None
        try:
            run = self._prepared(stage, tables, plain=plain)
            result = run.whole(run.plan.run(run.outgoing))
        except FAILURES as error:
            if run is not None:
                run.plan.close()
            if isinstance(error, NotRepeatableError):
                self._failed(stage, error)
                return self._run_plain(stage, tables)
            result = self._run_plain(stage, tables)  # where that fails too, the plan is not to blame
            self._failed(stage, error)
            return result
        self._give_back(run)
        self._count("prepared")
        return result

    def _run_plain(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self._count("plain")
        return self.plain.run(stage, tables)

    def _count(self, how: str) -> None:
        with self._lock:
            self._runs[how] += 1

    def _prepared(self, stage: Stage, tables: Sequence[pa.Table], *, plain: bool = False) -> _Run:
        key = stage.key + PLAIN_ROWS if plain else stage.key
        travelling = PrunedColumns.of(stage, PLAIN) if plain else self._travelling_of(stage)
        return _Run(key, self._take(key, stage, travelling), _as_frames(stage, tables), travelling)

    def _give_back(self, run: _Run) -> None:
        with self._lock:
            self._idle.setdefault(run.key, []).append(run.plan)

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

    def _travelling_of(self, stage: Stage) -> LateMaterialisation | PrunedColumns | None:
        """What of a stage's tuples travels; all of them without."""
        if stage.key not in self._travelling:
            self._travelling[stage.key] = LateMaterialisation.of(stage) if is_lean(stage) else PrunedColumns.of(stage)
        return self._travelling[stage.key]

    def _only_passes(self, stage: Stage) -> bool:
        lean = self._travelling_of(stage)
        return isinstance(lean, LateMaterialisation) and lean.computes_nothing

    def _take(self, key: str, stage: Stage, travelling: LateMaterialisation | PrunedColumns | None) -> PreparedPlan:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
            self._plans = plans = self._plans or DriverPlans(self.spark)
        with active(self.spark):
            if travelling is not None:
                return PreparedPlan(self.spark, plans, travelling.plan, travelling.schemas)
            return PreparedPlan(self.spark, plans, lambda frames: stage.plan(frames), stage.frame_schemas)


@dataclass(frozen=True)
class _Run:
    """A plan with what it runs over."""

    key: str
    plan: PreparedPlan
    given: list[pa.Table]
    travelling: LateMaterialisation | PrunedColumns | None

    @property
    def outgoing(self) -> list[pa.Table]:
        return self.given if self.travelling is None else self.travelling.outgoing(self.given)

    def whole(self, result: pa.Table) -> pa.Table:
        return result if self.travelling is None else self.travelling.whole(self.given, result)


def _as_frames(stage: Stage, tables: Sequence[pa.Table]) -> list[pa.Table]:
    given = zip(tables, stage.frame_schemas, strict=True)
    return [table if table.schema.equals(schema) else table.cast(schema) for table, schema in given]


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
