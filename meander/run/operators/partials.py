"""Aggregates as partial results that can be merged in any order and grouping.

Each aggregate is a few partial columns: how one tuple starts them, how two are merged, how the result is read off.
State then is one row for each group instead of the tuples, and the result must be the same however the input was cut
into steps. For that, sums are exact: a double is added as whole numbers (its integer part and 64 bits of fraction), so
that the order of additions cannot show. `first` and `last` go by event time, then by value. `approx_count_distinct`
keeps the smallest hashes, which is a property of the set alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from meander.model.expressions import Call, Literal
from meander.model.operators import WindowAggregate
from meander.model.schema import DataType, Kind
from meander.run.expressions import spark_sql, type_text, typed
from meander.run.frames import TS, arrow_type
from meander.run.operators.state import StateColumn

HASHES = 1024
"""Hashes kept for a distinct count: exact below, about 3 % standard error above."""

_TWO_32, _TWO_63 = 2**32, 2**63


@dataclass(frozen=True)
class Partial:
    """One partial column: from a tuple, merged over a column `{0}`."""

    spark: str
    arrow: pa.DataType
    init: str
    merge: str = "sum({0})"


@dataclass(frozen=True)
class Recipe:
    """An aggregate: its partials, and the result over their merged columns `{0}`, `{1}`, ..."""

    partials: tuple[Partial, ...]
    finish: str


def _long(init: str, merge: str = "sum({0})") -> Partial:
    return Partial("BIGINT", pa.int64(), init, merge)


def _count(arg: str | None) -> Recipe:
    init = "1L" if arg is None else f"CASE WHEN {arg} IS NULL THEN 0L ELSE 1L END"
    return Recipe((_long(init),), "{0}")


def _whole(arg: str) -> tuple[tuple[Partial, ...], str]:
    """A sum of longs as upper and lower halves, which no order of additions can overflow; the text gives a decimal."""
    halves = (_long(f"shiftright({arg}, 32)"), _long(f"({arg} & {_TWO_32 - 1}L)"))
    return halves, f"(CAST({{0}} AS DECIMAL(20, 0)) * {_TWO_32}BD + CAST({{1}} AS DECIMAL(20, 0)))"


def _exact(value: str) -> Recipe:
    """The sum of doubles, independent of their order: integer part, two digits of 32 bits behind the point.

    Values from 2^63 on, infinities and NaN are added as doubles.
    """
    inside = f"abs({value}) < {_TWO_63}D"
    safe = f"(CASE WHEN {inside} THEN {value} WHEN {value} IS NOT NULL THEN 0D END)"
    integer = f"CAST({safe} AS BIGINT)"
    digit = f"({safe} - {integer}) * {_TWO_32}D"
    halves, whole = _whole(integer)
    partials = (
        *halves,
        _long(f"CAST({digit} AS BIGINT)"),
        _long(f"CAST(({digit} - CAST({digit} AS BIGINT)) * {_TWO_32}D AS BIGINT)"),
        Partial("DOUBLE", pa.float64(), f"CASE WHEN NOT {inside} THEN {value} END"),
    )
    fraction = f"(CAST({{2}} AS DOUBLE) + CAST({{3}} AS DOUBLE) / {_TWO_32}D) / {_TWO_32}D"
    return Recipe(partials, f"(CAST({whole} AS DOUBLE) + {fraction} + coalesce({{4}}, 0D))")


def _sum(arg: str, type_: DataType) -> Recipe:
    if type_.kind is Kind.INT:
        return Recipe((_long(f"CAST({arg} AS BIGINT)"),), "{0}")
    if type_.kind is Kind.BIGINT:
        halves, whole = _whole(arg)
        return Recipe(halves, f"try_cast({whole} AS BIGINT)")
    return _exact(f"CAST({arg} AS DOUBLE)")


def _avg(arg: str, type_: DataType) -> Recipe:
    if type_.kind is Kind.BIGINT:
        halves, whole = _whole(arg)
        total = Recipe(halves, f"CAST({whole} AS DOUBLE)")
    else:
        total = _sum(arg, type_)
    return Recipe((*total.partials, *_count(arg).partials), f"({total.finish} / nullif({{{len(total.partials)}}}, 0))")


def _stddev(arg: str, type_: DataType) -> Recipe:
    """The sample's, from count, sum and sum of squares."""
    value = f"CAST({arg} AS DOUBLE)"
    total, squares = _exact(value), _exact(f"({value} * {value})")
    width = len(total.partials)
    square_sum = squares.finish.format(*(f"{{{width + i}}}" for i in range(width)))
    n = f"{{{2 * width}}}"
    spread = f"{square_sum} - {total.finish} * {total.finish} / {n}"
    finish = f"CASE WHEN {n} > 1 THEN sqrt(greatest(0D, ({spread}) / ({n} - 1))) END"
    return Recipe((*total.partials, *squares.partials, *_count(arg).partials), finish)


def _extreme(function: str) -> Callable[[str, DataType], Recipe]:
    def recipe(arg: str, type_: DataType) -> Recipe:
        return Recipe((Partial(type_text(type_), arrow_type(type_), arg, f"{function}({{0}})"),), "{0}")

    return recipe


def _by_time(function: str) -> Callable[[str, DataType], Recipe]:
    def recipe(arg: str, type_: DataType) -> Recipe:
        spark = f"STRUCT<t: BIGINT, v: {type_text(type_)}>"
        arrow = pa.struct([("t", pa.int64()), ("v", arrow_type(type_))])
        init = f"named_struct('t', {TS}, 'v', {arg})"
        return Recipe((Partial(spark, arrow, init, f"{function}({{0}})"),), "{0}.v")

    return recipe


def _top(arg: str, type_: DataType, k: int) -> Recipe:
    element = DataType(Kind.ARRAY, type_)
    init = f"CASE WHEN {arg} IS NOT NULL THEN array({arg}) END"
    merge = f"slice(sort_array(flatten(collect_list({{0}})), false), 1, {k})"
    return Recipe((Partial(type_text(element), arrow_type(element), init, merge),), "{0}")


def _distinct(arg: str, type_: DataType) -> Recipe:
    """The smallest hashes of the values: how dense they lie tells how many there are."""
    normal = f"({arg} + CAST(0 AS {type_text(type_)}))" if type_.kind in (Kind.FLOAT, Kind.DOUBLE) else arg
    init = f"CASE WHEN {arg} IS NOT NULL THEN array(xxhash64({normal})) END"
    merge = f"slice(sort_array(array_distinct(flatten(collect_list({{0}})))), 1, {HASHES})"
    share = f"(CAST(try_element_at({{0}}, {HASHES}) AS DOUBLE) + {_TWO_63}D) / {2 * _TWO_63}D"
    dense = f"CAST(round({HASHES - 1}D / ({share})) AS BIGINT)"
    finish = f"CASE WHEN size({{0}}) < {HASHES} THEN CAST(size({{0}}) AS BIGINT) ELSE {dense} END"
    return Recipe((Partial("ARRAY<BIGINT>", pa.list_(pa.int64()), init, merge),), finish)


RECIPES: dict[str, Callable[[str, DataType], Recipe]] = {
    "count": lambda arg, type_: _count(arg),
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


def recipe_of(call: Call, arg: str | None) -> Recipe:
    """The recipe of an aggregate whose argument is the column `arg`."""
    if arg is None:
        return _count(None)
    if call.function == "top_k":
        k = call.args[1]
        assert isinstance(k, Literal)
        assert isinstance(k.value, int)
        return _top(arg, call.args[0].type, k.value)
    return RECIPES[call.function](arg, call.args[0].type)


@dataclass
class Aggregation:
    """The keys and aggregates of an operator as columns: keys `k0`.., arguments `a0`.., partials `p0`.. ."""

    operator: WindowAggregate
    keys: tuple[str, ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    partials: dict[Partial, str] = field(default_factory=dict)
    finishes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = tuple(f"k{i}" for i in range(len(self.operator.keys)))
        for named in self.operator.aggregates:
            call = named.expression
            assert isinstance(call, Call)
            recipe = recipe_of(call, self._argument(call) if call.args else None)
            columns = [self.partials.setdefault(p, f"p{len(self.partials)}") for p in recipe.partials]
            self.finishes.append(f"CAST({recipe.finish.format(*columns)} AS {type_text(call.type)})")

    def _argument(self, call: Call) -> str:
        return self.arguments.setdefault(spark_sql(call.args[0]), f"a{len(self.arguments)}")

    def read(self) -> list[str]:
        """Select items: keys and arguments from the input's columns."""
        keys = [f"{typed(k.expression)} AS {name}" for k, name in zip(self.operator.keys, self.keys, strict=True)]
        return [*keys, *(f"{text} AS {name}" for text, name in self.arguments.items())]

    def started(self) -> list[str]:
        """Select items: the partials of one tuple from its arguments."""
        return [f"CAST({p.init} AS {p.spark}) AS {name}" for p, name in self.partials.items()]

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
