"""Aggregates as partial results that can be merged in any order and grouping.

Each aggregate is a few partial columns (see `recipes`): how one tuple starts them, how two are merged, how the result
is read off. State then is one row for each group instead of the tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from meander.model.expressions.tree import Call, Column, Expression
from meander.model.operators import WindowAggregate
from meander.run.expressions import spark_sql, type_text, typed
from meander.run.frames import arrow_type
from meander.run.operators.exact import Lets
from meander.run.operators.recipes import Partial, recipe_of, values_of
from meander.run.operators.state import Cut, StateColumn


@dataclass
class Aggregation:
    """The keys and aggregates of an operator as columns: keys `k0`.., arguments `a0`.., partials `p0`.. ."""

    operator: WindowAggregate
    keys: tuple[str, ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    partials: dict[Partial, str] = field(default_factory=dict)
    finishes: list[str] = field(default_factory=list)
    lets: Lets = field(default_factory=Lets)

    def __post_init__(self) -> None:
        self.keys = tuple(f"k{i}" for i in range(len(self.operator.keys)))
        for named in self.operator.aggregates:
            call = named.expression
            assert isinstance(call, Call)
            recipe = recipe_of(call, self.columns_of(call), self.lets)
            columns = [self.partials.setdefault(p, f"p{len(self.partials)}") for p in recipe.partials]
            self.finishes.append(f"CAST({recipe.finish(columns)} AS {type_text(call.type)})")

    def columns_of(self, call: Call) -> list[str]:
        """The argument columns that an aggregate reads."""
        return [self.arguments.setdefault(spark_sql(a), f"a{len(self.arguments)}") for a in values_of(call)]

    def read(self) -> list[str]:
        """Select items: keys and arguments from the input's columns."""
        keys = [f"{typed(k.expression)} AS {name}" for k, name in zip(self.operator.keys, self.keys, strict=True)]
        return [*keys, *(f"{text} AS {name}" for text, name in self.arguments.items())]

    def started(self, rows: DataFrame, *others: str) -> DataFrame:
        """Rows with keys and arguments as partials of one tuple each; other columns come first, then the keys."""
        for layer in self.lets.layers:
            rows = rows.selectExpr("*", *layer)
        partials = (f"CAST({p.init} AS {p.spark}) AS {name}" for p, name in self.partials.items())
        return rows.selectExpr(*others, *self.keys, *partials)

    def merged(self) -> list[str]:
        """Aggregate items: the partials of a group."""
        return [f"{p.merge.format(name)} AS {name}" for p, name in self.partials.items()]

    def results(self, closed: str, start: str, end: str) -> list[str]:
        """Select items: the output columns of groups for which `closed` is true, nulls for others."""
        values = [f"timestamp_millis({start})", f"timestamp_millis({end})", *self.keys, *self.finishes]
        return [f"CASE WHEN {closed} THEN {v} END AS c{i}" for i, v in enumerate(values)]

    def key_columns(self) -> list[StateColumn]:
        return [
            StateColumn(name, type_text(k.expression.type), arrow_type(k.expression.type))
            for k, name in zip(self.operator.keys, self.keys, strict=True)
        ]

    def cut_by(self, tables: int) -> Cut | None:
        """The first key that is a column of the input as it is, which every one of the state tables has as well."""
        for key, name in zip(self.operator.keys, self.keys, strict=True):
            if isinstance(key.expression, Column):
                return Cut((key.expression.name,), (name,) * tables)
        return None

    def partial_columns(self) -> list[StateColumn]:
        return [StateColumn(name, p.spark, p.arrow) for p, name in self.partials.items()]

    def argument_columns(self) -> list[StateColumn]:
        types = {spark_sql(value): value.type for value in self._values()}
        return [
            StateColumn(name, type_text(types[text]), arrow_type(types[text])) for text, name in self.arguments.items()
        ]

    def _values(self) -> Iterable[Expression]:
        calls = (a.expression for a in self.operator.aggregates if isinstance(a.expression, Call))
        return (value for call in calls for value in values_of(call))


def kept(columns: Iterable[StateColumn], is_kept: str) -> list[str]:
    """Select items: state columns of rows for which the condition is true, nulls for others."""
    return [f"CASE WHEN {is_kept} THEN {c.name} END AS {c.name}" for c in columns]
