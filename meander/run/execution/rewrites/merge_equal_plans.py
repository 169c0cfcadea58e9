"""Merge equal plans: tasks of one round whose stages have the same plan run as one.

A plan costs the same for one stage or for eight, so their rows are put together as if the fragments of every task were
fragments of their own: they get other numbers for the run, and their own ones back in its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.execution.rewrites.rewrite import BY_POSITION, Conditions, Rewrite, StageNames, Steps, Verdict
from meander.run.execution.runner import Ran, Task
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT, sliced

FIXED_ROWS = 200
"""The fixed effort of a task, in rows: time is divided by it among tasks that ran together."""


class MergeEqualPlans(Rewrite[Task]):
    name = "merge equal plans"
    about = "Tasks of one round whose stages have the same plan run as one."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        others = now.equal_stages.get(stage.key, ())
        if not others:
            return Verdict(False, "no other stage has this plan")
        have = "has" if len(others) == 1 else "have"
        return Verdict(True, f"{', '.join(others)} {have} this plan too; what is ready in one round runs as one")

    def rewrite(self, tasks: Sequence[Task], now: Conditions) -> Steps[Task] | None:
        if len(tasks) < 2:
            return None
        merged = merged_tasks(tasks)
        return self._steps(merged, len(tasks)) if len(merged) < len(tasks) else None

    @staticmethod
    def _steps(merged: Sequence[MergedTasks], count: int) -> Steps[Task]:
        found: dict[int, Ran] = {}
        for group, ran in zip(merged, (yield [group.task for group in merged]), strict=True):
            found.update(group.separated(ran))
        return [found[place] for place in range(count)]


@dataclass(frozen=True)
class MergedTasks:
    """Tasks with the same plan, by their place among all, as one task."""

    task: Task
    places: tuple[int, ...]
    rows: tuple[int, ...]
    numbers: MergedNumbers | None = None

    def separated(self, ran: Ran) -> dict[int, Ran]:
        """The result of each task, by its place."""
        results = [ran.result] if self.numbers is None else separate(ran.result, self.numbers)
        seconds = divided(ran.seconds, self.rows)
        return {place: Ran(*each) for place, *each in zip(self.places, results, seconds, strict=True)}


def merged_tasks(tasks: Sequence[Task]) -> list[MergedTasks]:
    """Tasks by their plans."""
    places: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        places.setdefault(task.stage.key, []).append(place)
    return [_merged([tasks[place] for place in group], tuple(group)) for group in places.values()]


def _merged(tasks: Sequence[Task], places: tuple[int, ...]) -> MergedTasks:
    rows = tuple(task.rows for task in tasks)
    if len(tasks) == 1:
        return MergedTasks(tasks[0], places, rows)
    tables, numbers = merge([task.tables for task in tasks])
    return MergedTasks(Task(tasks[0].stage, tables), places, rows, numbers)


def divided(seconds: float, rows: Sequence[int]) -> list[float]:
    """A time by the rows of the tasks that ran together."""
    total = sum(rows) + FIXED_ROWS * len(rows)
    return [seconds * (own + FIXED_ROWS) / total for own in rows]


@dataclass(frozen=True)
class MergedNumbers:
    """The numbers that fragments have while their rows are together: a range for each task."""

    fragments: Int64s
    """The fragment behind each number."""
    starts: Int64s
    """Each task's first number."""


def merge(tasks: Sequence[Sequence[pa.Table]]) -> tuple[list[pa.Table], MergedNumbers]:
    """The tables of all tasks as the tables of one."""
    own = [np.unique(np.concatenate([t.column(FRAGMENT).to_numpy() for t in tables])) for tables in tasks]
    starts = np.cumsum([0, *map(len, own[:-1])])
    renumbered = [
        [_with_fragments(t, np.searchsorted(fragments, t.column(FRAGMENT).to_numpy()) + start) for t in tables]
        for tables, fragments, start in zip(tasks, own, starts, strict=True)
    ]
    whole = [_concatenated(tables) for tables in zip(*renumbered, strict=True)]
    return whole, MergedNumbers(np.concatenate(own).astype(np.int64), starts.astype(np.int64))


def separate(result: pa.Table, numbers: MergedNumbers) -> list[pa.Table]:
    """The rows of each task."""
    of_rows = result.column(FRAGMENT).to_numpy()
    owners = np.searchsorted(numbers.starts, of_rows, side="right") - 1
    whole = _with_fragments(result, numbers.fragments[of_rows])
    return sliced(whole, owners, len(numbers.starts))


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, whichever columns may be null."""
    if not all(t.schema.equals(tables[0].schema) for t in tables[1:]):
        tables = [pa.table(t.columns, t.column_names) for t in tables]
    return pa.concat_tables(tables)


def _with_fragments(table: pa.Table, fragments: Int64s) -> pa.Table:
    at = table.column_names.index(FRAGMENT)
    return table.set_column(at, table.schema.field(at), pa.array(fragments.astype(np.int32), pa.int32()))
