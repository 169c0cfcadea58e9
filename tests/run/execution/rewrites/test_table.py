"""The table of rewrites: its order, its words, and how tasks go through it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.run.execution.rewrites import BATCH, COLUMNS, READINESS, REWRITES, ROUND
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    Conditions,
    Rewrite,
    StageMemo,
    StageNames,
    TaskRewrite,
    TaskSteps,
    Verdict,
    walk,
)
from meander.run.execution.runner import Ran, Task
from meander.run.fragments.template import Stage
from tests.run.execution.tasks import FAST, stage_of

PAGE = Path(__file__).parents[4] / "docs" / "concepts" / "data-plane.md"
NOW = Conditions(cores=1)


def test_each_rewrite_is_in_the_table_once_with_a_name_and_a_sentence() -> None:
    assert (*READINESS, *ROUND, *BATCH, *COLUMNS) == REWRITES
    assert {type(rewrite) for rewrite in REWRITES} == _concrete(Rewrite)
    assert len({rewrite.name for rewrite in REWRITES}) == len(REWRITES)
    assert all(re.fullmatch(r"[A-Z][^.]*\.", rewrite.about) for rewrite in REWRITES)


def test_each_rewrite_has_a_module_and_a_test_module() -> None:
    modules = [type(rewrite).__module__.rsplit(".", 1)[1] for rewrite in REWRITES]
    assert len(set(modules)) == len(REWRITES)
    assert all((Path(__file__).parent / f"test_{module}.py").is_file() for module in modules)


def test_the_page_about_the_data_plane_has_the_table_in_its_order() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [
        f"| {number} | {rewrite.name} | {rewrite.about.rstrip('.')} |" for number, rewrite in enumerate(REWRITES, 1)
    ]
    found = [text.find(row) for row in rows]
    assert -1 not in found, rows[found.index(-1)]
    assert found == sorted(found)


def _concrete(kind: Any) -> set[Any]:
    below = {c for child in kind.__subclasses__() for c in _concrete(child)}
    return below | ({kind} if not kind.__abstractmethods__ and kind.__module__.startswith("meander.") else set())


class Twice(TaskRewrite[Task]):
    """Runs tasks of more than `least` rows in two halves, one after the other."""

    name, about = "twice", "For tests."

    def __init__(self, least: int) -> None:
        self.least = least

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        return Verdict(True, "always", from_rows=self.least + 1)

    def rewrite_task(self, task: Task, now: Conditions) -> TaskSteps[Task] | None:
        return self._steps(task) if task.rows > self.least else None

    @staticmethod
    def _steps(task: Task) -> TaskSteps[Task]:
        (table,) = task.tables
        half = len(table) // 2
        (first,) = yield [Task(task.stage, [table.slice(0, half)])]
        (second,) = yield [Task(task.stage, [table.slice(half)])]
        return pa.concat_tables([first, second])


def numbers(count: int) -> Task:
    return Task(stage_of(FAST), [pa.table({"n": list(range(count))})])


@pytest.mark.parametrize("counts", [[5], [1], [2, 8, 3], []])
def test_tasks_go_from_rewrite_to_rewrite_and_get_their_own_results(counts: Sequence[int]) -> None:
    rounds: list[list[int]] = []

    def execute(tasks: Sequence[Task]) -> list[Ran]:
        rounds.append([task.rows for task in tasks])
        return [Ran(task.tables[0], 1.0) for task in tasks]

    tasks = [numbers(count) for count in counts]
    ran = walk([Twice(4), Twice(2)], tasks, NOW, execute)
    assert [each.result.column("n").to_pylist() for each in ran] == [list(range(count)) for count in counts]
    if counts == [5]:
        assert rounds == [[2], [1], [2]]  # 2 and 3 rows, of which 3 are halved again
    if counts == [2, 8, 3]:
        assert rounds == [[2, 2, 1], [2, 2], [2], [2]]
        assert [each.seconds for each in ran] == [1, 4, 2]


def test_what_is_worked_out_about_a_stage_is_remembered_until_it_is_forgotten() -> None:
    memo, asked = StageMemo(), list[str]()

    def work_out(stage: Stage) -> int:
        asked.append(stage.key)
        return len(stage.nodes)

    assert [memo.of(work_out, stage_of(FAST)) for _ in range(3)] == [2, 2, 2]
    assert asked == list(memo.keys) == [stage_of(FAST).key]
    memo.forget(stage_of(FAST).key)
    assert not memo.keys
    memo.of(work_out, stage_of(FAST))
    assert len(asked) == 2
