"""The lineage of a stage's columns, and which of them are read: what rewrites of columns and keys ask."""

from __future__ import annotations

from collections.abc import Sequence

from meander.model.expressions.tree import Column, columns
from meander.model.operators import Filter, Map, Union
from meander.model.schema import Schema
from meander.run.expressions import type_text
from meander.run.fragments.stage_nodes import StageNode
from meander.run.fragments.template import Stage

LeafColumns = frozenset[tuple[int, str]]
"""Columns of leaves, by the leaf's number."""

Origins = dict[str, LeafColumns | None]
"""For each column the leaves' columns that it hands on, or None if it is computed."""


def origins(stage: Stage) -> dict[int, Origins]:
    """For every node and every leaf of a stage what its columns hand on."""
    found: dict[int, Origins] = {
        -1 - i: {c: frozenset({(i, c)}) for c in schema.names} for i, schema in enumerate(stage.schemas)
    }
    for number, node in enumerate(stage.nodes):
        found[number] = _handed_on(stage, node, [found[i] for i in node.inputs])
    return found


def column_of_each_leaf(stage: Stage, found: LeafColumns | None) -> tuple[str, ...] | None:
    """The column of each leaf that is handed on, if one is."""
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


def united(found: Sequence[LeafColumns | None]) -> LeafColumns | None:
    """All of them together; None if one is computed."""
    known = [f for f in found if f is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def needed(stage: Stage, last: int, wanted: frozenset[str], stop: int | None = None) -> tuple[frozenset[str], ...]:
    """The leaves' columns that are read for the wanted ones of node `last`, and by predicates, before node `stop`."""
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


def with_null_for_others(schema: Schema, needed: frozenset[str]) -> list[str]:
    """The columns of a schema as select items, those that are not needed as null."""
    return [f.name if f.name in needed else f"CAST(NULL AS {type_text(f.type)}) AS {f.name}" for f in schema]
