"""The elements of stages: edges that tuples come from, and operators over columns by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from meander.model.operators import Operator
from meander.model.schema import Schema


@dataclass(frozen=True)
class StageEdge:
    """The origin of tuples: a port of the template, the output of one of its stages, or several of these at once."""

    port: int | None = None
    stage: int | None = None
    union: tuple[StageEdge, ...] = ()
    """Edges whose tuples are read as one table: a union costs no more than its tuples, however many it unites."""


def rows_of(edges: Mapping[StageEdge, pa.Table], edge: StageEdge) -> pa.Table:
    """The tuples of an edge."""
    if not edge.union:
        return edges[edge]
    parts = [edges[part] for part in edge.union]
    return pa.concat_tables([pa.table(p.columns, p.column_names) for p in parts])  # whichever columns may be null


@dataclass(frozen=True)
class StageNode:
    """An operator over columns by position; `names` are the input's for a user function, which sees them."""

    operator: Operator
    inputs: tuple[int, ...]
    """Numbers of nodes, or below zero of leaves."""
    schema: Schema
    names: tuple[str, ...] = ()
