"""Merging: operators that do the same to tuples which are united afterwards are one operator behind the union.

A query over many sources has its first filters and maps once for each source. Those that share a node differ in number
from node to node and from change to change, and so would the plans of their stages, each new to Spark. Merged, they are
one filter over all tuples together, however many sources there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from meander.model.operators import Filter, Map, Operator, Union, UserFunction
from meander.model.schema import Schema
from meander.run.fragments.stage_nodes import StageEdge, StageNode

Graph = tuple[tuple[StageEdge, ...], tuple[Schema, ...], tuple[StageNode, ...]]
"""The leaves of a stage, their schemas, and its nodes."""


@dataclass(frozen=True)
class _Leaf:
    edges: tuple[StageEdge, ...]
    schema: Schema


@dataclass(frozen=True)
class _Inner:
    operator: Operator
    below: tuple[_Tree, ...]
    schema: Schema
    names: tuple[str, ...] = ()


_Tree = _Leaf | _Inner


def merged(reads: Sequence[StageEdge], schemas: Sequence[Schema], nodes: Sequence[StageNode]) -> Graph:
    """The same stage with equal parts merged. A stage that uses something twice stays as it is."""
    used = Counter(i for node in nodes for i in node.inputs)
    if not nodes or max(used.values()) > 1 or not any(isinstance(n.operator, Union) for n in nodes):
        return tuple(reads), tuple(schemas), tuple(nodes)
    trees: dict[int, _Tree] = {
        -1 - i: _Leaf(edge.union or (edge,), schema)
        for i, (edge, schema) in enumerate(zip(reads, schemas, strict=True))
    }
    for number, node in enumerate(nodes):
        below = tuple(trees[i] for i in node.inputs)
        if isinstance(node.operator, Union) and all(b.schema.types == node.schema.types for b in below):
            trees[number] = _united(below, node.schema)
        else:
            trees[number] = _Inner(node.operator, below, node.schema, node.names)
    root = trees[len(nodes) - 1]
    return _Listing().graph(root if isinstance(root, _Inner) else _Inner(Union(), (root,), root.schema))


def _united(trees: Sequence[_Tree], schema: Schema) -> _Tree:
    flat = [b for t in trees for b in (t.below if _is_plain_union(t) else (t,))]  # type: ignore[union-attr]
    edges = tuple(edge for t in flat if isinstance(t, _Leaf) for edge in t.edges)
    found: list[_Tree] = [_Leaf(edges, schema)] if edges else []
    alike: dict[tuple[object, ...], list[_Inner]] = {}
    for tree in flat:
        if isinstance(tree, _Inner) and isinstance(tree.operator, Filter | Map | UserFunction):
            key = (tree.operator, tree.schema, tree.names, tree.below[0].schema)
            alike.setdefault(key, []).append(tree)
        elif isinstance(tree, _Inner):
            found.append(tree)
    for same in alike.values():
        first = same[0]
        below = _united([t.below[0] for t in same], first.below[0].schema) if len(same) > 1 else first.below[0]
        found.append(_Inner(first.operator, (below,), first.schema, first.names))
    return found[0] if len(found) == 1 else _Inner(Union(), tuple(found), schema)


def _is_plain_union(tree: _Tree) -> bool:
    """Whether it unites without changing types."""
    if not isinstance(tree, _Inner) or not isinstance(tree.operator, Union):
        return False
    return all(b.schema.types == tree.schema.types for b in tree.below)


class _Listing:
    """Numbers leaves and nodes again, inputs first."""

    def __init__(self) -> None:
        self.leaves: list[_Leaf] = []
        self.nodes: list[StageNode] = []

    def graph(self, root: _Tree) -> Graph:
        self._number(root)
        reads = tuple(leaf.edges[0] if len(leaf.edges) == 1 else StageEdge(union=leaf.edges) for leaf in self.leaves)
        return reads, tuple(leaf.schema for leaf in self.leaves), tuple(self.nodes)

    def _number(self, tree: _Tree) -> int:
        if isinstance(tree, _Leaf):
            self.leaves.append(tree)
            return -len(self.leaves)
        inputs = tuple(self._number(b) for b in tree.below)
        self.nodes.append(StageNode(tree.operator, inputs, tree.schema, tree.names))
        return len(self.nodes) - 1
