"""Twins: tasks of one step whose stages have the same plan run as one.

A plan costs the same for one stage or for eight, so their rows are put together as if every twin's fragments were
fragments of their own: they get other numbers for the job, and their own ones back in its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.run.channels.base import Int64s
from meander.run.execution.runner import Ran, Task
from meander.run.frames import FRAGMENT, sliced

FIXED_ROWS = 200
"""What a task takes however few rows it has, in rows: how time is shared out among those that ran together."""


@dataclass(frozen=True)
class MergedTasks:
    """Tasks with the same plan, by their place among all, as one task."""

    task: Task
    places: tuple[int, ...]
    rows: tuple[int, ...]
    numbers: MergedNumbers | None = None

    def apart(self, ran: Ran) -> dict[int, Ran]:
        """What each task gives, by its place."""
        results = [ran.result] if self.numbers is None else apart(ran.result, self.numbers)
        seconds = shared_out(ran.seconds, self.rows)
        return {place: Ran(*each) for place, *each in zip(self.places, results, seconds, strict=True)}


def twins_of(tasks: Sequence[Task]) -> list[MergedTasks]:
    """Tasks by their plans."""
    places: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        places.setdefault(task.stage.key, []).append(place)
    return [_twins([tasks[place] for place in group], tuple(group)) for group in places.values()]


def _twins(tasks: Sequence[Task], places: tuple[int, ...]) -> MergedTasks:
    rows = tuple(task.rows for task in tasks)
    if len(tasks) == 1:
        return MergedTasks(tasks[0], places, rows)
    tables, numbers = together([task.tables for task in tasks])
    return MergedTasks(Task(tasks[0].stage, tables), places, rows, numbers)


def shared_out(seconds: float, rows: Sequence[int]) -> list[float]:
    """A time as the shares of tasks that ran together, by their rows."""
    total = sum(rows) + FIXED_ROWS * len(rows)
    return [seconds * (own + FIXED_ROWS) / total for own in rows]


@dataclass(frozen=True)
class MergedNumbers:
    """The numbers that fragments have while their rows are together: a range for each twin."""

    fragments: Int64s
    """The fragment behind each number."""
    starts: Int64s
    """Each twin's first number."""


def together(twins: Sequence[Sequence[pa.Table]]) -> tuple[list[pa.Table], MergedNumbers]:
    """The tables of all twins as the tables of one stage."""
    own = [np.unique(np.concatenate([t.column(FRAGMENT).to_numpy() for t in tables])) for tables in twins]
    starts = np.cumsum([0, *map(len, own[:-1])])
    renumbered = [
        [_with_fragments(t, np.searchsorted(fragments, t.column(FRAGMENT).to_numpy()) + start) for t in tables]
        for tables, fragments, start in zip(twins, own, starts, strict=True)
    ]
    whole = [_concatenated(tables) for tables in zip(*renumbered, strict=True)]
    return whole, MergedNumbers(np.concatenate(own).astype(np.int64), starts.astype(np.int64))


def apart(result: pa.Table, numbers: MergedNumbers) -> list[pa.Table]:
    """What belongs to each twin."""
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
