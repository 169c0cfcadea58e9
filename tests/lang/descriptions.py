"""Random queries, written down twice: as SQL text and through the fluent API.

Each strategy draws what a part of a query should say and renders it on both sides at once. `columns` are the names
that expressions above it may use, with their types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from meander.lang import DataStream, count, session, sliding, tumbling
from meander.lang.fluent import Output, Windowing
from meander.model.schema import DataType, Kind
from tests.lang.streams import ENVIRONMENT, SINKS, STREAMS

Columns = tuple[tuple[str, DataType], ...]
Draw = Callable[[st.SearchStrategy[str]], str]
JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT OUTER JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}
DURATIONS = ("10 s", "500 ms", "2 min", "1 h", "1.5 s")


@dataclass(frozen=True)
class From:
    """What stands after FROM, and the stream it means together with a WHERE: a MATCH takes it as its condition."""

    sql: str
    build: Callable[[str | None], DataStream]
    columns: Columns


@dataclass(frozen=True)
class Select:
    """A whole SELECT."""

    sql: str
    stream: DataStream


@dataclass(frozen=True)
class Written:
    """A query in both languages."""

    sql: str
    output: Output


def _columns(stream: DataStream, alias: str | None) -> Columns:
    return tuple((f"{alias}.{f.name}" if alias else f.name, f.type) for f in stream.schema)


@st.composite
def numbers(draw: st.DrawFn, columns: Columns, depth: int = 1) -> str:
    """A numeric expression."""
    names = [name for name, type_ in columns if type_.is_numeric]
    leaves = st.sampled_from(["1", "2.5", "30", "100L", *names])
    if depth == 0 or draw(st.booleans()):
        return draw(leaves)
    left, right = draw(numbers(columns, depth - 1)), draw(numbers(columns, depth - 1))
    return draw(
        st.sampled_from(
            [
                f"{left} + {right}",
                f"({left} - {right}) * 2",
                f"abs({left})",
                f"coalesce({left}, {right})",
                f"-({right})",
            ]
        )
    )


@st.composite
def predicates(draw: st.DrawFn, columns: Columns, depth: int = 2) -> str:
    """A condition."""
    if depth > 0 and draw(st.booleans()):
        left, right = draw(predicates(columns, depth - 1)), draw(predicates(columns, depth - 1))
        return draw(st.sampled_from([f"{left} AND {right}", f"({left} OR {right})", f"NOT ({left})"]))
    number = draw(numbers(columns))
    texts = [name for name, type_ in columns if type_.kind is Kind.STRING] or ["'a'"]
    text = draw(st.sampled_from(texts))
    return draw(
        st.sampled_from(
            [
                f"{number} < 30",
                f"{number} BETWEEN 1 AND 20.5",
                f"{number} IS NOT NULL",
                f"{text} LIKE 'A%'",
                f"{text} IN ('west', 'it\\'s')",
                f"CASE WHEN {number} > 1 THEN {text} ELSE 'none' END = 'then'",
            ]
        )
    )


@st.composite
def streams(draw: st.DrawFn, alias: str) -> From:
    """A stream with an alias."""
    name = draw(st.sampled_from(sorted(STREAMS)))
    stream = ENVIRONMENT.stream(name).alias(alias)
    spelled = draw(st.sampled_from([f"{name} AS {alias}", f"{name} {alias}"]))
    return From(spelled, _then_where(stream), _columns(stream, alias))


@st.composite
def inputs(draw: st.DrawFn, alias: str, depth: int) -> From:
    """A stream, a sub-query or a user function, with an alias."""
    choice = draw(st.sampled_from(["stream", "stream", "query", "apply"])) if depth else "stream"
    if choice == "stream":
        return draw(streams(alias))
    if choice == "apply":
        inner = draw(streams(f"{alias}_in"))
        function = draw(st.sampled_from(["fleet:enrich", "fleet.rules:clean"]))
        stream = inner.build(None).apply(function, {"key": "string", "value": "double", "n": "int"}).alias(alias)
        text = f"APPLY('{function}', {inner.sql}) RETURNS (key string, value double, n int) AS {alias}"
        return From(text, _then_where(stream), _columns(stream, alias))
    select = draw(selects(depth - 1))
    renamed = select.stream.alias(alias)
    return From(f"({select.sql}) AS {alias}", _then_where(renamed), _columns(renamed, alias))


@st.composite
def pairs(draw: st.DrawFn, depth: int) -> From:
    """A join or a pattern over two inputs."""
    left, right = draw(inputs("a", depth)), draw(inputs("b", depth))
    one, other = left.build(None), right.build(None)
    columns = left.columns + right.columns
    span = draw(st.sampled_from(DURATIONS))
    late = draw(st.none() | st.sampled_from(DURATIONS))
    late_sql = f" ALLOW LATENESS {late}" if late else ""
    in_window = draw(st.booleans())
    bound_sql = f"WINDOW TUMBLING({span})" if in_window else f"WITHIN {span}"
    within, window = (None, tumbling(span)) if in_window else (span, None)
    keys = [(a, b) for a, s in left.columns for b, t in right.columns if s == t]
    kind = draw(st.sampled_from(["join", "and", "then", "or"] if keys else ["and", "then", "or"]))
    if kind == "join":
        a, b = draw(st.sampled_from(keys))
        on = draw(st.sampled_from([f"{a} = {b}", f"{b} = {a} AND {draw(predicates(columns))}"]))
        how, words = draw(st.sampled_from(list(JOINS.items())))
        if one.relation.event_time == other.relation.event_time == "ts" and draw(st.booleans()):
            on = f"{on} AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 1 MINUTE"
            within, window, bound_sql = None, None, ""
        joined = one.join(other, on=on, within=within, window=window, lateness=late, how=how)
        shown = left.columns if how in ("semi", "anti") else columns
        return From(f"{left.sql} {words} {right.sql} ON {on} {bound_sql}{late_sql}", _then_where(joined), shown)
    listed = f"{left.sql}, {right.sql} MATCH a"
    if kind == "and":
        both = lambda where: one.and_(other, within=within, window=window, where=where, lateness=late)  # noqa: E731
        return From(f"{listed} AND b {bound_sql}{late_sql}", both, columns)
    if kind == "then":
        sequence = lambda where: one.then(other, within=span, where=where, lateness=late)  # noqa: E731
        return From(f"{listed} THEN b WITHIN {span}{late_sql}", sequence, columns)
    return From(f"{listed} OR b", _then_where(one.or_(other)), columns)


def _then_where(stream: DataStream) -> Callable[[str | None], DataStream]:
    return lambda where: stream if where is None else stream.where(where)


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, Windowing]:
    size = draw(st.sampled_from(DURATIONS))
    choices: dict[str, Windowing] = {
        f"TUMBLING({size})": tumbling(size),
        "SLIDING(10 s, 5 s)": sliding("10 s", "5 s"),
        "HOP(1 min, 20 s)": sliding("60 s", "20 s"),
        f"SESSION({size})": session(size),
        "COUNT(100)": count(100),
        "COUNT(100, 10)": count(100, 10),
    }
    text = draw(st.sampled_from(sorted(choices)))
    return text, choices[text]


@st.composite
def selects(draw: st.DrawFn, depth: int = 2) -> Select:
    """SELECT ... FROM ... with any of its clauses, or a union of two of the same."""
    origin = draw(pairs(depth) if depth and draw(st.booleans()) else inputs("a", depth))
    where = draw(st.none() | predicates(origin.columns))
    base = origin.build(where)
    rest = f"FROM {origin.sql}" + (f" WHERE {where}" if where else "")
    if draw(st.booleans()):
        return draw(_windowed(origin.columns, base, rest))
    items = draw(st.sampled_from(["*", "columns", "columns"]))
    if items == "*":
        plain = Select(f"SELECT * {rest}", base)
    else:
        listed = draw(_items(origin.columns))
        plain = Select(f"SELECT {', '.join(listed)} {rest}", base.select(*listed))
    if draw(st.booleans()):
        return Select(f"{plain.sql} UNION ALL {plain.sql}", plain.stream.union(plain.stream))
    return plain


@st.composite
def _items(draw: st.DrawFn, columns: Columns) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    items = [f"{name} AS c{i}" for i, (name, _) in enumerate(chosen)]
    if draw(st.booleans()):
        items.append(draw(numbers(columns, 2)) + draw(st.sampled_from([" AS computed", " + 1"])))
    return items


@st.composite
def _windowed(draw: st.DrawFn, columns: Columns, base: DataStream, rest: str) -> Select:
    spelled, windowing = draw(windows())
    keys = draw(st.lists(st.sampled_from([n for n, _ in columns]), max_size=2, unique_by=lambda n: n.split(".")[-1]))
    argument = draw(numbers(columns))
    aggregate = draw(st.sampled_from([f"avg({argument})", f"max({argument})", f"top_k({argument}, 3)"]))
    items = [f"{k} AS k{i}" for i, k in enumerate(keys)]
    items += ["count(*) AS n", aggregate, f"sum({argument}) / count(*) AS ratio"]
    items += draw(st.sampled_from([[], ["window_start"], ["window_start", "window_end"]]))
    late = draw(st.none() | st.sampled_from(DURATIONS))
    having = draw(st.none() | st.sampled_from(["n > 3", f"min({argument}) < 2 AND count(*) > 1"]))
    windowed = base.window(windowing, lateness=late)
    if keys:
        windowed = windowed.group_by(*keys)
    if having:
        windowed = windowed.having(having)
    clauses = [f"WINDOW {spelled}" + (f" ALLOW LATENESS {late}" if late else "")]
    if keys:
        clauses.insert(draw(st.integers(0, 1)), f"GROUP BY {', '.join(keys)}")
    if having:
        clauses.append(f"HAVING {having}")
    return Select(f"SELECT {', '.join(items)} {rest} {' '.join(clauses)}", windowed.select(*items))


@st.composite
def queries(draw: st.DrawFn) -> Written:
    """A whole query with sinks and demands."""
    select = draw(selects())
    sinks = draw(st.lists(st.sampled_from(SINKS), min_size=1, max_size=2, unique=True))
    demands = draw(
        st.lists(
            st.sampled_from(["latency < 100 ms", "hops <= 3 WEIGHT 2", "load < 50 %", "frequency >= 2 /s"]),
            max_size=2,
        )
    )
    text = f"{select.sql} INTO {', '.join(sinks)}" + (f" DEMAND {', '.join(demands)}" if demands else "")
    return Written(text, select.stream.into(*sinks).demand(*demands))
