"""Tiered execution: a stage runs by its own plan once that is ready, and by the plans of its operators until then.

Every change may bring operators together that were apart before: a plan that Spark has not seen, and would need a good
part of a second for. Plans of single operators are prepared beside the work as soon as a query is known, so that a
stage made of known operators can run at once. A stage that runs often so gets its own plan meanwhile, beside the work.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from meander.model.locks import lock
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.rewrites import READINESS
from meander.run.execution.rewrites.operator_at_a_time import OFTEN, operator_stages, runs_by_operator
from meander.run.execution.rewrites.rewrite import walk
from meander.run.execution.rewrites.trailing_projection import WithoutProjection
from meander.run.execution.runner import Ran, Task
from meander.run.execution.stage_use import ExecutionMode, StageUse
from meander.run.fragments.template import Stage

_log = logging.getLogger(__name__)


class TieredRunner:
    """Implements `Runner` over prepared plans, with the rewrites that ask which of them are ready."""

    def __init__(self, prepared: PreparedRunner) -> None:
        self.prepared = prepared
        self._conditions = replace(prepared.conditions, ran_by_operator=self._ran_by_operator)
        self._runs: dict[str, int] = {}
        """Runs by operator, by the stage's key."""
        self._asked_for: set[str] = set()
        self._lock = lock("tiered plans")
        self._beside = ThreadPoolExecutor(1, "plans")

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Makes each stage ready in one way or the other; its operators' own plans follow beside the work."""
        wanted = list({s.key: s for s in stages}.values())
        self.prepared.warm_up([s for s in wanted if not self._is_ready(s)])
        for stage in wanted:
            for operator in self._operators(stage):
                self._ask_for(operator)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return all(map(self._is_ready, stages))

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.run_all([Task(stage, tables)])[0].result

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        return walk(READINESS, tasks, self._conditions, self.prepared.run_all)

    def _ran_by_operator(self, stage: Stage) -> None:
        with self._lock:
            self._runs[stage.key] = runs = self._runs.get(stage.key, 0) + 1
        if runs == OFTEN:
            self._ask_for(stage)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.prepared.late(stage, tables)

    def use(self, stages: Iterable[Stage]) -> StageUse:
        """How these stages run."""
        modes = [self._mode_of(stage) for stage in {s.key: s for s in stages}.values()]
        return StageUse.of(modes, self.prepared.runs, self.prepared.evicted)

    def _mode_of(self, stage: Stage) -> tuple[ExecutionMode, str | None]:
        without = self._without_projection(stage)
        found = self.prepared.mode_of(without if without and self.prepared.is_warm([without]) else stage)
        if found[0] is not ExecutionMode.PLAIN or not runs_by_operator(stage, self._conditions):
            return found
        modes = [self.prepared.mode_of(operator) for operator in self._operators(stage)]
        by_operator = (ExecutionMode.OPERATOR_AT_A_TIME, None)
        return next((each for each in modes if each[0] is not ExecutionMode.PREPARED), by_operator)

    def evict(self, stages: Iterable[Stage]) -> None:
        """Gives up what nothing has used for a while, except for what these stages are rewritten to."""
        wanted = set[str]()
        for stage in stages:
            without = self._without_projection(stage)
            wanted |= {s.key for s in (stage, *self._operators(stage), *([without] if without else []))}
        gone = self.prepared.evict(wanted)
        with self._lock:
            for key in gone:
                self._runs.pop(key, None)
            self._asked_for -= gone

    def settle(self) -> None:
        """Waits until everything that was asked for is ready."""
        self._beside.submit(lambda: None).result()

    def close(self) -> None:
        self._beside.shutdown(cancel_futures=True)
        self.prepared.close()

    def _without_projection(self, stage: Stage) -> Stage | None:
        without = self._conditions.memo.of(WithoutProjection.of, stage)
        return None if without is None else without.stage

    def _operators(self, stage: Stage) -> list[Stage]:
        return self._conditions.memo.of(operator_stages, stage)

    def _is_ready(self, stage: Stage) -> bool:
        return self.prepared.is_warm([stage]) or runs_by_operator(stage, self._conditions)

    def _ask_for(self, stage: Stage) -> None:
        with self._lock:
            if stage.key in self._asked_for:
                return
            self._asked_for.add(stage.key)
        self._beside.submit(self._prepare, stage)

    def _prepare(self, stage: Stage) -> None:
        try:
            self.prepared.warm_up([stage])
        except Exception:
            _log.exception("a plan could not be prepared; it will be when it is needed")
