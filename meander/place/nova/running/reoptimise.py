"""Changes at run time, whose cost grows with the rows they touch: only replicas of affected joins move, and the index
follows.

Every event returns its moves and can be undone, last one first. An event that cannot be carried out raises before
anything is changed; joins that find no room any more are reported as unplaced and tried again when they are next
touched, or by `retry`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.index import tree as trees
from meander.place.nova.running.change_effects import Changer, ColumnChange, Piece
from meander.place.nova.running.grow import add_join_row, add_node_row, add_source_row

Floats = NDArray[np.float64]


class Reoptimiser(Changer):
    """Applies events to placed joins."""

    def add_node(self, point: Floats, capacity_tps: float, height_ms: float = 0.0) -> int:
        """A new idle node; its row is returned. Nothing moves."""
        self._point(point)
        if not capacity_tps >= 0:
            raise InputError(f"a node's capacity must not be negative, but is {capacity_tps:g}")
        joins = self.joins
        node = add_node_row(joins, point, capacity_tps, height_ms)
        trees.insert(joins.tree, node, joins.board.points[node], height_ms, capacity_tps)
        change = ColumnChange(f"node {node} added")
        change.undo.append(lambda: self._drop_node(node))
        self._recorded(change)
        return node

    def remove_node(self, node: int) -> ColumnChange:
        """A node leaves: its sources' joins end, replicas it ran are placed elsewhere."""
        self._node(node)
        joins, change = self.joins, ColumnChange(f"node {node} removed")
        if self._is_sink(node) and bool((joins.board.joins["sink"][joins.active] == node).any()):
            raise InputError(f"node {node} is a sink of joins; remove those joins or give them another sink first")
        for source in self._sources_at(node):
            for join in self._joins_of(source):
                self._end(join, change)
        affected = self._take(joins.rows_on(node), change)
        self._drop_node(node)
        change.undo.append(lambda: self._return_node(node))
        self._place(affected, change)
        return self._recorded(change)

    def move_node(self, node: int, point: Floats, height_ms: float | None = None) -> ColumnChange:
        """A node's coordinates changed: joins it is a source or sink of, and replicas it runs, are placed again."""
        self._node(node)
        self._point(point)
        joins, change = self.joins, ColumnChange(f"node {node} moved")
        affected = self._take(joins.rows_on(node), change)
        touched = [j for source in self._sources_at(node) for j in self._joins_of(source)]
        if self._is_sink(node):
            touched += np.flatnonzero(joins.active & (joins.board.joins["sink"] == node)).tolist()
        touched = list(dict.fromkeys(touched))
        for join in touched:
            affected += self._take(joins.rows_of(join), change)
        old, height = joins.board.points[node].copy(), float(joins.board.nodes[node]["height"])
        self._put_node(node, point, height if height_ms is None else height_ms)
        change.undo.append(lambda: self._put_node(node, old, height))
        for join in touched:
            self._virtual(join, change)
        self._place(affected, change)
        return self._recorded(change)

    def set_rate(self, source: int, rate_tps: float) -> ColumnChange:
        """A source sends more or less: its joins are split and placed again."""
        if not (rate_tps > 0 and np.isfinite(rate_tps)):
            raise InputError(f"source {source} must have a positive rate, not {rate_tps:g}; remove the source instead")
        self._source(source)
        joins, change = self.joins, ColumnChange(f"rate of source {source} changed")
        touched = self._joins_of(source)
        for join in touched:
            self._take(joins.rows_of(join), change)
        old = float(joins.board.sources[source]["rate"])
        self._set(joins.board.sources, source, "rate", rate_tps)
        change.undo.append(lambda: self._set(self.joins.board.sources, source, "rate", old))
        for join in touched:
            self._split(join, change)
        self._place([self._whole(join) for join in touched], change)
        return self._recorded(change)

    def set_capacity(self, node: int, capacity_tps: float) -> ColumnChange:
        """A node can take in more or less. Only what does not fit any more moves, the smallest replicas first."""
        self._node(node)
        if not capacity_tps >= 0:
            raise InputError(f"node {node}'s capacity must not be negative, but is {capacity_tps:g}")
        joins, change = self.joins, ColumnChange(f"capacity of node {node} changed")
        old = float(joins.board.nodes[node]["capacity"])
        affected: list[Piece] = []
        rows = sorted(joins.rows_on(node), key=self._demand)
        while rows and float(joins.board.nodes[node]["load"]) > capacity_tps:
            affected += self._take([rows.pop(0)], change)
        self._put_capacity(node, capacity_tps)
        change.undo.append(lambda: self._put_capacity(node, old))
        self._place(affected, change)
        return self._recorded(change)

    def add_source(self, node: int, rate_tps: float) -> int:
        """Adds a source without partners and returns its row."""
        self._node(node)
        if not (rate_tps > 0 and np.isfinite(rate_tps)):
            raise InputError(f"a source must have a positive rate, not {rate_tps:g}")
        source = add_source_row(self.joins, node, rate_tps)
        self._new_sources.setdefault(node, []).append(source)
        return source

    def add_join(self, left: int, right: int, sink: int) -> tuple[int, ColumnChange]:
        """An entry of the join matrix became true: one more join."""
        for source in (left, right):
            self._source(source)
        if left == right:
            raise InputError(f"source {left} cannot join itself")
        self._node(sink)
        join = add_join_row(self.joins, left, right, sink)
        self._sinks.add(sink)
        change = ColumnChange(f"join {join} added")
        change.undo.append(lambda: self._deactivate(join))
        self._split(join, None)
        self._virtual(join, None)
        self._place([self._whole(join)], change)
        self._recorded(change)
        return join, change

    def remove_join(self, join: int) -> ColumnChange:
        """An entry of the join matrix became false."""
        if not (0 <= join < len(self.joins.active) and self.joins.active[join]):
            raise InputError(f"no join {join} to remove")
        change = ColumnChange(f"join {join} removed")
        self._end(join, change)
        return self._recorded(change)

    def retry(self) -> ColumnChange:
        """Tries all joins without room again."""
        change = ColumnChange("unplaced joins tried again")
        self._place([self._whole(int(join)) for join in self.joins.unplaced], change)
        return self._recorded(change)
