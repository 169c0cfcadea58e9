"""The effect of events on placed joins: replicas taken away and made again, rows dropped and put back, each step
undoable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.cell_placement import MOST_BROADCAST, NO_ROWS, PLACED, RECTANGLES, place_cells
from meander.place.nova.index import tree as trees
from meander.place.nova.median import median
from meander.place.nova.partition_count import parts, sigma_for
from meander.place.nova.running.columns import LEFT, RIGHT, attach, detach, leave_source, shares, use_source
from meander.place.nova.running.grow import ready
from meander.place.nova.running.joins import Joins, with_more_rows

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

Cells = tuple[int, int, int, int]
Parts = tuple[int, int]
Piece = tuple[int, Cells, Parts]
"""Join, cells, and the parts that the cells count in."""


@dataclass(slots=True)
class ColumnChange:
    """The effect of one event: replicas taken away, replicas made, and joins left without room."""

    event: str
    removed: list[tuple[int, Piece]] = field(default_factory=list)
    """With the nodes they were at."""
    added: list[Piece] = field(default_factory=list)
    """By join and cells: rows of the board are others after a later event was undone."""
    unplaced: list[int] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)

    @property
    def moved(self) -> int:
        return len(self.removed)


class Changer:
    """Placed joins and their changes; `history` holds those that can be undone."""

    def __init__(self, joins: Joins, *, keep: int = 1000) -> None:
        self.joins = joins
        self.history: list[ColumnChange] = []
        self._keep = keep
        self._added = np.empty(RECTANGLES, dtype=np.int64)
        nodes = joins.board.sources["node"][: joins.source_count]
        self._source_order = np.argsort(nodes, kind="stable")
        self._by_node = nodes[self._source_order]
        self._new_sources: dict[int, list[int]] = {}
        self._sinks = set(np.unique(joins.board.joins["sink"][: joins.join_count]).tolist())

    def _recorded(self, change: ColumnChange) -> ColumnChange:
        self.history.append(change)
        if len(self.history) > self._keep:
            del self.history[0]
        return change

    def _take(self, rows: Iterable[int], change: ColumnChange) -> list[Piece]:
        board, taken = self.joins.board, []
        for row in rows:
            join = int(board.replicas[row]["join"])
            piece = join, self._cells(row), self._parts(join)
            change.removed.append((int(board.replicas[row]["node"]), piece))
            detach(board, self.joins.tree, row)
            taken.append(piece)
        return taken

    def _place(self, affected: list[Piece], change: ColumnChange) -> None:
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
                rows = self._added[1 : self._added[0] + 1].tolist()
                change.added += [(join, self._cells(row), self._parts(join)) for row in rows]
                continue
            for piece in [p for p in change.added if p[0] == join]:
                detach(joins.board, joins.tree, self._row(piece))
                change.added.remove(piece)
            self._take(joins.rows_of(join), change)
            change.unplaced.append(join)

    def _row(self, piece: Piece) -> int:
        """The row of the replica with these cells."""
        cells = tuple(self._scaled(piece).tolist())
        return next(row for row in self.joins.rows_of(piece[0]) if self._cells(row) == cells)

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
                    joins.board,
                    joins.tree,
                    join,
                    cells,
                    joins.taste,
                    joins.rules,
                    joins.virtual[join],
                    self._added,
                    MOST_BROADCAST,
                    False,
                )
            )
            if status != NO_ROWS or len(joins.board.replicas) > 64 * RECTANGLES + 8 * len(joins.board.joins):
                return status
            joins.board = with_more_rows(joins.board)

    def _end(self, join: int, change: ColumnChange) -> None:
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

    def _split(self, join: int, change: ColumnChange | None) -> None:
        """Decides the number of parts anew."""
        board = self.joins.board
        left, right = (board.sources["rate"][[s]] for s in board.joins[join]["ends"])
        sigma = self.joins.settings.sigma
        chosen = sigma_for(left, right, self.joins.rules.bandwidth) if sigma is None else sigma
        old = self._parts(join)
        board.joins["parts"][join] = parts(left, right, chosen)[0]
        if change is not None:
            change.undo.append(partial(self._set_parts, join, old))

    def _virtual(self, join: int, change: ColumnChange | None) -> None:
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

    def undo(self) -> ColumnChange:
        """Takes the last event back: every replica is where it was."""
        if not self.history:
            raise InputError("there is nothing to undo")
        change = self.history.pop()
        joins = self.joins
        for piece in change.added:
            detach(joins.board, joins.tree, self._row(piece))
        for step in reversed(change.undo):
            step()
        for node, piece in reversed(change.removed):
            board = joins.board
            attach(board, joins.tree, piece[0], self._scaled(piece), node, bool(shares(board, piece[0])))
        return change
