"""What of a window aggregate's tuples need not travel to Spark: columns that neither it nor anything below it reads.

Where rows are kept as they are (joins, sequences, count windows) all columns travel; partial aggregates keep none.
In the first of two rounds (see `two_rounds`) most hidden columns need not travel either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.model.expressions.tree import columns
from meander.model.operators import WindowAggregate
from meander.run.execution.rewrites.late_materialisation import needed, with_nothing_else
from meander.run.fragments.template import Stage
from meander.run.operators.time_window import TimeWindow


@dataclass(frozen=True)
class PrunedColumns:
    """A stage with a window aggregate, and for each of its edges the columns that are read."""

    stage: Stage
    needed: tuple[frozenset[str], ...]
    instead: Mapping[str, str] = field(default_factory=dict)
    """Hidden columns that do not travel, with what they are."""

    @staticmethod
    def of(stage: Stage, instead: Mapping[str, str] | None = None) -> PrunedColumns | None:
        """None where everything is read."""
        node = stage.remembering
        if node is None or not isinstance(node.operator, WindowAggregate) or not isinstance(stage.stateful, TimeWindow):
            return None
        computed = (*node.operator.keys, *node.operator.aggregates)
        read = frozenset(name for named in computed for name in columns(named.expression))
        found = needed(stage, node.inputs[0], read, stage.nodes.index(node))
        everything = not instead and all(len(n) == len(s) for n, s in zip(found, stage.schemas, strict=True))
        return None if everything else PrunedColumns(stage, found, instead or {})

    @property
    def schemas(self) -> list[pa.Schema]:
        """The frames that travel."""
        edges = zip(self.stage.frame_schemas, self.stage.schemas, self.needed, strict=False)
        narrow = [
            pa.schema([f for f in frame if f.name in read or f.name not in (*schema.names, *self.instead)])
            for frame, schema, read in edges
        ]
        return [*narrow, *self.stage.frame_schemas[len(narrow) :]]

    def plan(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The stage's plan; what does not travel is nothing there, and nobody looks at it."""
        edges = list(zip(frames, self.stage.schemas, self.needed, strict=False))
        replaced = [f"{value} AS {name}" for name, value in self.instead.items()]
        whole = [
            frame.selectExpr(
                *(name for name in frame.columns if name not in schema.names),
                *replaced,
                *with_nothing_else(schema, read),
            )
            for frame, schema, read in edges
        ]
        return self.stage.plan([*whole, *frames[len(edges) :]])

    def outgoing(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """What travels of the tables."""
        return [table.select(schema.names) for table, schema in zip(tables, self.schemas, strict=True)]

    def whole(self, tables: Sequence[pa.Table], result: pa.Table) -> pa.Table:
        """The result says everything."""
        return result
