"""A runner without Spark: it computes what a stage means in plain Python, so that thousands of schedules fit.

It knows filters, maps, unions, windows of a fixed size with `count`, `min`, `max` and sums of whole
numbers, and joins `WITHIN` a time. Tables
and state have the layout that Spark's plans give them, so steps, channels, state and moves are the product's own. Rows
are told apart by value only, so that what it gives can be compared with `tests.run.reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from meander.model.expressions.tree import Call
from meander.model.operators import Filter, Map, Source, Union, WindowAggregate, WindowJoin
from meander.model.windows import Sliding, Tumbling, Within
from meander.run.execution.runner import OneByOne
from meander.run.fragments.stage_nodes import StageNode
from meander.run.fragments.template import Stage
from meander.run.frames import AFTER, BUCKET, FRAGMENT, HIDDEN, NEWEST, TAG, TS, WM, arrow_type, frame_schema, positions
from meander.run.operators.pairs import Pairs
from meander.run.operators.recipes import Partial, Recipe, recipe_of
from meander.run.operators.state import Stateful
from meander.run.operators.time_window import TimeWindow
from tests.run.reference import evaluate, timestamp, window_starts

Row = dict[str, Any]
MERGE: dict[str, Callable[[list[Any]], Any]] = {"sum({0})": sum, "min({0})": min, "max({0})": max}
HALF = 2**32
"""Whole numbers are added up in halves."""


class PythonRunner(OneByOne):
    """Implements `Runner`. Nothing needs to be prepared."""

    def __init__(self) -> None:
        self.runs = 0

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """There are no plans."""

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return True

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self.runs += 1
        inputs = [table.to_pylist() for table in tables[: len(stage.reads)]]
        states = [table.to_pylist() for table in tables[len(stage.reads) :]]
        node = stage.remembering
        if node is None:
            made = _made(stage, inputs, len(stage.nodes))
            return pa.Table.from_pylist(made[-1] if made else inputs[0], frame_schema(stage.schema))
        at = stage.nodes.index(node)
        made = _made(stage, inputs, at)
        below = [made[i] if i >= 0 else inputs[-1 - i] for i in node.inputs]
        assert stage.stateful is not None
        output, kept = _remembered(stage.stateful, node, below, states)
        for following in stage.nodes[at + 1 :]:
            output = list(_stateless(following, [output]))
        return pa.Table.from_pylist([*({**row, TAG: 0} for row in output), *kept], _schema(stage))

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        raise AssertionError("tuples of these tests come in order: none is late")


def _schema(stage: Stage) -> pa.Schema:
    """Rows of output and of state beside each other, as Spark's plans give them."""
    own = [(name, arrow_type(t)) for name, t in zip(positions(len(stage.schema)), stage.schema.types, strict=True)]
    longs = [(name, pa.int64()) for name in (BUCKET, *HIDDEN)]
    kept = {c.name: c.arrow for table in stage.states for c in table.columns if c.name not in HIDDEN}
    return pa.schema([(TAG, pa.int32()), (FRAGMENT, pa.int32()), *longs, *kept.items(), *own])


def _made(stage: Stage, inputs: Sequence[list[Row]], stop: int) -> list[list[Row]]:
    made: list[list[Row]] = []
    for node in stage.nodes[:stop]:
        made.append(list(_stateless(node, [made[i] if i >= 0 else inputs[-1 - i] for i in node.inputs])))
    return made


def _stateless(node: StageNode, below: Sequence[list[Row]]) -> Iterator[Row]:
    match node.operator:
        case Filter(predicate):
            yield from (row for row in below[0] if evaluate(predicate, row) is True)
        case Map(columns):
            for row in below[0]:
                carried = {name: value for name, value in row.items() if name.startswith("_")}
                yield carried | {c.name: evaluate(c.expression, row) for c in columns}
        case Union() | Source():
            yield from (row for rows in below for row in rows)
        case other:
            raise NotImplementedError(other)


def _remembered(
    stateful: Stateful, node: StageNode, below: Sequence[list[Row]], states: Sequence[list[Row]]
) -> tuple[list[Row], list[Row]]:
    """Rows of output, and rows to remember."""
    match node.operator:
        case WindowAggregate() as operator:
            assert isinstance(stateful, TimeWindow)
            return _windows(stateful, operator, below[0], states[0])
        case WindowJoin() as operator:
            assert isinstance(stateful, Pairs)
            return _pairs(stateful, operator, below, states)
        case other:
            raise NotImplementedError(other)


def _windows(
    stateful: TimeWindow, operator: WindowAggregate, rows: list[Row], state: list[Row]
) -> tuple[list[Row], list[Row]]:
    window = operator.window
    assert isinstance(window, Tumbling | Sliding)
    recipes = {name: _recipe(stateful, call) for name, call in _calls(operator)}
    partial = stateful.aggregation.partials
    columns = {name: [partial[p] for p in recipe.partials] for name, recipe in recipes.items()}
    started = list(state)
    for row in rows:
        for start in window_starts(window, row[TS]):
            if start + stateful.size_ms + stateful.lag_ms > row[WM]:
                keys = {f"k{i}": evaluate(k.expression, row) for i, k in enumerate(operator.keys)}
                values = {
                    c: v for n, call in _calls(operator) for c, v in zip(columns[n], _first(call, row), strict=True)
                }
                started.append({h: row[h] for h in (FRAGMENT, AFTER, NEWEST)} | {"w": start} | keys | values)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in started:
        groups.setdefault((row[FRAGMENT], row["w"], *(row[k] for k in stateful.aggregation.keys)), []).append(row)
    output: list[Row] = []
    kept: list[Row] = []
    for (fragment, start, *own), members in groups.items():
        merged = {
            column: _merged(part, [m[column] for m in members])
            for name, recipe in recipes.items()
            for column, part in zip(columns[name], recipe.partials, strict=True)
        }
        newest, end = max(m[NEWEST] for m in members), start + stateful.size_ms
        if end + stateful.lag_ms <= max(m[AFTER] for m in members):
            head = [
                timestamp(start),
                timestamp(end),
                *own,
                *(_result([merged[c] for c in columns[name]]) for name in recipes),
            ]
            hidden = {FRAGMENT: fragment, TS: end, WM: end - 1, NEWEST: newest}
            output.append(hidden | dict(zip(positions(len(head)), head, strict=True)))
        else:
            named = dict(zip(stateful.aggregation.keys, own, strict=True))
            kept.append({TAG: 1, FRAGMENT: fragment, BUCKET: start, NEWEST: newest, "w": start} | named | merged)
    return output, kept


def _calls(operator: WindowAggregate) -> Iterator[tuple[str, Call]]:
    for aggregate in operator.aggregates:
        assert isinstance(aggregate.expression, Call)
        yield aggregate.name, aggregate.expression


def _recipe(stateful: TimeWindow, call: Call) -> Recipe:
    recipe = recipe_of(call, stateful.aggregation.columns_of(call), stateful.aggregation.lets)
    assert len(recipe.partials) == 1 or call.function == "sum", "only sums have more than one partial"
    return recipe


def _first(call: Call, row: Row) -> list[Any]:
    """The partials of a tuple: the two halves of a whole number that is added up."""
    if not call.args:
        return [1]
    value = evaluate(call.args[0], row)
    if call.function == "sum":
        return [None, None] if value is None else [int(value / HALF), int(math.fmod(value, HALF))]
    return [int(value is not None) if call.function == "count" else value]


def _merged(partial: Partial, values: Sequence[Any]) -> Any:
    known = [v for v in values if v is not None]
    return MERGE[partial.merge](known) if known else None


def _result(merged: Sequence[Any]) -> Any:
    return merged[0] if len(merged) == 1 or merged[0] is None else merged[0] * HALF + merged[1]


def _pairs(
    stateful: Pairs, operator: WindowJoin, below: Sequence[list[Row]], states: Sequence[list[Row]]
) -> tuple[list[Row], list[Row]]:
    assert isinstance(operator.window, Within)
    names = (stateful.left, stateful.right)
    new = [_accepted(stateful, rows, side) for side, rows in enumerate(below)]
    old = [[_renamed(row, {f"s{n}": n for n in names[side]}) for row in rows] for side, rows in enumerate(states)]
    candidates = [(a, b) for a in new[0] for b in (*new[1], *old[1])] + [(a, b) for a in old[0] for b in new[1]]
    output: list[Row] = []
    for left, right in candidates:
        near = left[FRAGMENT] == right[FRAGMENT] and abs(left[TS] - right[TS]) <= operator.window.ms
        if near and all(left[a] == right[b] for a, b in stateful.keys):
            ts = max(left[TS], right[TS])
            pair = {n: left[n] for n in names[0]} | {n: right[n] for n in names[1]}
            if operator.condition is None or evaluate(operator.condition, pair) is True:
                hidden = {FRAGMENT: left[FRAGMENT], TS: ts, WM: ts - 1, NEWEST: max(left[NEWEST], right[NEWEST])}
                output.append(hidden | pair)
    width = stateful.matching.width_ms
    kept = [
        {TAG: side + 1, FRAGMENT: row[FRAGMENT], BUCKET: row[TS] - row[TS] % width}
        | {h: row[h] for h in HIDDEN}
        | {f"s{n}": row[n] for n in names[side]}
        for side, rows in enumerate(new)
        for row in rows
    ]
    return output, kept


def _accepted(stateful: Pairs, rows: list[Row], side: int) -> list[Row]:
    """New tuples in time that have all keys, under the names of the pair."""
    names = (stateful.left, stateful.right)[side]
    found = [_renamed(row, dict(zip(positions(len(names)), names, strict=True))) for row in rows]
    keys = [pair[side] for pair in stateful.keys]
    return [r for r in found if r[TS] + stateful.lag_ms > r[WM] and all(r[k] is not None for k in keys)]


def _renamed(row: Row, names: dict[str, str]) -> Row:
    hidden = {name: row[name] for name in (FRAGMENT, *HIDDEN)}
    return hidden | {new: row[old] for old, new in names.items()}
