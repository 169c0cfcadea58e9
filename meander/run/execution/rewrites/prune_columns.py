"""Prune columns: what neither a window aggregate nor anything below it reads does not go to Spark.

Where rows are kept as they are (joins, sequences, count windows) all columns go; partial aggregates keep none. Partial
aggregation of plain rows has a plan of its own, to which hidden columns that follow from others do not go either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.model.expressions.tree import columns
from meander.model.operators import WindowAggregate, kind_of
from meander.run.execution.rewrites.column_lineage import needed, with_null_for_others
from meander.run.execution.rewrites.rewrite import (
    BY_POSITION,
    Conditions,
    PlanRun,
    StageNames,
    StagePlan,
    TaskRewrite,
    TaskSteps,
    Verdict,
)
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BEGIN, NEWEST, TS, WM
from meander.run.operators.time_window import TimeWindow

PLAIN = {WM: f"{BEGIN}L", NEWEST: TS, AFTER: f"{BEGIN}L"}
"""Hidden columns of plain rows in partial aggregation, as they follow from the others."""

PLAIN_ROWS = ", plain rows"
"""Ends the key of a plan over such rows."""


@dataclass(frozen=True)
class PrunedColumns:
    """A stage with a window aggregate, and for each of its edges the columns that are read."""

    stage: Stage
    needed: tuple[frozenset[str], ...]
    derived: Mapping[str, str] = field(default_factory=dict)
    """Hidden columns that Spark computes from others, with the expressions."""

    @staticmethod
    def of(stage: Stage, derived: Mapping[str, str] | None = None) -> PrunedColumns | None:
        """None where everything is read, or may be."""
        node = stage.remembering
        if node is None or not isinstance(node.operator, WindowAggregate) or not isinstance(stage.stateful, TimeWindow):
            return None
        computed = (*node.operator.keys, *node.operator.aggregates)
        read = frozenset(name for named in computed for name in columns(named.expression))
        found = needed(stage, node.inputs[0], read, stage.nodes.index(node))
        everything = not derived and all(len(n) == len(s) for n, s in zip(found, stage.schemas, strict=True))
        return None if everything else PrunedColumns(stage, found, derived or {})

    @cached_property
    def plan(self) -> StagePlan:
        edges = zip(self.stage.frame_schemas, self.stage.schemas, self.needed, strict=False)
        pruned = [
            pa.schema([f for f in frame if f.name in read or f.name not in (*schema.names, *self.derived)])
            for frame, schema, read in edges
        ]
        schemas = [*pruned, *self.stage.frame_schemas[len(pruned) :]]
        return StagePlan(self.stage.key + (PLAIN_ROWS if self.derived else ""), schemas, self._frame)

    def _frame(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The stage's own plan over null in place of what nothing reads."""
        edges = list(zip(frames, self.stage.schemas, self.needed, strict=False))
        derived = [f"{value} AS {name}" for name, value in self.derived.items()]
        whole = [
            frame.selectExpr(
                *(name for name in frame.columns if name not in schema.names),
                *derived,
                *with_null_for_others(schema, read),
            )
            for frame, schema, read in edges
        ]
        return self.stage.plan([*whole, *frames[len(edges) :]])

    def pruned(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The columns of the tables that are read."""
        return [table.select(schema.names) for table, schema in zip(tables, self.plan.schemas, strict=True)]


def _of_plain_rows(stage: Stage) -> PrunedColumns | None:
    return PrunedColumns.of(stage, PLAIN)


class PruneColumns(TaskRewrite[PlanRun]):
    name = "prune columns"
    about = "Spark gets the columns that a window aggregate and the operators below it read."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        node = stage.remembering
        if node is None:
            return Verdict(False, "there is no window aggregate")
        if not isinstance(stage.stateful, TimeWindow):
            is_aggregate = isinstance(node.operator, WindowAggregate)
            return Verdict(
                False,
                "the windows have no fixed length" if is_aggregate else f"the {kind_of(node.operator)} keeps rows",
            )
        pruned = now.memo.of(PrunedColumns.of, stage)
        if pruned is None:
            return Verdict(False, "all columns are read")
        edges = [(i, s.names, read) for i, (s, read) in enumerate(zip(stage.schemas, pruned.needed, strict=True))]
        read = dict.fromkeys(names.leaf(i, c) for i, all_, own in edges for c in all_ if c in own)
        left = dict.fromkeys(names.leaf(i, c) for i, all_, own in edges for c in all_ if c not in own)
        return Verdict(True, f"Spark reads {', '.join(read) or 'no column'}; nothing reads {', '.join(left)}")

    def rewrite_task(self, task: PlanRun, now: Conditions) -> TaskSteps[PlanRun] | None:
        pruned = now.memo.of(_of_plain_rows if task.plain_rows else PrunedColumns.of, task.stage)
        return None if pruned is None else self._steps(pruned, task)

    @staticmethod
    def _steps(pruned: PrunedColumns, task: PlanRun) -> TaskSteps[PlanRun]:
        (result,) = yield [task._replace(tables=pruned.pruned(task.tables), plan=pruned.plan)]
        return result
