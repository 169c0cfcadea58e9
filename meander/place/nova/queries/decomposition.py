"""A window aggregate taken apart, so that partial results of some tuples can be merged on their way to the sink.

    before ──► partial ──► named ─┬─► merge ──► named ─┬─► merge ──► named ──► finish
    beside the source    at a node that merges         ...          at the sink

All of these are ordinary operators. A partial result is one row for each window and key, whose event time is the end
of the window; rows of one window and key are merged in a window of one millisecond there. Whether a tuple is late is
decided by the partial aggregate, exactly as by the whole one.

Results are those of the whole aggregate to the last bit. Doubles are therefore added as whole numbers, by digits, as
the data plane does within one operator (`run/operators/exact.py`); larger ones than fit are added as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.expressions.functions import call, cast
from meander.model.expressions.tree import Call, Column, Expression, Literal, Named
from meander.model.operators import WINDOW_COLUMNS, Map, WindowAggregate, output_schema
from meander.model.schema import BIGINT, DOUBLE, Kind, Schema
from meander.model.windows import Sliding, Tumbling

START, END = "from_ms", "to_ms"
"""The columns of partial results that say which window they are of."""
AT_ONE_TIME = Tumbling(1)
_TWO_32, _LARGEST = Literal(2**32, BIGINT), Literal(2.0**63, DOUBLE)
_ZERO, _NOTHING = Literal(0.0, DOUBLE), Literal(None, DOUBLE)
MERGED_BY = {"sum": "sum", "count": "sum", "count_if": "sum"} | {
    name: name for name in ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")
}
"""The aggregate that merges partial results, for those whose partial result is one value of the same kind."""


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The operators that a window aggregate becomes."""

    before: Map
    """Keys and values, beside each source."""
    partial: WindowAggregate
    named: Map
    merge: WindowAggregate
    named_again: Map
    finish: Map
    """The columns of the whole aggregate."""


@dataclass(slots=True)
class _Columns:
    """Values to be computed before, and partial results over them with the aggregates that merge them."""

    before: dict[Expression, str] = field(default_factory=dict)
    partials: dict[tuple[str, str | None], tuple[str, Call, str]] = field(default_factory=dict)

    def partial(self, function: str, argument: Expression | None) -> Column:
        """A partial result's column."""
        name = None if argument is None else self.before.setdefault(argument, f"a{len(self.before)}")
        if (function, name) not in self.partials:
            args = () if name is None or argument is None else (Column(name, argument.type),)
            made = call(function, *args)
            self.partials[function, name] = f"p{len(self.partials)}", made, MERGED_BY[function]
        column, made, _ = self.partials[function, name]
        return Column(column, made.type)


def decomposed(aggregate: WindowAggregate, below: Schema) -> Decomposition:
    """Takes an aggregate over a schema apart; raises when its results cannot be merged."""
    if not isinstance(aggregate.window, Tumbling | Sliding):
        raise InputError(f"windows of its aggregate ({aggregate.window}) are not known before all tuples are there")
    columns = _Columns()
    finished = [Named(each.name, cast(_taken_apart(each.expression, columns), each.expression.type))
                for each in aggregate.aggregates]  # fmt: skip
    keys = tuple(Named(f"k{i}", key.expression) for i, key in enumerate(aggregate.keys))
    before = Map((*keys, *(Named(name, value) for value, name in columns.before.items()))
                 or (Named("k0", Literal(0, BIGINT)),))  # fmt: skip
    read = output_schema(before, (below,))
    own = tuple(Named(key.name, Column(key.name, key.expression.type)) for key in keys)
    partial = WindowAggregate(
        aggregate.window, own, tuple(Named(name, made) for name, made, _ in columns.partials.values()),
        aggregate.lateness_ms,
    )  # fmt: skip
    given = output_schema(partial, (read,))
    window = [Column(f.name, f.type) for f in WINDOW_COLUMNS]
    merged = tuple(Column(name, made.type) for name, made, _ in columns.partials.values())
    values = (*own, *(Named(column.name, column) for column in merged))
    named = Map((Named(START, window[0]), Named(END, window[1]), *values))
    form = output_schema(named, (given,))
    bounds = tuple(Named(name, Column(name, form.type_of(name))) for name in (START, END))
    functions = [function for *_, function in columns.partials.values()]
    merge = WindowAggregate(
        AT_ONE_TIME, (*bounds, *own),
        tuple(Named(column.name, call(by, column)) for column, by in zip(merged, functions, strict=True)),
    )  # fmt: skip
    ends = (Named(field_.name, bound.expression) for field_, bound in zip(WINDOW_COLUMNS, bounds, strict=True))
    names = (Named(key.name, each.expression) for key, each in zip(aggregate.keys, own, strict=True))
    return Decomposition(before, partial, named, merge, Map((*bounds, *values)), Map((*ends, *names, *finished)))


def _taken_apart(aggregate: Expression, columns: _Columns) -> Expression:
    """The aggregate's value from columns of partial results."""
    assert isinstance(aggregate, Call)
    if aggregate.function in ("sum", "avg"):
        (argument,) = aggregate.args
        total = _sum(argument, columns)
        return total if aggregate.function == "sum" else call("/", cast(total, DOUBLE), _some(argument, columns))
    if aggregate.function in MERGED_BY and len(aggregate.args) < 2:
        return columns.partial(aggregate.function, aggregate.args[0] if aggregate.args else None)
    known = ", ".join(sorted({*MERGED_BY, "avg"}))
    raise InputError(f"partial results of {aggregate.function} cannot be merged on their way; those of {known} can")


def _some(argument: Expression, columns: _Columns) -> Expression:
    """How many values there are; null for none."""
    return call("nullif", columns.partial("count", argument), Literal(0, BIGINT))


def _sum(argument: Expression, columns: _Columns) -> Expression:
    if argument.type.kind in (Kind.INT, Kind.BIGINT):
        return columns.partial("sum", cast(argument, BIGINT))
    value = cast(argument, DOUBLE)
    fits = call("<", call("abs", value), _LARGEST)
    known = call("not", call("is_null", value))
    safe = call("case", fits, value, known, _ZERO, _NOTHING)
    whole = cast(safe, BIGINT)
    digits: list[Expression] = [call("div", whole, _TWO_32), call("%", whole, _TWO_32)]
    rest: Expression = safe
    for _ in range(2):
        rest = call("*", call("-", rest, whole), cast(_TWO_32, DOUBLE))
        whole = cast(rest, BIGINT)
        digits.append(whole)
    is_large = call("and", known, call("not", call("coalesce", fits, Literal(False, fits.type))))
    outside = call("case", is_large, value, _NOTHING)
    high, low, first, second = (cast(columns.partial("sum", digit), DOUBLE) for digit in digits)
    shift = cast(_TWO_32, DOUBLE)
    behind = call("/", call("+", first, call("/", second, shift)), shift)
    total = call("+", call("+", call("*", high, shift), low), behind)
    return call("+", total, call("coalesce", columns.partial("sum", outside), _ZERO))
