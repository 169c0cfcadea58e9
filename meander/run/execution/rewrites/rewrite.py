"""The interface of rewrites: each decides from a stage, its batch and the conditions whether it changes how tasks run.

A rewrite takes tasks and gives others, whose results it turns into those of the tasks it took. What it gives goes on to
the rewrites behind it in the table; what is left at the end runs. The same rewrite says for `meander explain` whether
it applies to a stage, and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.run.execution.runner import Ran, Task
from meander.run.fragments.template import Stage

FEW_ROWS = 50_000
"""So many rows are never too large for a single run."""

T = TypeVar("T", bound="Task | PlanRun")
R = TypeVar("R")
S = TypeVar("S")

Steps = Generator[Sequence[T], Sequence[Ran], list[Ran]]
"""Rounds of tasks that do not wait for each other. It is sent what they gave, and returns what all tasks give."""

TaskSteps = Generator[Sequence[T], Sequence[pa.Table], pa.Table]
"""The same for a single task, with tables alone."""


class ExecutionPlace(Enum):
    """Where a plan runs."""

    DRIVER = "driver"
    EXECUTORS = "executors"


class StagePlan(NamedTuple):
    """A plan that can be prepared: equal keys are equal plans."""

    key: str
    schemas: Sequence[pa.Schema]
    make: Callable[[Sequence[DataFrame]], DataFrame]


class PlanRun(NamedTuple):
    """One run of a stage's plan over tables."""

    stage: Stage
    tables: Sequence[pa.Table]
    place: ExecutionPlace | None = None
    """Once it is decided; the run is not partitioned any more then."""
    plain_rows: bool = False
    """Whether the rows' hidden columns follow from the others, and are not read."""
    plan: StagePlan | None = None
    """The tasks that run instead of the stage's own plan."""

    @property
    def rows(self) -> int:
        return sum(map(len, self.tables))

    @property
    def planned(self) -> StagePlan:
        return self.plan or StagePlan(self.stage.key, self.stage.frame_schemas, self.stage.plan)


class StageMemo:
    """The memoised facts about stages, by their keys."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Callable[[Stage], Any], Any]] = {}

    def of(self, work_out: Callable[[Stage], R], stage: Stage) -> R:
        known = self._known.get(stage.key)
        if known is None:
            known = self._known.setdefault(stage.key, {})
        if work_out not in known:
            known[work_out] = work_out(stage)
        found: R = known[work_out]
        return found

    @property
    def keys(self) -> Collection[str]:
        return list(self._known)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


@dataclass(frozen=True)
class Conditions:
    """The conditions of a rewrite besides the stage and its batch."""

    cores: int
    executor_rows: int | None = None
    """Rows from which on executors run a batch; None without executors."""
    is_ready: Callable[[Stage], bool] = lambda stage: True
    """Whether a stage's plan is prepared, or cannot be, or is not needed."""
    is_refused: Callable[[Stage], bool] = lambda stage: False
    """Whether a stage's plan cannot be prepared."""
    ran_by_operator: Callable[[Stage], None] = lambda stage: None
    """Is told of each run of a stage without a plan of its own."""
    equal_stages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By their keys the other stages that may run in the same round, by name."""
    memo: StageMemo = field(default_factory=StageMemo)


class StageNames:
    """The columns of a stage under the names that its query has for them."""

    def __init__(self, leaves: Sequence[Sequence[str]] | None = None, output: Sequence[str] | None = None) -> None:
        """By position without names."""
        self._leaves, self._output = leaves, output

    def leaf(self, number: int, column: str) -> str:
        return column if self._leaves is None else self._leaves[number][int(column[1:])]

    def output(self, column: str) -> str:
        return column if self._output is None else self._output[int(column[1:])]


BY_POSITION = StageNames()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rewrite applies to a stage, and why."""

    applies: bool
    reason: str
    from_rows: int = 0
    to_rows: int | None = None
    """The batches that it applies to, by their rows, both included."""

    @property
    def sizes(self) -> str:
        """The batches that it applies to, in words; nothing if they are all.

        >>> Verdict(True, "", from_rows=100_000).sizes
        'from 100,000 rows'
        >>> Verdict(True, "", to_rows=50_000).sizes
        'up to 50,000 rows'
        """
        parts = [f"from {self.from_rows:,}"] if self.from_rows else []
        parts += [] if self.to_rows is None else [f"up to {self.to_rows:,}"]
        return f"{' '.join(parts)} rows" if parts else ""


class Rewrite(ABC, Generic[T]):
    """One rule of the table. It keeps nothing between runs."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One sentence."""

    @abstractmethod
    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        """Whether batches of the stage are rewritten, as far as the stage alone decides it."""

    @abstractmethod
    def rewrite(self, tasks: Sequence[T], now: Conditions) -> Steps[T] | None:
        """The tasks that run instead; None where all stay as they are."""


class TaskRewrite(Rewrite[T]):
    """A rewrite that looks at each task by itself."""

    @abstractmethod
    def rewrite_task(self, task: T, now: Conditions) -> TaskSteps[T] | None:
        """The task that runs instead; None where it stays as it is."""

    def rewrite(self, tasks: Sequence[T], now: Conditions) -> Steps[T] | None:
        steps = [self.rewrite_task(task, now) for task in tasks]
        return _interleaved(tasks, steps) if any(steps) else None


def walk(
    rewrites: Sequence[Rewrite[T]],
    tasks: Sequence[T],
    now: Conditions,
    execute: Callable[[Sequence[T]], list[Ran]],
) -> list[Ran]:
    """Hands tasks from rewrite to rewrite, and executes what is left of them."""
    for place, rewrite in enumerate(rewrites, 1):
        steps = rewrite.rewrite(tasks, now)
        if steps is not None:
            return followed(steps, partial(walk, rewrites[place:], now=now, execute=execute))
    return execute(tasks)


def followed(steps: Generator[Sequence[T], Sequence[S], R], run: Callable[[Sequence[T]], Sequence[S]]) -> R:
    """Runs each round of tasks, and gives what the steps return."""
    try:
        tasks = next(steps)
        while True:
            tasks = steps.send(run(tasks))
    except StopIteration as end:
        found: R = end.value
        return found


def _interleaved(tasks: Sequence[T], steps: Sequence[TaskSteps[T] | None]) -> Steps[T]:
    """Many tasks in rounds: each of them goes one step on in each. A task without steps stays as it is."""
    seconds = [0.0] * len(tasks)
    results: dict[int, pa.Table] = {}
    waiting: dict[int, Sequence[T]] = {}

    def go_on(number: int, given: Sequence[pa.Table] | None) -> None:
        own = steps[number]
        if own is not None:
            try:
                waiting[number] = next(own) if given is None else own.send(given)
            except StopIteration as end:
                results[number] = end.value
        elif given is None:
            waiting[number] = (tasks[number],)
        else:
            (results[number],) = given

    for number in range(len(tasks)):
        go_on(number, None)
    while waiting:
        current, waiting = waiting, {}
        ran = iter((yield [task for own in current.values() for task in own]))
        for number, own in current.items():
            mine = [next(ran) for _ in own]
            seconds[number] += sum(each.seconds for each in mine)
            go_on(number, [each.result for each in mine])
    return [Ran(results[number], taken) for number, taken in enumerate(seconds)]
