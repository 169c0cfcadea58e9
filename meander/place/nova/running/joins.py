"""Placed joins: Nova's state between events. Built by `place`, changed by `reoptimise`, read by all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.index import tree as trees
from meander.place.nova.index.search import Taste
from meander.place.nova.index.tree import NOWHERE, Tree
from meander.place.nova.node_choice import Rules
from meander.place.nova.partition_count import parts, sigma_for
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.columns import (
    JOIN,
    LEFT,
    NODE,
    REPLICA,
    REPLICAS,
    RIGHT,
    SOURCE,
    PlacedColumns,
    Rows,
    use_all,
)
from meander.place.nova.settings import NovaSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALL, LARGE = 20_000, 200_000
"""Up to SMALL nodes a search is exact; from LARGE on it may miss 5%, in between 2%."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A part of a join at a node. It reads the tuples whose partition number lies in its ranges.

    A tuple of a source gets a number in `range(parts)`, by a hash that both sides of the plan share; it goes to every
    replica of the join whose range holds that number. So each pair of tuples meets in exactly one replica.
    """

    join: int
    node: int
    left: range
    right: range
    left_parts: int
    right_parts: int


@dataclass
class Joins:
    """The board, its index, the virtual places, and joins that could not be placed."""

    board: PlacedColumns
    tree: Tree
    settings: NovaSettings
    rules: Rules
    taste: Taste
    alive: NDArray[np.bool_]
    """A flag for each node: whether it exists."""
    active: NDArray[np.bool_]
    """A flag for each join: whether it exists."""
    status: NDArray[np.int8]
    """Per join `placing.PLACED` or why it is not."""
    virtual: Floats
    """Per join its virtual place."""
    node_count: int
    """Rows of the board that are or were nodes; then sources, then joins. Rows beyond are spare."""
    source_count: int
    join_count: int
    seconds: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def none_placed(problem: JoinProblem, settings: NovaSettings, virtual: Floats) -> Joins:
        """All joins of a problem, none of them placed yet."""
        board = board_of(problem, settings.sigma)
        alive = np.asarray(~np.isnan(board.points).any(axis=1))
        active = np.arange(len(board.joins)) < problem.joins
        places = np.full((len(active), problem.points.shape[1]), np.nan)
        places[: problem.joins] = virtual
        rules = Rules(
            problem.least_free_tps, problem.bandwidth_tps, settings.overload.value, settings.by_distance,
            float(board.nodes["capacity"][: problem.nodes][alive[: problem.nodes]].max(initial=0.0)), False,
        )  # fmt: skip
        return Joins(
            board, index_of(board, alive), settings, rules, taste_of(problem, settings), alive, active,
            np.zeros(len(active), dtype=np.int8), places, problem.nodes, len(problem.source_node), problem.joins,
        )  # fmt: skip

    def latency_ms(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> Floats:
        """Latency between pairs of nodes as of now."""
        board = self.board
        if board.matrix.size:
            return np.asarray(board.matrix[a, b], dtype=np.float64)
        heights = board.nodes["height"]
        away = np.linalg.norm(board.points[a] - board.points[b], axis=-1) + heights[a] + heights[b]
        return np.asarray(np.where(np.asarray(a) == np.asarray(b), 0.0, away), dtype=np.float64)

    @property
    def placed(self) -> NDArray[np.bool_]:
        return np.asarray(self.active & (self.status == 0))

    @property
    def unplaced(self) -> Ints:
        """Joins that exist but found no room."""
        return np.flatnonzero(self.active & (self.status != 0))

    def rows(self) -> Ints:
        """The rows of all replicas."""
        used = int(self.board.counts[REPLICAS])
        return np.flatnonzero(self.board.replicas["join"][:used] != NOWHERE)

    def replicas(self, join: int | None = None) -> Iterator[Replica]:
        """All replicas, or those of one join."""
        rows = self.rows() if join is None else self.rows_of(join)
        for row in rows:
            owner, node, (a, b, c, d) = (self.board.replicas[row][f] for f in ("join", "node", "cells"))
            left, right = self.board.joins[owner]["parts"]
            yield Replica(int(owner), int(node), range(int(a), int(b)), range(int(c), int(d)), int(left), int(right))

    def rows_of(self, join: int) -> list[int]:
        found, row = [], int(self.board.joins[join]["first"])
        while row != NOWHERE:
            found.append(row)
            row = int(self.board.replicas[row]["in_next"])
        return found

    def rows_on(self, node: int) -> list[int]:
        found, row = [], int(self.board.nodes[node]["first"])
        while row != NOWHERE:
            found.append(row)
            row = int(self.board.replicas[row]["on_next"])
        return found

    def overloaded(self) -> Ints:
        """Nodes that take in more than they can."""
        nodes = self.board.nodes
        return np.flatnonzero(nodes["load"] > nodes["capacity"] * (1 + 1e-9) + 1e-6)

    def traffic_tps(self) -> float:
        """The input of all nodes together."""
        return float(self.board.nodes["load"].sum())


def board_of(problem: JoinProblem, sigma: float | None) -> PlacedColumns:
    """An empty board: no replica yet, the number of parts decided. There are spare rows for later joins."""
    nodes, sources, joins = problem.nodes, len(problem.source_node), problem.joins
    left, right = problem.source_tps[problem.join_left], problem.source_tps[problem.join_right]
    split = sigma_for(left, right, problem.bandwidth_tps) if sigma is None else sigma
    points = np.full((with_spare(nodes), problem.points.shape[1]), np.nan)
    points[:nodes] = problem.points
    board = PlacedColumns(
        points, np.ascontiguousarray(problem.matrix_ms, dtype=np.float64), node_rows(len(points)),
        source_rows(with_spare(sources)), join_rows(with_spare(joins)), replica_rows(joins + joins // 2 + 1024),
        np.array([0, NOWHERE], dtype=np.int64),
    )  # fmt: skip
    board.nodes["height"][:nodes], board.nodes["capacity"][:nodes] = problem.heights, problem.capacity_tps
    board.sources["node"][:sources], board.sources["rate"][:sources] = problem.source_node, problem.source_tps
    board.joins["ends"][:joins, LEFT], board.joins["ends"][:joins, RIGHT] = problem.join_left, problem.join_right
    board.joins["sink"][:joins], board.joins["parts"][:joins] = problem.join_sink, parts(left, right, split)
    use_all(board, joins)
    return board


def with_spare(count: int) -> int:
    """Rows for so many, and a few more."""
    return count + count // 32 + 64


def source_rows(count: int) -> Rows:
    rows = np.full(count, NOWHERE, dtype=SOURCE)
    rows["uses"] = 0
    return rows


def join_rows(count: int) -> Rows:
    rows = np.full(count, NOWHERE, dtype=JOIN)
    rows["parts"] = 1
    return rows


def node_rows(count: int) -> Rows:
    """Nodes without capacity or replicas."""
    rows = np.zeros(count, dtype=NODE)
    rows["first"] = NOWHERE
    return rows


def replica_rows(count: int) -> Rows:
    """Rows for replicas, all free."""
    rows = np.zeros(count, dtype=REPLICA)
    rows["join"] = NOWHERE
    return rows


def with_more_rows(board: PlacedColumns) -> PlacedColumns:
    """The same board with twice as many rows for replicas."""
    larger = replica_rows(2 * len(board.replicas))
    larger[: len(board.replicas)] = board.replicas
    return board._replace(replicas=larger)


def index_of(board: PlacedColumns, alive: NDArray[np.bool_]) -> Tree:
    return trees.build(board.points, board.nodes["height"], board.nodes["capacity"] - board.nodes["load"], alive)


def taste_of(problem: JoinProblem, settings: NovaSettings) -> Taste:
    """The taste that settings leave open, decided by the problem."""
    weight, slack = settings.sink_weight, settings.slack
    if weight is None:
        sinks = np.unique(problem.join_sink)
        needed = np.bincount(problem.join_sink, problem.demand_tps, minlength=problem.nodes)[sinks]
        weight = 1.0 if bool((needed <= problem.capacity_tps[sinks]).all()) else 0.5
    if slack is None:
        slack = 0.0 if problem.nodes <= SMALL else 0.02 if problem.nodes < LARGE else 0.05
    return Taste(weight, float("inf"), 0.0, slack)
