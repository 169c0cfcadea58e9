"""Executors: a batch that is large enough is fetched and run by Spark's executors, where there are any.

How they do it is in the package `executors`. They partition the batch themselves.
"""

from __future__ import annotations

from meander.run.execution.rewrites.late_materialisation import needs_no_plan
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    Conditions,
    ExecutionPlace,
    PlanRun,
    StageNames,
    TaskRewrite,
    TaskSteps,
    Verdict,
)
from meander.run.fragments.template import Stage


class Executors(TaskRewrite[PlanRun]):
    name = "executors"
    about = "Executors fetch the rows of a large batch themselves and bring the result, where Spark has executors."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        if now.executor_rows is None:
            return Verdict(False, "Spark's master has no executors")
        if needs_no_plan(stage, now):
            return Verdict(False, "no plan runs")
        return Verdict(True, "where Spark's master has executors; a local one has none", now.executor_rows)

    def rewrite_task(self, task: PlanRun, now: Conditions) -> TaskSteps[PlanRun] | None:
        if now.executor_rows is None or task.place is not None or task.rows < now.executor_rows:
            return None
        return None if needs_no_plan(task.stage, now) else self._steps(task)

    @staticmethod
    def _steps(task: PlanRun) -> TaskSteps[PlanRun]:
        (result,) = yield [task._replace(place=ExecutionPlace.EXECUTORS)]
        return result
