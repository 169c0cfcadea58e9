"""Aggregates as recipes: the partial columns of each, how they are merged, and how the result is read off.

The result must be the same however the input was cut into steps. For that, sums are exact (see `exact`), so that the
order of additions cannot show. `first` and `last` go by event time, then by value; `min_by` and `max_by` by the second
value, then by the first. `approx_count_distinct` keeps the smallest hashes, which is a property of the set alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from meander.model.expressions.aggregates import BOUNDED, VALUES
from meander.model.expressions.tree import Call, Expression, Literal
from meander.model.schema import DOUBLE, DataType, Kind
from meander.run.expressions import type_text
from meander.run.frames import TS, arrow_type
from meander.run.operators.exact import Lets, deviation, digits, double_sum, halves, variance, whole_sum

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


def _deviation(finish: Callable[[str, list[str], list[str]], str]) -> Callable[[str, DataType, Lets], Recipe]:
    """Deviations and variances, from count, sum and sum of squares."""

    def recipe(arg: str, type_: DataType, lets: Lets) -> Recipe:
        return _squared(arg, lets, finish)

    return recipe


def _squared(arg: str, lets: Lets, finish: Callable[[str, list[str], list[str]], str]) -> Recipe:
    *longs, rest = digits(lets, f"CAST({arg} AS DOUBLE)")
    *squares, big = digits(lets, f"CAST({arg} AS DOUBLE)", squared=True)
    partials = (*map(_long, longs), _double(rest), *map(_long, squares), _double(big), *_count(arg).partials)
    width = len(longs) + 1
    return Recipe(partials, lambda c: finish(c[-1], c[:width], c[width:-1]))


def _merged_by(function: str) -> Callable[[str, DataType, Lets], Recipe]:
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


def _top_by(largest: bool, value: str, value_type: DataType, order: str, order_type: DataType, k: int) -> Recipe:
    """The values beside the k largest or smallest orders, in that order; among equals by the value."""
    spark = f"ARRAY<STRUCT<o: {type_text(order_type)}, v: {type_text(value_type)}>>"
    arrow = pa.list_(pa.struct([("o", arrow_type(order_type)), ("v", arrow_type(value_type))]))
    pair = f"named_struct('o', {_normal(order, order_type)}, 'v', {value})"
    init = f"CASE WHEN {order} IS NOT NULL THEN array({pair}) END"
    merge = f"slice(sort_array(flatten(collect_list({{0}})), {str(not largest).lower()}), 1, {k})"
    return Recipe((Partial(spark, arrow, init, merge),), lambda columns: f"transform({columns[0]}, x -> x.v)")


def _percentile(arg: str, share: float) -> Recipe:
    """Between the two values whose ranks enclose the share, as Spark's `percentile`."""
    init = f"CASE WHEN {arg} IS NOT NULL THEN array({_normal(f'CAST({arg} AS DOUBLE)', DOUBLE)}) END"
    partial = Partial("ARRAY<DOUBLE>", pa.list_(pa.float64()), init, "sort_array(flatten(collect_list({0})))")

    def finish(columns: list[str]) -> str:
        (values,) = columns
        place = f"((size({values}) - 1) * {share!r}D)"
        low, high = (f"{values}[CAST({side}({place}) AS INT)]" for side in ("floor", "ceil"))
        between = f"(ceil({place}) - {place}) * {low} + ({place} - floor({place})) * {high}"
        return f"CASE WHEN size({values}) = 0 THEN NULL WHEN {low} = {high} THEN {low} ELSE {between} END"

    return Recipe((partial,), finish)


def _sum_distinct(arg: str, type_: DataType, lets: Lets) -> Recipe:
    """The sum of the different values, smallest first."""
    found = _set(arg, type_, None)
    zero, total = ("CAST(0 AS DECIMAL(38, 0))", "BIGINT") if type_.is_integral else ("0D", "DOUBLE")
    kind = "DECIMAL(38, 0)" if type_.is_integral else "DOUBLE"

    def finish(columns: list[str]) -> str:
        added = f"aggregate({columns[0]}, {zero}, (a, x) -> CAST(a + x AS {kind}))"
        return f"CASE WHEN size({columns[0]}) > 0 THEN try_cast({added} AS {total}) END"

    return Recipe(found.partials, finish)


def _avg_distinct(arg: str, type_: DataType, lets: Lets) -> Recipe:
    found = _set(arg, type_, None)
    zero, kind = ("CAST(0 AS DECIMAL(38, 0))", "DECIMAL(38, 0)") if type_.is_integral else ("0D", "DOUBLE")

    def finish(columns: list[str]) -> str:
        added = f"aggregate({columns[0]}, {zero}, (a, x) -> CAST(a + x AS {kind}))"
        return f"CASE WHEN size({columns[0]}) > 0 THEN CAST({added} AS DOUBLE) / size({columns[0]}) END"

    return Recipe(found.partials, finish)


def _by_value(function: str, value: str, value_type: DataType, order: str, order_type: DataType) -> Recipe:
    """The value beside the largest or smallest order; among equals the largest or smallest value."""
    spark = f"STRUCT<o: {type_text(order_type)}, v: {type_text(value_type)}>"
    arrow = pa.struct([("o", arrow_type(order_type)), ("v", arrow_type(value_type))])
    init = f"CASE WHEN {order} IS NOT NULL THEN named_struct('o', {_normal(order, order_type)}, 'v', {value}) END"
    return Recipe((Partial(spark, arrow, init, f"{function}({{0}})"),), lambda columns: f"{columns[0]}.v")


def _collected(arg: str, type_: DataType, most: int) -> Recipe:
    """The earliest values that are not null, by event time and then by value."""
    spark = f"ARRAY<STRUCT<t: BIGINT, v: {type_text(type_)}>>"
    arrow = pa.list_(pa.struct([("t", pa.int64()), ("v", arrow_type(type_))]))
    init = f"CASE WHEN {arg} IS NOT NULL THEN array(named_struct('t', {TS}, 'v', {arg})) END"
    merge = f"slice(sort_array(flatten(collect_list({{0}}))), 1, {most})"
    return Recipe((Partial(spark, arrow, init, merge),), lambda columns: f"transform({columns[0]}, x -> x.v)")


def _set(arg: str, type_: DataType, most: int | None) -> Recipe:
    """The different values that are not null; the smallest of them where there is a bound."""
    element = DataType(Kind.ARRAY, type_)
    init = f"CASE WHEN {arg} IS NOT NULL THEN array({_normal(arg, type_)}) END"
    merge = "sort_array(array_distinct(flatten(collect_list({0}))))"
    merge = merge if most is None else f"slice({merge}, 1, {most})"
    return Recipe((Partial(type_text(element), arrow_type(element), init, merge),), _first)


def _normal(arg: str, type_: DataType) -> str:
    """Equal floating-point numbers as one value: there are two zeros."""
    return f"({arg} + CAST(0 AS {type_text(type_)}))" if type_.kind in (Kind.FLOAT, Kind.DOUBLE) else arg


def _count_distinct(arg: str, type_: DataType, lets: Lets) -> Recipe:
    found = _set(arg, type_, None)
    return Recipe(found.partials, lambda columns: f"CAST(coalesce(size({columns[0]}), 0) AS BIGINT)")


def _count_if(arg: str, type_: DataType, lets: Lets) -> Recipe:
    return Recipe((_long(f"CASE WHEN {arg} THEN 1L ELSE 0L END"),), _first)


def _distinct(arg: str, type_: DataType, lets: Lets) -> Recipe:
    """The smallest hashes of the values: how dense they lie tells how many there are."""
    init = f"CASE WHEN {arg} IS NOT NULL THEN array(xxhash64({_normal(arg, type_)})) END"
    merge = f"slice(sort_array(array_distinct(flatten(collect_list({{0}})))), 1, {HASHES})"
    return Recipe((Partial("ARRAY<BIGINT>", pa.list_(pa.int64()), init, merge),), _estimated)


def _estimated(columns: list[str]) -> str:
    hashes = columns[0]
    share = f"((CAST(try_element_at({hashes}, {HASHES}) AS DOUBLE) + {_TWO_63}D) / {2 * _TWO_63}D)"
    dense = f"CAST(round({HASHES - 1}D / {share}) AS BIGINT)"
    return f"CASE WHEN size({hashes}) < {HASHES} THEN CAST(size({hashes}) AS BIGINT) ELSE {dense} END"


RECIPES: dict[str, Callable[[str, DataType, Lets], Recipe]] = {
    "count": lambda arg, type_, lets: _count(arg),
    "count_if": _count_if,
    "count_distinct": _count_distinct,
    "approx_count_distinct": _distinct,
    "sum": _sum,
    "sum_distinct": _sum_distinct,
    "avg": _avg,
    "avg_distinct": _avg_distinct,
    "median": lambda arg, type_, lets: _percentile(arg, 0.5),
    "min": _merged_by("min"),
    "max": _merged_by("max"),
    "first": _by_time("min"),
    "last": _by_time("max"),
    "var_samp": _deviation(variance),
    "var_pop": _deviation(lambda *sums: variance(*sums, of_sample=False)),
    "stddev": _deviation(deviation),
    "stddev_pop": _deviation(lambda *sums: deviation(*sums, of_sample=False)),
    "bool_and": _merged_by("min"),
    "bool_or": _merged_by("max"),
    "bit_and": _merged_by("bit_and"),
    "bit_or": _merged_by("bit_or"),
    "bit_xor": _merged_by("bit_xor"),
}
"""Aggregates of one argument."""


def values_of(call: Call) -> tuple[Expression, ...]:
    """The arguments of an aggregate that are values of tuples, not the number of values to keep."""
    if call.function == "percentile":
        return call.args[:1]
    return call.args[: BOUNDED.get(call.function, len(call.args) + 1) - 1]


def recipe_of(call: Call, args: Sequence[str], lets: Lets) -> Recipe:
    """The recipe of an aggregate whose values are these columns."""
    if not args:
        return _count(None)
    types = [a.type for a in call.args]
    match call.function:
        case "top_k":
            return _top(args[0], types[0], _bound(call))
        case "collect_list":
            return _collected(args[0], types[0], _bound(call))
        case "collect_set":
            return _set(args[0], types[0], _bound(call))
        case "percentile":
            return _percentile(args[0], _share(call))
        case "min_by" | "max_by" as function if len(types) == 3:
            return _top_by(function == "max_by", args[0], types[0], args[1], types[1], _bound(call))
        case "min_by" | "max_by" as function:
            return _by_value(function.removesuffix("_by"), args[0], types[0], args[1], types[1])
    return RECIPES[call.function](args[0], types[0], lets)


def _bound(call: Call) -> int:
    match call.args:
        case (*_, Literal(int() as most)):
            return most
    return VALUES


def _share(call: Call) -> float:
    match call.args:
        case (_, Literal(int() | float() as share)):
            return float(share)
    raise AssertionError(call)
