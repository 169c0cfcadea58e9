"""Partners: the columns by which new tuples find the rows that they can make pairs with.

Pairs have equal keys, in joins and wherever a condition asks for it. A new tuple is compared on the columns of its own
side as they come into the stage: what filters and maps do before the operator takes rows away, or hands columns on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.run.execution.rewrites.column_lineage import LeafColumns, origins
from meander.run.fragments.template import Stage
from meander.run.operators.pairs import Pairs
from meander.run.resident.hashing import can_hash


@dataclass(frozen=True, slots=True)
class Partners:
    """The key columns of a state table, and by leaf of the stage the other side's columns that they are equal to."""

    keys: tuple[str, ...]
    leaves: Mapping[int, tuple[str, ...]]


def partners(stage: Stage) -> tuple[Partners | None, ...]:
    """For each state table of a stage; None where rows are not found by keys."""
    stateful, node = stage.stateful, stage.remembering
    if not isinstance(stateful, Pairs) or node is None:
        return (None,) * len(stage.states)
    known = [origins(stage)[i] for i in node.inputs]
    found: list[Partners | None] = []
    for side, table in enumerate(stage.states):
        keys, columns = list[str](), list[dict[int, str]]()
        for cut in stateful.matched_by:
            types = {t.schema.field(name).type for t, name in zip(stage.states, cut.states, strict=True)}
            of_leaf = _by_leaf(known[1 - side][cut.inputs[1 - side]])
            if of_leaf is not None and len(types) == 1 and can_hash(types.pop()):
                keys.append(cut.states[side])
                columns.append(of_leaf)
        leaves = {frozenset(each) for each in columns}
        assert set(keys) <= set(table.names)
        if len(leaves) == 1:
            by_leaf = {leaf: tuple(each[leaf] for each in columns) for leaf in leaves.pop()}
            found.append(Partners(tuple(keys), by_leaf))
        else:
            found.append(None)
    return tuple(found)


def _by_leaf(columns: LeafColumns | None) -> dict[int, str] | None:
    """The column of each leaf; None if it is computed, or not one in each."""
    of_leaf = dict(columns or ())
    return of_leaf if columns and len(of_leaf) == len(columns) else None
