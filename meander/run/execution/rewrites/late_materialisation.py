"""Late materialisation: columns that filters and maps only hand on do not go to Spark and back.

Spark gets the columns that predicates and computed columns read, and each row's number instead of its fragment. It
gives back the numbers of the rows that remain with what it computed; the rest is taken from the rows as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from meander.model.operators import Filter, UserFunction, kind_of
from meander.run.execution.rewrites.column_lineage import column_of_each_leaf, needed, origins, with_null_for_others
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
from meander.run.frames import FRAGMENT, HIDDEN, arrow_type, positions


@dataclass(frozen=True)
class LateColumns:
    """The columns of a stage by whether Spark reads, computes or never sees them."""

    stage: Stage
    needed: tuple[frozenset[str], ...]
    """For each leaf the columns that Spark reads."""
    handed_on: Mapping[str, tuple[str, ...]]
    """Output columns that Spark does not make, with the column of each leaf that they are."""

    @staticmethod
    def of(stage: Stage) -> LateColumns | None:
        """Follows every output column back to where it comes from.

        None unless rows are only dropped, handed on and computed from one at a time, so that a row's number is enough.
        """
        if stage.stateful is not None or any(isinstance(n.operator, UserFunction) for n in stage.nodes):
            return None
        last = len(stage.nodes) - 1 if stage.nodes else -1
        handed_on = {}
        for name, found in origins(stage)[last].items():
            own = column_of_each_leaf(stage, found)
            if own is not None:
                handed_on[name] = own
        wanted = frozenset(stage.schema.names) - handed_on.keys()
        return LateColumns(stage, needed(stage, last, wanted), handed_on)

    @cached_property
    def computes_nothing(self) -> bool:
        """Whether every row comes out once and every column is handed on: tuples pass, and nothing has to run."""
        inputs = [i for node in self.stage.nodes for i in node.inputs]
        return (
            not any(isinstance(node.operator, Filter) for node in self.stage.nodes)
            and len(self.handed_on) == len(self.stage.schema)
            and len(set(inputs)) == len(inputs)
        )

    @cached_property
    def computed(self) -> list[str]:
        """Output columns that Spark makes."""
        return [c for c in positions(len(self.stage.schema)) if c not in self.handed_on]

    @cached_property
    def plan(self) -> StagePlan:
        schemas = [
            pa.schema([(FRAGMENT, pa.int32()), *((f.name, arrow_type(f.type)) for f in schema if f.name in needed)])
            for schema, needed in zip(self.stage.schemas, self.needed, strict=True)
        ]
        return StagePlan(self.stage.key, schemas, self._frame)

    def _frame(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The stage's own plan over null in place of what Spark does not read."""
        zeros = [f"0L AS {name}" for name in HIDDEN]
        whole = [
            frame.selectExpr(FRAGMENT, *zeros, *with_null_for_others(schema, needed))
            for frame, schema, needed in zip(frames, self.stage.schemas, self.needed, strict=True)
        ]
        return self.stage.plan(whole).select(FRAGMENT, *self.computed)

    def numbered(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The columns that Spark reads, the rows of all tables numbered through."""
        found, first = [], 0
        for table, schema in zip(tables, self.plan.schemas, strict=True):
            numbers = pa.array(np.arange(first, first + len(table), dtype=np.int32))
            found.append(pa.table([numbers, *(table.column(n) for n in schema.names[1:])], schema=schema))
            first += len(table)
        return found

    def passed(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The tables as they come out of a stage that computes nothing."""
        numbers = np.arange(sum(map(len, tables)), dtype=np.int32)
        return self.materialised(tables, pa.table({FRAGMENT: pa.array(numbers)}))

    def materialised(self, tables: Sequence[pa.Table], result: pa.Table) -> pa.Table:
        """The result with all columns of the rows that its numbers stand for."""
        rows = result.column(FRAGMENT).to_numpy()
        total = sum(map(len, tables))
        all_rows = len(rows) == total and bool((rows == np.arange(total)).all())
        taken = pa.array(rows)

        def rest(names: Sequence[str]) -> pa.ChunkedArray:
            chunks = [c for t, n in zip(tables, names, strict=True) for c in t.column(n).chunks if len(c)]
            column = pa.chunked_array(chunks, tables[0].column(names[0]).type)
            if all_rows:
                return column
            return (column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()).take(taken)

        found = {name: rest([name] * len(tables)) for name in (FRAGMENT, *HIDDEN)}
        for name in positions(len(self.stage.schema)):
            found[name] = rest(self.handed_on[name]) if name in self.handed_on else result.column(name)
        return pa.table(found)


class LateMaterialisation(TaskRewrite[PlanRun]):
    name = "late materialisation"
    about = "Spark gets the columns that filters and maps read; the others are taken from the rows by number."

    def verdict(self, stage: Stage, now: Conditions, names: StageNames = BY_POSITION) -> Verdict:
        late = now.memo.of(LateColumns.of, stage)
        if late is None:
            whole = [n for n in stage.nodes if n is stage.remembering or isinstance(n.operator, UserFunction)]
            return Verdict(False, f"the {kind_of(whole[0].operator)} makes other rows")
        if late.computes_nothing:
            return Verdict(True, "no row is dropped and no column computed: tuples pass, and no plan runs")
        edges = enumerate(zip(stage.schemas, late.needed, strict=True))
        read = dict.fromkeys(names.leaf(i, c) for i, (schema, own) in edges for c in schema.names if c in own)
        given = [f"Spark reads {', '.join(read) or 'row numbers'}"]
        given += [f"computes {', '.join(map(names.output, late.computed))}"] if late.computed else []
        handed_on = ", ".join(names.output(c) for c in positions(len(stage.schema)) if c in late.handed_on)
        return Verdict(True, " and ".join(given) + (f"; {handed_on} are taken by row number" if handed_on else ""))

    def rewrite_task(self, task: PlanRun, now: Conditions) -> TaskSteps[PlanRun] | None:
        late = now.memo.of(LateColumns.of, task.stage)
        return None if late is None else self._steps(late, task)

    @staticmethod
    def _steps(late: LateColumns, task: PlanRun) -> TaskSteps[PlanRun]:
        if late.computes_nothing:
            return late.passed(task.tables)
        (result,) = yield [task._replace(tables=late.numbered(task.tables), plan=late.plan)]
        return late.materialised(task.tables, result)


def needs_no_plan(stage: Stage, now: Conditions) -> bool:
    """Whether tuples only pass through the stage."""
    late = now.memo.of(LateColumns.of, stage)
    return late is not None and late.computes_nothing
