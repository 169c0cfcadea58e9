"""Diagnosis: which operators of a fragment fail, found by running them one by one over what the step had to run over.

A step runs whole stages, and a stage that fails does not say which of its operators did. Here each operator is a
template of its own, fed with the output of the ones before it. Nothing that comes out is kept. What follows an operator
that failed has nothing to run over, and is not blamed.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from meander.model.ids import OperatorId
from meander.model.operators import Sink, Source
from meander.run.execution.runner import Runner
from meander.run.failures import Cause, Failure, failure_of
from meander.run.fragments.stage_nodes import StageEdge
from meander.run.fragments.template import BoundFragment, Stage
from meander.run.step.stage_scheduler import StageScheduler
from meander.run.step.work import GroupBatch, StepReport, Work
from meander.run.store.state import StateTables


def failing_operators(state: StateTables, runner: Runner, batch: GroupBatch) -> dict[OperatorId, Failure]:
    """The operators of a batch's only fragment that fail, with the failure of each; none if each of them alone does
    well. Passes on errors that are no operator's fault."""
    return _Diagnosis(state, runner, batch).failing()


class _Diagnosis:
    def __init__(self, state: StateTables, runner: Runner, batch: GroupBatch) -> None:
        (fragment,) = batch.fragments
        self.batch, self.bound, self.runner = batch, fragment.bound, runner
        self._front = StageScheduler(state, runner, lambda _: None, lambda _: None, Work(), StepReport(0))
        self._given: dict[OperatorId, pa.Table] = {
            operator: batch.edges[StageEdge(port=port)] for port, operator in enumerate(self.bound.ports)
        }
        """The outputs of operators that did well, and the input of the ports."""

    def failing(self) -> dict[OperatorId, Failure]:
        found: dict[OperatorId, Failure] = {}
        for operator, spec in self.bound.members.operators.items():
            below = self.bound.members.inputs[operator]
            if isinstance(spec, Source) or any(i not in self._given for i in below):
                continue
            if isinstance(spec, Sink):
                self._given[operator] = self._given[below[0]]
                continue
            try:
                self._given[operator] = self._run(operator)
            except Exception as error:
                failure = failure_of(error)
                if failure.cause is not Cause.DATA and not failure.may_be_an_operators:
                    raise
                found[operator] = failure
        return found

    def _run(self, operator: OperatorId) -> pa.Table:
        alone = self.bound.members.alone(operator)
        edges = {StageEdge(port=port): self._given[below] for port, below in enumerate(alone.ports)}
        batch = replace(self.batch, edges=edges)
        for stage in alone.template.stages:
            own = self._as_in_its_fragment(stage, alone, operator)
            task = self._front.task(batch, own)
            if task is None:
                return own.nothing
            return own.split(self.runner.run(*task)).output
        (edge,) = alone.template.outputs
        return edges[edge]

    def _as_in_its_fragment(self, stage: Stage, alone: BoundFragment, operator: OperatorId) -> Stage:
        """The stage with the number and the lag that its operator with memory has in the fragment, for its state."""
        if not alone.stateful:
            return stage
        number = next(n for n, o in self.bound.stateful.items() if o == operator)
        return replace(stage, number=number, lag_ms=self.bound.template.stages[number].lag_ms)
