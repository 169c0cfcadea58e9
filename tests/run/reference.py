"""A naive reference: every operator in plain Python, tuple by tuple, without any code of the data plane.

It sees a plan and, for each source, all tuples with their event time and the watermark of their source before them. It
says what must come out and which tuples are late. Slow and obvious on purpose.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from meander.model.expressions.tree import Call, Column, Expression, Literal
from meander.model.ids import OperatorId
from meander.model.operators import (
    Conjunction,
    Disjunction,
    Filter,
    JoinKind,
    Map,
    Sink,
    Source,
    Union,
    UserFunction,
    WindowAggregate,
    WindowJoin,
)
from meander.model.operators import Sequence as SequenceOperator
from meander.model.plan import QueryPlan
from meander.model.schema import Kind, beside
from meander.model.windows import Between, Count, PairWindow, Session, Sliding, Tumbling, Within

Value = Any
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """A tuple: event time, watermark of its source before it, newest contributing event time, columns."""

    ts: int
    wm: int
    newest: int
    values: tuple[Value, ...]


@dataclass
class Outcome:
    """Rows of each sink, and how many tuples were late for each operator."""

    sinks: dict[str, list[Row]]
    late: dict[OperatorId, int]


def run(plan: QueryPlan, sources: Mapping[OperatorId, list[Row]]) -> Outcome:
    made: dict[OperatorId, list[Row]] = {}
    outcome = Outcome({}, {})
    for operator_id in plan.order:
        operator = plan.operators[operator_id]
        below = [made[i] for i in plan.inputs[operator_id]]
        names = [plan.schemas[i].names for i in plan.inputs[operator_id]]
        late: list[Row] = []
        match operator:
            case Source():
                made[operator_id] = sources[operator_id]
            case Filter(predicate):
                made[operator_id] = [r for r in below[0] if evaluate(predicate, named(names[0], r)) is True]
            case Map(columns):
                made[operator_id] = [
                    Row(r.ts, r.wm, r.newest, tuple(evaluate(c.expression, named(names[0], r)) for c in columns))
                    for r in below[0]
                ]
            case Union():
                made[operator_id] = [r for rows in below for r in rows]
            case Disjunction():
                made[operator_id] = [
                    *(Row(r.ts, r.wm, r.newest, r.values + (None,) * len(names[1])) for r in below[0]),
                    *(Row(r.ts, r.wm, r.newest, (None,) * len(names[0]) + r.values) for r in below[1]),
                ]
            case UserFunction(function):
                made[operator_id] = applied(function, names[0], below[0])
            case WindowAggregate():
                made[operator_id] = list(aggregate(operator, names[0], below[0], late))
            case WindowJoin(window, keys, condition, lateness, kind):
                pairs = [(names[0].index(a), names[1].index(b)) for a, b in keys]

                def equal(left: Row, right: Row, pairs: list[tuple[int, int]] = pairs) -> bool:
                    return all(left.values[a] is not None and left.values[a] == right.values[b] for a, b in pairs)

                both = beside(*(plan.schemas[i] for i in plan.inputs[operator_id])).names
                found = matched(below[0], below[1], sharing(window), accepting(window, lateness), late)
                if kind is JoinKind.INNER:
                    made[operator_id] = paired((p for p in found if equal(*p)), condition, both)
                else:
                    list(found)  # who is late
                    made[operator_id] = list(outer(operator, below, equal, both))
            case Conjunction(window, condition, lateness):
                found = matched(below[0], below[1], sharing(window), accepting(window, lateness), late)
                made[operator_id] = paired(found, condition, plan.schemas[operator_id].names)
            case SequenceOperator(within_ms, condition, lateness):
                window = Within(within_ms)
                found = matched(below[0], below[1], following(within_ms), accepting(window, lateness), late)
                made[operator_id] = paired(found, condition, plan.schemas[operator_id].names)
            case Sink(name):
                outcome.sinks[name] = made[operator_id] = below[0]
            case _:
                raise NotImplementedError(operator)
        if late or isinstance(operator, WindowAggregate | WindowJoin | Conjunction | SequenceOperator):
            outcome.late[operator_id] = len(late)
    return outcome


def named(names: Sequence[str], row: Row) -> dict[str, Value]:
    return dict(zip(names, row.values, strict=True))


def evaluate(expression: Expression, row: Mapping[str, Value]) -> Value:
    """The value of the few functions that the tests' queries use, with SQL's nulls."""
    match expression:
        case Column(name):
            return row[name]
        case Literal(value):
            return value
        case Call("and", args):
            values = [evaluate(a, row) for a in args]
            return False if False in values else None if None in values else True
        case Call("or", args):
            values = [evaluate(a, row) for a in args]
            return True if True in values else None if None in values else False
        case Call("is_null", (arg,)):
            return evaluate(arg, row) is None
        case Call("xxhash64", args):
            return zlib.crc32(repr([evaluate(a, row) for a in args]).encode())
        case Call("coalesce", args):
            return next((v for v in (evaluate(a, row) for a in args) if v is not None), None)
        case Call(function, args):
            values = [evaluate(a, row) for a in args]
            if any(v is None for v in values):
                return None
            value = _FUNCTIONS[function](*values)
            limit = _LIMITS.get(expression.type.kind)
            return None if limit and value is not None and not -limit <= value < limit else value


_LIMITS = {Kind.INT: 2**31, Kind.BIGINT: 2**63}

_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": lambda a, b: None if b == 0 else math.fmod(a, b) if isinstance(a, float) else int(math.fmod(a, b)),
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: not a,
    "negative": lambda a: -a,
    "abs": abs,
    "cast": lambda a: a,
    "upper": lambda a: a.upper(),
    "between": lambda a, low, high: low <= a <= high,
    "pmod": lambda a, b: a % b,
    "concat": lambda *a: "".join(a),
}


def applied(function: str, names: Sequence[str], rows: list[Row]) -> list[Row]:
    """A user function tuple by tuple: beside each one from batches to batches lies one for a single tuple."""
    module, _, name = function.partition(":")
    one = getattr(importlib.import_module(module), f"{name}_of_one")
    return [Row(r.ts, r.wm, r.newest, values) for r in rows for values in one(named(names, r))]


def timestamp(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def window_starts(window: Tumbling | Sliding, ts: int) -> list[int]:
    slide = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    start = ts // slide * slide
    starts = []
    while start + window.size_ms > ts:
        starts.append(start)
        start -= slide
    return starts


def aggregate(operator: WindowAggregate, names: Sequence[str], rows: list[Row], late: list[Row]) -> Iterator[Row]:
    lateness = operator.lateness_ms
    groups: dict[tuple[int, int, tuple[Value, ...]], list[Row]] = defaultdict(list)
    if isinstance(operator.window, Tumbling | Sliding):
        for row in rows:
            starts = [
                s for s in window_starts(operator.window, row.ts) if s + operator.window.size_ms + lateness > row.wm
            ]
            if not starts:
                late.append(row)
            for start in starts:
                groups[start, start + operator.window.size_ms, keys_of(operator, names, row)].append(row)
    else:
        by_key: dict[tuple[Value, ...], list[Row]] = defaultdict(list)
        for row in rows:
            if row.ts + lateness >= row.wm:
                by_key[keys_of(operator, names, row)].append(row)
            else:
                late.append(row)
        for key, members in by_key.items():
            cut = sessions if isinstance(operator.window, Session) else counts
            for start, end, inside in cut(operator, names, members):
                groups[start, end, (*key, len(groups))] = inside
    for (start, end, key), members in groups.items():
        values = tuple(result_of(a.expression, names, members) for a in operator.aggregates)
        head = (timestamp(start), timestamp(end), *key[: len(operator.keys)])
        yield Row(end, end - 1, max(m.newest for m in members), head + values)


def keys_of(operator: WindowAggregate, names: Sequence[str], row: Row) -> tuple[Value, ...]:
    return tuple(evaluate(k.expression, named(names, row)) for k in operator.keys)


def sessions(operator: WindowAggregate, names: Sequence[str], rows: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
    assert isinstance(operator.window, Session)
    gap = operator.window.gap_ms
    current: list[Row] = []
    for row in sorted(rows, key=lambda r: r.ts):
        if current and row.ts - current[-1].ts > gap:
            yield current[0].ts, current[-1].ts + gap, current
            current = []
        current.append(row)
    yield current[0].ts, current[-1].ts + gap, current


def counts(operator: WindowAggregate, names: Sequence[str], rows: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
    assert isinstance(operator.window, Count)
    arguments: dict[Expression, None] = {}
    for named_aggregate in operator.aggregates:
        call = named_aggregate.expression
        assert isinstance(call, Call)
        arguments |= dict.fromkeys(call.args[:1])

    def order(row: Row) -> tuple[Value, ...]:
        values = [evaluate(a, named(names, row)) for a in arguments]
        return (row.ts, *((v is not None, v) for v in values), row.newest)

    ordered = sorted(rows, key=order)
    for start in range(0, len(ordered), operator.window.slide):
        inside = ordered[start : start + operator.window.size]
        if len(inside) == operator.window.size:
            yield inside[0].ts, inside[-1].ts + 1, inside


def result_of(expression: Expression, names: Sequence[str], rows: list[Row]) -> Value:
    assert isinstance(expression, Call)
    if not expression.args:
        return len(rows)
    every = [(r.ts, evaluate(expression.args[0], named(names, r))) for r in rows]
    values = [v for _, v in every if v is not None]
    integral = expression.args[0].type.is_integral
    match expression.function:
        case "count":
            return len(values)
        case "approx_count_distinct":
            return len(set(values))
        case "first":
            return min(every, key=lambda e: (e[0], e[1] is not None, e[1]))[1]
        case "last":
            return max(every, key=lambda e: (e[0], e[1] is not None, e[1]))[1]
        case "top_k":
            k = expression.args[1]
            assert isinstance(k, Literal)
            assert isinstance(k.value, int)
            return sorted(values, reverse=True)[: k.value]
    if not values:
        return None
    match expression.function:
        case "sum":
            total = sum(values) if integral else math.fsum(values)
            return None if integral and not -_LIMITS[Kind.BIGINT] <= total < _LIMITS[Kind.BIGINT] else total
        case "avg":
            return math.fsum(values) / len(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "stddev":
            if len(values) < 2:
                return None
            mean = math.fsum(values) / len(values)
            return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    raise NotImplementedError(expression.function)


Sharing = Callable[[int, int], Iterable[int | None]]
"""The windows that two event times share; a single None when they go together without a window."""

Accepting = Callable[[Row, int | None], bool]
"""Whether a tuple is in time for a window (None: for the operator as a whole)."""


def sharing(window: PairWindow) -> Sharing:
    if isinstance(window, Within):
        return lambda left, right: [None] if abs(left - right) <= window.ms else []
    if isinstance(window, Between):
        return lambda left, right: [None] if window.low_ms <= right - left <= window.high_ms else []
    return lambda left, right: set(window_starts(window, left)) & set(window_starts(window, right))


def following(within_ms: int) -> Sharing:
    return lambda left, right: [None] if left < right <= left + within_ms else []


def accepting(window: PairWindow, lateness: int) -> Accepting:
    if isinstance(window, Within | Between):
        return lambda row, _: row.ts + window.ms + lateness > row.wm
    size = window.size_ms

    def accepts(row: Row, start: int | None) -> bool:
        own = max(window_starts(window, row.ts)) if start is None else start
        return own + size + lateness > row.wm

    return accepts


def outer(
    join: WindowJoin, below: Sequence[list[Row]], equal: Callable[[Row, Row], bool], names: Sequence[str]
) -> Iterator[Row]:
    """A join that is not an inner one: for each tuple and each window that takes it, its partners or their absence."""
    shares, accepts = sharing(join.window), accepting(join.window, join.lateness_ms)

    def windows(row: Row) -> list[int | None]:
        own: list[int | None] = (
            [None] if isinstance(join.window, Within | Between) else [*window_starts(join.window, row.ts)]
        )
        return [w for w in own if accepts(row, w)]

    def pair(a: Row, b: Row, window: int | None) -> list[Row]:
        met = window in shares(a.ts, b.ts) and accepts(a, window) and accepts(b, window) and equal(a, b)
        return paired([(a, b)] if met else [], join.condition, names)

    wide = len(names)
    left_only, right_only = join.kind.waits_for
    for a in below[0]:
        for window in windows(a):
            partners = [p for b in below[1] for p in pair(a, b, window)]
            if join.kind.gives_pairs:
                yield from partners
            if left_only and join.kind is JoinKind.SEMI and partners:
                yield Row(a.ts, a.ts - 1, a.newest, a.values)
            elif left_only and join.kind is not JoinKind.SEMI and not partners:
                nulls = (None,) * (wide - len(a.values)) if join.kind.gives_pairs else ()
                yield Row(a.ts, a.ts - 1, a.newest, a.values + nulls)
    for b in below[1] if right_only else ():
        for window in windows(b):
            if not any(pair(a, b, window) for a in below[0]):
                yield Row(b.ts, b.ts - 1, b.newest, (None,) * (wide - len(b.values)) + b.values)


def matched(
    left: list[Row], right: list[Row], sharing: Sharing, accepts: Accepting, late: list[Row]
) -> Iterator[tuple[Row, Row]]:
    late += [r for r in (*left, *right) if not accepts(r, None)]
    for a in left:
        for b in right:
            for window in sharing(a.ts, b.ts):
                if accepts(a, window) and accepts(b, window):
                    yield a, b


def paired(pairs: Iterable[tuple[Row, Row]], condition: Expression | None, names: Sequence[str]) -> list[Row]:
    result = []
    for left, right in pairs:
        ts = max(left.ts, right.ts)
        row = Row(ts, ts - 1, max(left.newest, right.newest), left.values + right.values)
        if condition is None or evaluate(condition, named(names, row)) is True:
            result.append(row)
    return result
