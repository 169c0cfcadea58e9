"""Aggregates as partial results that can be merged in any order and grouping.

Each aggregate is a few partial columns: how one tuple starts them, how two are merged, how the result is read off.
State then is one row for each group instead of the tuples, and the result must be the same however the input was cut
into steps. For that, sums are exact (see `exact`), so that the order of additions cannot show. `first` and `last` go by
event time, then by value. `approx_count_distinct` keeps the smallest hashes, which is a property of the set alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from meander.model.expressions.tree import Call, Column, Literal
from meander.model.operators import WindowAggregate
from meander.model.schema import DataType, Kind
from meander.run.expressions import spark_sql, type_text, typed
from meander.run.frames import TS, arrow_type
from meander.run.operators.exact import Lets, deviation, digits, double_sum, halves, whole_sum
from meander.run.operators.state import Cut, StateColumn

HASHES = 1024
"""Hashes kept for a distinct count: exact below, about 3 % standard error above."""

_TWO_63 = 2**63


@dataclass(frozen=True)
class Partial:
    """One partial column: from a tuple, merged over a column `{0}`."""

    spark: str
    arrow: pa.DataType
    init: str
    merge: str = "sum({0})"


@dataclass(frozen=True)
class Recipe:
    """An aggregate: its partials, and the result over the names of their merged columns."""

    partials: tuple[Partial, ...]
    finish: Callable[[list[str]], str]


def _long(init: str) -> Partial:
    return Partial("BIGINT", pa.int64(), init)


def _double(init: str) -> Partial:
    return Partial("DOUBLE", pa.float64(), init)


def _first(columns: list[str]) -> str:
    return columns[0]


def _count(arg: str | None) -> Recipe:
    init = "1L" if arg is None else f"CASE WHEN {arg} IS NULL THEN 0L ELSE 1L END"
    return Recipe((_long(init),), _first)


def _sum(arg: str, type_: DataType, lets: Lets) -> Recipe:
    if type_.kind is Kind.INT:
        return Recipe((_long(f"CAST({arg} AS BIGINT)"),), _first)
    if type_.kind is Kind.BIGINT:
        return Recipe(tuple(map(_long, halves(arg))), lambda columns: f"try_cast({whole_sum(columns)} AS BIGINT)")
    return _doubles(arg, lets)


def _doubles(arg: str, lets: Lets) -> Recipe:
    *longs, rest = digits(lets, f"CAST({arg} AS DOUBLE)")
    return Recipe((*map(_long, longs), _double(rest)), double_sum)


def _avg(arg: str, type_: DataType, lets: Lets) -> Recipe:
    total = _sum(arg, type_, lets)
    if type_.kind is Kind.BIGINT:
        total = Recipe(total.partials, lambda columns: f"CAST({whole_sum(columns)} AS DOUBLE)")
    return Recipe(
        (*total.partials, *_count(arg).partials),
        lambda columns: f"({total.finish(columns[:-1])} / nullif({columns[-1]}, 0))",
    )


def _stddev(arg: str, type_: DataType, lets: Lets) -> Recipe:
    """The sample's, from count, sum and sum of squares; null for fewer than two values."""
    *longs, rest = digits(lets, f"CAST({arg} AS DOUBLE)")
    *squares, big = digits(lets, f"CAST({arg} AS DOUBLE)", squared=True)
    partials = (*map(_long, longs), _double(rest), *map(_long, squares), _double(big), *_count(arg).partials)
    width = len(longs) + 1
    return Recipe(partials, lambda c: deviation(c[-1], c[:width], c[width:-1]))


def _extreme(function: str) -> Callable[[str, DataType, Lets], Recipe]:
    def recipe(arg: str, type_: DataType, lets: Lets) -> Recipe:
        return Recipe((Partial(type_text(type_), arrow_type(type_), arg, f"{function}({{0}})"),), _first)

    return recipe


def _by_time(function: str) -> Callable[[str, DataType, Lets], Recipe]:
    def recipe(arg: str, type_: DataType, lets: Lets) -> Recipe:
        spark = f"STRUCT<t: BIGINT, v: {type_text(type_)}>"
        arrow = pa.struct([("t", pa.int64()), ("v", arrow_type(type_))])
        init = f"named_struct('t', {TS}, 'v', {arg})"
        return Recipe((Partial(spark, arrow, init, f"{function}({{0}})"),), lambda columns: f"{columns[0]}.v")

    return recipe


def _top(arg: str, type_: DataType, k: int) -> Recipe:
    element = DataType(Kind.ARRAY, type_)
    init = f"CASE WHEN {arg} IS NOT NULL THEN array({arg}) END"
    merge = f"slice(sort_array(flatten(collect_list({{0}})), false), 1, {k})"
    return Recipe((Partial(type_text(element), arrow_type(element), init, merge),), _first)


def _distinct(arg: str, type_: DataType, lets: Lets) -> Recipe:
    """The smallest hashes of the values: how dense they lie tells how many there are."""
    normal = f"({arg} + CAST(0 AS {type_text(type_)}))" if type_.kind in (Kind.FLOAT, Kind.DOUBLE) else arg
    init = f"CASE WHEN {arg} IS NOT NULL THEN array(xxhash64({normal})) END"
    merge = f"slice(sort_array(array_distinct(flatten(collect_list({{0}})))), 1, {HASHES})"
    return Recipe((Partial("ARRAY<BIGINT>", pa.list_(pa.int64()), init, merge),), _estimated)


def _estimated(columns: list[str]) -> str:
    hashes = columns[0]
    share = f"((CAST(try_element_at({hashes}, {HASHES}) AS DOUBLE) + {_TWO_63}D) / {2 * _TWO_63}D)"
    dense = f"CAST(round({HASHES - 1}D / {share}) AS BIGINT)"
    return f"CASE WHEN size({hashes}) < {HASHES} THEN CAST(size({hashes}) AS BIGINT) ELSE {dense} END"


RECIPES: dict[str, Callable[[str, DataType, Lets], Recipe]] = {
    "count": lambda arg, type_, lets: _count(arg),
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "stddev": _stddev,
    "approx_count_distinct": _distinct,
    "first": _by_time("min"),
    "last": _by_time("max"),
}
"""Aggregates of one argument; `count(*)` and `top_k` are told apart by `recipe_of`."""


def recipe_of(call: Call, arg: str | None, lets: Lets) -> Recipe:
    """The recipe of an aggregate whose argument is the column `arg`."""
    if arg is None:
        return _count(None)
    if call.function == "top_k":
        k = call.args[1]
        assert isinstance(k, Literal)
        assert isinstance(k.value, int)
        return _top(arg, call.args[0].type, k.value)
    return RECIPES[call.function](arg, call.args[0].type, lets)


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
            recipe = recipe_of(call, self._argument(call) if call.args else None, self.lets)
            columns = [self.partials.setdefault(p, f"p{len(self.partials)}") for p in recipe.partials]
            self.finishes.append(f"CAST({recipe.finish(columns)} AS {type_text(call.type)})")

    def _argument(self, call: Call) -> str:
        return self.arguments.setdefault(spark_sql(call.args[0]), f"a{len(self.arguments)}")

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
        types = {spark_sql(c.args[0]): c.args[0].type for c in self._calls() if c.args}
        return [
            StateColumn(name, type_text(types[text]), arrow_type(types[text])) for text, name in self.arguments.items()
        ]

    def _calls(self) -> Iterable[Call]:
        return (a.expression for a in self.operator.aggregates if isinstance(a.expression, Call))


def kept(columns: Iterable[StateColumn], is_kept: str) -> list[str]:
    """Select items: state columns of rows for which the condition is true, nulls for others."""
    return [f"CASE WHEN {is_kept} THEN {c.name} END AS {c.name}" for c in columns]
