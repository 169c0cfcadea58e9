"""Changes at run time, at the price of what they touch: only replicas of affected joins move, and the index follows.

Every event returns what it moved and can be undone, last one first. An event that cannot be carried out raises before
anything is changed; joins that find no room any more are reported as unplaced and tried again when they are next
touched, or by `retry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova import tree as trees
from meander.place.nova.board import LEFT, RIGHT, attach, detach, leave_source, shares, use_source
from meander.place.nova.grow import add_join_row, add_node_row, add_source_row, ready
from meander.place.nova.joins import Joins, with_more_rows
from meander.place.nova.median import median
from meander.place.nova.partition import parts, sigma_for
from meander.place.nova.placing import NO_ROWS, PLACED, RECTANGLES, place_cells

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

Cells = tuple[int, int, int, int]
Parts = tuple[int, int]
Piece = tuple[int, Cells, Parts]
"""Join, cells, and the parts that the cells count in."""


@dataclass(slots=True)
class Change:
    """What one event did: replicas that were taken away and that were made, and joins left without room."""

    event: str
    removed: list[tuple[int, Piece]] = field(default_factory=list)
    """With the nodes they were at."""
    added: list[int] = field(default_factory=list)
    """Rows of the board."""
    unplaced: list[int] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)

    @property
    def moved(self) -> int:
        return len(self.removed)


class Reoptimiser:
    """Applies events to placed joins. `history` holds what can be undone."""

    def __init__(self, joins: Joins, *, keep: int = 1000) -> None:
        self.joins = joins
        self.history: list[Change] = []
        self._keep = keep
        self._added = np.empty(RECTANGLES, dtype=np.int64)
        nodes = joins.board.sources["node"][: joins.source_count]
        self._source_order = np.argsort(nodes, kind="stable")
        self._by_node = nodes[self._source_order]
        self._new_sources: dict[int, list[int]] = {}
        self._sinks = set(np.unique(joins.board.joins["sink"][: joins.join_count]).tolist())

    # ------------------------------------------------------------------------------------------------ events

    def add_node(self, point: Floats, capacity_tps: float, height_ms: float = 0.0) -> int:
        """A new idle node; its row is returned. Nothing moves."""
        self._point(point)
        if not capacity_tps >= 0:
            raise InputError(f"a node's capacity must not be negative, but is {capacity_tps:g}")
        joins = self.joins
        node = add_node_row(joins, point, capacity_tps, height_ms)
        trees.insert(joins.tree, node, joins.board.points[node], height_ms, capacity_tps)
        change = Change(f"node {node} added")
        change.undo.append(lambda: self._drop_node(node))
        self._remember(change)
        return node

    def remove_node(self, node: int) -> Change:
        """A node leaves: its sources' joins end, replicas it ran are placed elsewhere."""
        self._node(node)
        joins, change = self.joins, Change(f"node {node} removed")
        if self._is_sink(node) and bool((joins.board.joins["sink"][joins.active] == node).any()):
            raise InputError(f"node {node} is a sink of joins; remove those joins or give them another sink first")
        for source in self._sources_at(node):
            for join in self._joins_of(source):
                self._end(join, change)
        affected = self._take(joins.rows_on(node), change)
        self._drop_node(node)
        change.undo.append(lambda: self._return_node(node))
        self._place(affected, change)
        return self._remember(change)

    def move_node(self, node: int, point: Floats, height_ms: float | None = None) -> Change:
        """A node's coordinates changed: joins it is a source or sink of, and replicas it runs, are placed again."""
        self._node(node)
        self._point(point)
        joins, change = self.joins, Change(f"node {node} moved")
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
        return self._remember(change)

    def set_rate(self, source: int, rate_tps: float) -> Change:
        """A source sends more or less: its joins are split and placed again."""
        if not (rate_tps > 0 and np.isfinite(rate_tps)):
            raise InputError(f"source {source} must have a positive rate, not {rate_tps:g}; remove the source instead")
        self._source(source)
        joins, change = self.joins, Change(f"rate of source {source} changed")
        touched = self._joins_of(source)
        for join in touched:
            self._take(joins.rows_of(join), change)
        old = float(joins.board.sources[source]["rate"])
        self._set(joins.board.sources, source, "rate", rate_tps)
        change.undo.append(lambda: self._set(self.joins.board.sources, source, "rate", old))
        for join in touched:
            self._split(join, change)
        self._place([self._whole(join) for join in touched], change)
        return self._remember(change)

    def set_capacity(self, node: int, capacity_tps: float) -> Change:
        """A node can take in more or less. Only what does not fit any more moves, the smallest replicas first."""
        self._node(node)
        if not capacity_tps >= 0:
            raise InputError(f"node {node}'s capacity must not be negative, but is {capacity_tps:g}")
        joins, change = self.joins, Change(f"capacity of node {node} changed")
        old = float(joins.board.nodes[node]["capacity"])
        affected: list[Piece] = []
        rows = sorted(joins.rows_on(node), key=self._demand)
        while rows and float(joins.board.nodes[node]["load"]) > capacity_tps:
            affected += self._take([rows.pop(0)], change)
        self._put_capacity(node, capacity_tps)
        change.undo.append(lambda: self._put_capacity(node, old))
        self._place(affected, change)
        return self._remember(change)

    def add_source(self, node: int, rate_tps: float) -> int:
        """A new source, joined with nobody yet; its row is returned."""
        self._node(node)
        if not (rate_tps > 0 and np.isfinite(rate_tps)):
            raise InputError(f"a source must have a positive rate, not {rate_tps:g}")
        source = add_source_row(self.joins, node, rate_tps)
        self._new_sources.setdefault(node, []).append(source)
        return source

    def add_join(self, left: int, right: int, sink: int) -> tuple[int, Change]:
        """An entry of the join matrix became true: one more join."""
        for source in (left, right):
            self._source(source)
        if left == right:
            raise InputError(f"source {left} cannot join itself")
        self._node(sink)
        join = add_join_row(self.joins, left, right, sink)
        self._sinks.add(sink)
        change = Change(f"join {join} added")
        change.undo.append(lambda: self._deactivate(join))
        self._split(join, None)
        self._virtual(join, None)
        self._place([self._whole(join)], change)
        self._remember(change)
        return join, change

    def remove_join(self, join: int) -> Change:
        """An entry of the join matrix became false."""
        if not (0 <= join < len(self.joins.active) and self.joins.active[join]):
            raise InputError(f"no join {join} to remove")
        change = Change(f"join {join} removed")
        self._end(join, change)
        return self._remember(change)

    def remove_source(self, source: int) -> Change:
        """A source ends, and all its joins."""
        self._source(source)
        change = Change(f"source {source} removed")
        for join in self._joins_of(source):
            self._end(join, change)
        return self._remember(change)

    def retry(self) -> Change:
        """Tries all joins without room again."""
        change = Change("unplaced joins tried again")
        self._place([self._whole(int(join)) for join in self.joins.unplaced], change)
        return self._remember(change)

    def undo(self) -> Change:
        """Takes the last event back: every replica is where it was."""
        if not self.history:
            raise InputError("there is nothing to undo")
        change = self.history.pop()
        joins = self.joins
        for row in change.added:
            detach(joins.board, joins.tree, row)
        for step in reversed(change.undo):
            step()
        for node, piece in reversed(change.removed):
            board = joins.board
            attach(board, joins.tree, piece[0], self._scaled(piece), node, bool(shares(board, piece[0])))
        return change

    # ------------------------------------------------------------------------------------------- how it is done

    def _remember(self, change: Change) -> Change:
        self.history.append(change)
        if len(self.history) > self._keep:
            del self.history[0]
        return change

    def _take(self, rows: Iterable[int], change: Change) -> list[Piece]:
        board, taken = self.joins.board, []
        for row in rows:
            join = int(board.replicas[row]["join"])
            piece = join, self._cells(row), self._parts(join)
            change.removed.append((int(board.replicas[row]["node"]), piece))
            detach(board, self.joins.tree, row)
            taken.append(piece)
        return taken

    def _place(self, affected: list[Piece], change: Change) -> None:
        """Largest first. A join that does not fit any more gives up its other replicas as well."""
        joins = self.joins
        for piece in sorted(affected, key=lambda piece: -self._demand_of(*piece)):
            join = piece[0]
            if not joins.active[join] or join in change.unplaced:
                continue
            before, was = self._parts(join), int(joins.status[join])
            status = self._place_cells(join, self._scaled(piece))
            if self._parts(join) != before:
                change.undo.append(partial(self._set_parts, join, before))
            if was != status:
                change.undo.append(partial(self._set_status, join, was))
                joins.status[join] = status
            if status == PLACED:
                change.added += self._added[1 : self._added[0] + 1].tolist()
                continue
            mine = set(joins.rows_of(join))
            for row in mine.intersection(change.added):
                detach(joins.board, joins.tree, row)
            change.added = [row for row in change.added if row not in mine]
            self._take(joins.rows_of(join), change)
            change.unplaced.append(join)

    def _scaled(self, piece: Piece) -> Ints32:
        """Cells in today's parts: the join may have been split finer since."""
        join, (a, b, c, d), (left, right) = piece
        now_left, now_right = self._parts(join)
        scaled = a * now_left // left, b * now_left // left, c * now_right // right, d * now_right // right
        return np.array(scaled, dtype=np.int32)

    def _place_cells(self, join: int, cells: Ints32) -> int:
        joins = self.joins
        while True:
            status = int(
                place_cells(
                    joins.board, joins.tree, join, cells, joins.taste, joins.rules, joins.virtual[join], self._added
                )
            )
            if status != NO_ROWS or len(joins.board.replicas) > 64 * RECTANGLES + 8 * len(joins.board.joins):
                return status
            joins.board = with_more_rows(joins.board)

    def _end(self, join: int, change: Change) -> None:
        joins = self.joins
        self._take(joins.rows_of(join), change)
        was = int(joins.status[join])
        joins.active[join], joins.status[join] = False, PLACED
        for side in (LEFT, RIGHT):
            leave_source(joins.board, join, side)
        change.undo.append(lambda: self._reactivate(join, was))

    def _reactivate(self, join: int, status: int) -> None:
        self.joins.active[join], self.joins.status[join] = True, status
        for side in (LEFT, RIGHT):
            use_source(self.joins.board, join, side)

    def _deactivate(self, join: int) -> None:
        self.joins.active[join], self.joins.status[join] = False, PLACED
        for side in (LEFT, RIGHT):
            leave_source(self.joins.board, join, side)

    def _drop_node(self, node: int) -> None:
        trees.remove(self.joins.tree, node)
        self.joins.alive[node] = False

    def _return_node(self, node: int) -> None:
        board = self.joins.board
        ready(self.joins)
        row = board.nodes[node]
        free = float(row["capacity"]) - float(row["load"])
        trees.insert(self.joins.tree, node, board.points[node], float(row["height"]), free)
        self.joins.alive[node] = True

    def _put_node(self, node: int, point: Floats, height: float) -> None:
        trees.remove(self.joins.tree, node)
        self.joins.board.points[node] = point
        self.joins.board.nodes[node]["height"] = height
        self._return_node(node)

    def _put_capacity(self, node: int, capacity: float) -> None:
        self._set(self.joins.board.nodes, node, "capacity", capacity)
        trees.set_free(self.joins.tree, node, capacity - float(self.joins.board.nodes[node]["load"]))

    @staticmethod
    def _set(rows: NDArray[np.void], row: int, field_name: str, value: float) -> None:
        rows[field_name][row] = value

    def _parts(self, join: int) -> Parts:
        left, right = self.joins.board.joins[join]["parts"].tolist()
        return left, right

    def _set_parts(self, join: int, count: Parts) -> None:
        """Goes back to coarser parts; replicas that stayed are multiples of them."""
        board, now = self.joins.board, self._parts(join)
        for row in self.joins.rows_of(join):
            a, b, c, d = self._cells(row)
            scaled = a * count[0] // now[0], b * count[0] // now[0], c * count[1] // now[1], d * count[1] // now[1]
            board.replicas["cells"][row] = scaled
        board.joins["parts"][join] = count

    def _set_status(self, join: int, status: int) -> None:
        self.joins.status[join] = status

    def _split(self, join: int, change: Change | None) -> None:
        """Decides the number of parts anew."""
        board = self.joins.board
        left, right = (board.sources["rate"][[s]] for s in board.joins[join]["ends"])
        sigma = self.joins.settings.sigma
        chosen = sigma_for(left, right, self.joins.rules.bandwidth) if sigma is None else sigma
        old = self._parts(join)
        board.joins["parts"][join] = parts(left, right, chosen)[0]
        if change is not None:
            change.undo.append(partial(self._set_parts, join, old))

    def _virtual(self, join: int, change: Change | None) -> None:
        board, joins = self.joins.board, self.joins
        nodes = [
            *(int(board.sources[int(s)]["node"]) for s in board.joins[join]["ends"]),
            int(board.joins[join]["sink"]),
        ]
        old = joins.virtual[join].copy()
        joins.virtual[join] = median(board.points[nodes], np.array([1.0, 1.0, 2 * joins.taste.sink_weight]))
        if change is not None:
            change.undo.append(lambda: self._set_virtual(join, old))

    def _set_virtual(self, join: int, point: Floats) -> None:
        self.joins.virtual[join] = point

    def _cells(self, row: int) -> Cells:
        a, b, c, d = self.joins.board.replicas[row]["cells"].tolist()
        return a, b, c, d

    def _whole(self, join: int) -> Piece:
        left, right = self._parts(join)
        return join, (0, left, 0, right), (left, right)

    def _demand(self, row: int) -> float:
        join = int(self.joins.board.replicas[row]["join"])
        return self._demand_of(join, self._cells(row), self._parts(join))

    def _demand_of(self, join: int, cells: Cells, count: Parts) -> float:
        board = self.joins.board
        left, right = (float(board.sources["rate"][s]) for s in board.joins[join]["ends"])
        return (cells[1] - cells[0]) / count[0] * left + (cells[3] - cells[2]) / count[1] * right

    def _joins_of(self, source: int) -> list[int]:
        board, found = self.joins.board, []
        use = int(board.sources[source]["first"])
        while use >= 0:
            found.append(use // 2)
            use = int(board.joins[use // 2]["use_next"][use % 2])
        return found

    def _sources_at(self, node: int) -> list[int]:
        begin, end = np.searchsorted(self._by_node, np.array((node, node + 1), dtype=np.int32))
        return [*self._source_order[begin:end].tolist(), *self._new_sources.get(node, ())]

    def _is_sink(self, node: int) -> bool:
        return node in self._sinks

    def _node(self, node: int) -> None:
        if not (0 <= node < len(self.joins.alive) and self.joins.alive[node]):
            raise InputError(f"no node {node}; it never existed or has left")

    def _source(self, source: int) -> None:
        if not 0 <= source < self.joins.source_count:
            raise InputError(f"no source {source}; there are {self.joins.source_count}")

    def _point(self, point: Floats) -> None:
        wanted = self.joins.board.points.shape[1]
        if np.shape(point) != (wanted,) or not np.isfinite(point).all():
            raise InputError(f"a place needs {wanted} finite coordinates, not {np.asarray(point).tolist()}")
