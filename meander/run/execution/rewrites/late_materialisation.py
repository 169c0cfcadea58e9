"""What of a stage's tuples need not travel to Spark and back: columns that filters and maps only hand on.

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

from meander.model.expressions.tree import Column, columns
from meander.model.operators import Filter, Map, Union, UserFunction
from meander.model.schema import Schema
from meander.run.expressions import type_text
from meander.run.fragments.stage_nodes import StageNode
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT, HIDDEN, arrow_type, positions

Origins = dict[str, frozenset[tuple[int, str]] | None]
"""For each column the leaves' columns that it hands on, or None if it is computed."""


def is_lean(stage: Stage) -> bool:
    """Whether rows are only dropped, handed on and computed from one at a time, so that a row's number is enough."""
    return stage.stateful is None and not any(isinstance(n.operator, UserFunction) for n in stage.nodes)


@dataclass(frozen=True)
class LateMaterialisation:
    """A stage's columns by whether they travel."""

    stage: Stage
    needed: tuple[frozenset[str], ...]
    """For each leaf the columns that Spark reads."""
    handed_on: Mapping[str, tuple[str, ...]]
    """Output columns that Spark does not make, with the column of each leaf that they are."""

    @staticmethod
    def of(stage: Stage) -> LateMaterialisation:
        """Follows every output column back to where it comes from."""
        last = len(stage.nodes) - 1 if stage.nodes else -1
        handed_on = {}
        for name, found in origins(stage)[last].items():
            own = column_of_each_leaf(stage, found)
            if own is not None:
                handed_on[name] = own
        wanted = frozenset(stage.schema.names) - handed_on.keys()
        return LateMaterialisation(stage, needed(stage, last, wanted), handed_on)

    @cached_property
    def computes_nothing(self) -> bool:
        """Whether every row comes out once and every column is handed on: tuples pass, and nothing has to run."""
        inputs = [i for node in self.stage.nodes for i in node.inputs]
        return (
            not any(isinstance(node.operator, Filter) for node in self.stage.nodes)
            and len(self.handed_on) == len(self.stage.schema)
            and len(set(inputs)) == len(inputs)
        )

    @property
    def schemas(self) -> list[pa.Schema]:
        """The frames that travel."""
        return [
            pa.schema([(FRAGMENT, pa.int32()), *((f.name, arrow_type(f.type)) for f in schema if f.name in needed)])
            for schema, needed in zip(self.stage.schemas, self.needed, strict=True)
        ]

    def plan(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The stage's plan; what does not travel is nothing there, and nobody looks at it."""
        nothing = [f"0L AS {name}" for name in HIDDEN]
        whole = [
            frame.selectExpr(FRAGMENT, *nothing, *with_nothing_else(schema, needed))
            for frame, schema, needed in zip(frames, self.stage.schemas, self.needed, strict=True)
        ]
        made = [c for c in positions(len(self.stage.schema)) if c not in self.handed_on]
        return self.stage.plan(whole).select(FRAGMENT, *made)

    def outgoing(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """What travels of the tables, their rows numbered through."""
        found, first = [], 0
        for table, schema in zip(tables, self.schemas, strict=True):
            numbers = pa.array(np.arange(first, first + len(table), dtype=np.int32))
            found.append(pa.table([numbers, *(table.column(n) for n in schema.names[1:])], schema=schema))
            first += len(table)
        return found

    def passed(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The tables as they come out of a stage that computes nothing."""
        numbers = np.arange(sum(map(len, tables)), dtype=np.int32)
        return self.whole(tables, pa.table({FRAGMENT: pa.array(numbers)}))

    def whole(self, tables: Sequence[pa.Table], result: pa.Table) -> pa.Table:
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


def origins(stage: Stage) -> dict[int, Origins]:
    """For every node and every leaf of a stage what its columns hand on."""
    found: dict[int, Origins] = {
        -1 - i: {c: frozenset({(i, c)}) for c in schema.names} for i, schema in enumerate(stage.schemas)
    }
    for number, node in enumerate(stage.nodes):
        found[number] = _handed_on(stage, node, [found[i] for i in node.inputs])
    return found


def column_of_each_leaf(stage: Stage, found: frozenset[tuple[int, str]] | None) -> tuple[str, ...] | None:
    """What is handed on, as one column of each leaf, if it is that."""
    of_leaf = dict(found or ())
    if not found or not len(of_leaf) == len(found) == len(stage.schemas):
        return None
    return tuple(of_leaf[i] for i in range(len(stage.schemas)))


def _handed_on(stage: Stage, node: StageNode, below: Sequence[Origins]) -> Origins:
    """For each column of a node what it hands on. A column whose type changes is computed."""
    types = dict(zip(node.schema.names, node.schema.types, strict=True))
    match node.operator:
        case Filter():
            return below[0]
        case Map(named):
            return {
                c.name: below[0][c.expression.name]
                if isinstance(c.expression, Column) and c.expression.type == types[c.name]
                else None
                for c in named
            }
        case Union():
            schemas = [stage.nodes[i].schema if i >= 0 else stage.schemas[-1 - i] for i in node.inputs]
            same = all(s.types == node.schema.types for s in schemas)
            return {c: united([b[c] for b in below]) if same else None for c in node.schema.names}
    return dict.fromkeys(node.schema.names)


def united(found: Sequence[frozenset[tuple[int, str]] | None]) -> frozenset[tuple[int, str]] | None:
    known = [f for f in found if f is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def needed(stage: Stage, last: int, wanted: frozenset[str], stop: int | None = None) -> tuple[frozenset[str], ...]:
    """The leaves' columns that are read on the way to the wanted ones, and by predicates, before node `stop`."""
    wants: dict[int, set[str]] = {i: set() for i in range(-len(stage.schemas), len(stage.nodes))}
    wants[last] |= wanted
    for number in reversed(range(len(stage.nodes) if stop is None else stop)):
        node = stage.nodes[number]
        read = wants[number]
        match node.operator:
            case Filter(predicate):
                read = read | columns(predicate)
            case Map(named):
                read = {name for c in named if c.name in read for name in columns(c.expression)}
            case Union():
                pass
            case _:
                read = {name for i in node.inputs for name in _names(stage, i)}
        for below in node.inputs:
            wants[below] |= read
    return tuple(frozenset(wants[-1 - i]) for i in range(len(stage.schemas)))


def _names(stage: Stage, number: int) -> tuple[str, ...]:
    return tuple((stage.nodes[number].schema if number >= 0 else stage.schemas[-1 - number]).names)


def with_nothing_else(schema: Schema, needed: frozenset[str]) -> list[str]:
    """The columns of a schema, those that are not needed as nothing."""
    return [f.name if f.name in needed else f"CAST(NULL AS {type_text(f.type)}) AS {f.name}" for f in schema]
