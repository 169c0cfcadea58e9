"""The input of Nova: nodes with a place and a capacity, sources with a rate, the pairs that join, and the goals of
results.

Everything is a column. Latency comes from coordinates (with heights), from a measured matrix, or, through
`from_topology`, from paths. Bad input is refused with the entries named; `repair` corrects what can be corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

UNLIMITED = float("inf")
NO_MATRIX = np.zeros((0, 0))
SHOWN = 3


@dataclass(frozen=True)
class Columns:
    """The columns of a problem before validation.

    Sources are rows of `source_*`, joins are rows of `join_*`; a node is its row in the cost space.
    """

    points: Floats
    heights: Floats
    capacity_tps: Floats
    source_node: Ints32
    source_tps: Floats
    join_left: Ints32
    """Per join its left source."""
    join_right: Ints32
    join_sink: Ints32
    """Per join the node its results go to."""
    matrix_ms: Floats = field(default_factory=lambda: NO_MATRIX)
    """Measured latency between all nodes, where that is known: it then counts instead of the coordinates."""
    least_free_tps: float = 0.0
    """Nodes with less free than this take nothing more (C_min)."""
    bandwidth_tps: float = UNLIMITED
    """The most that one replica may take in (t_b)."""
    names: Sequence[str] = ()


@dataclass(frozen=True)
class JoinProblem(Columns):
    """Columns without mistakes: making one refuses them, with the entries named."""

    def __post_init__(self) -> None:
        nodes, sources, joins = len(self.points), len(self.source_node), len(self.join_left)
        if self.points.ndim != 2 or self.points.shape[1] < 1:
            raise InputError(f"coordinates must be rows of numbers, one row per node, not {self.points.shape}")
        for what, column, wanted in (
            ("heights", self.heights, nodes), ("capacities", self.capacity_tps, nodes),
            ("source rates", self.source_tps, sources), ("right sources of joins", self.join_right, joins),
            ("sinks of joins", self.join_sink, joins),
        ):  # fmt: skip
            if len(column) != wanted:
                raise InputError(f"{len(column)} {what} where {wanted} are needed; give one for each")
        if self.matrix_ms.size and self.matrix_ms.shape != (nodes, nodes):
            raise InputError(f"a matrix of {self.matrix_ms.shape} does not fit {nodes} nodes; give one row for each")
        _refuse(self)

    @property
    def nodes(self) -> int:
        return len(self.points)

    @property
    def joins(self) -> int:
        return len(self.join_left)

    @property
    def demand_tps(self) -> Floats:
        """The input of each join when it is not split."""
        return np.asarray(self.source_tps[self.join_left] + self.source_tps[self.join_right], dtype=np.float64)

    def name(self, node: int) -> str:
        return str(self.names[node]) if len(self.names) else f"node {node}"

    def latency_ms(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> Floats:
        """Latency between pairs of nodes, by the matrix if there is one."""
        if self.matrix_ms.size:
            return np.asarray(self.matrix_ms[a, b], dtype=np.float64)
        away = np.linalg.norm(self.points[a] - self.points[b], axis=-1) + self.heights[a] + self.heights[b]
        return np.asarray(np.where(np.asarray(a) == np.asarray(b), 0.0, away), dtype=np.float64)


def checked(columns: Columns) -> JoinProblem:
    """The problem as its columns are; mistakes are refused."""
    return JoinProblem(*(getattr(columns, f.name) for f in fields(columns)))


def pairs_by_key(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[Ints32, Ints32]:
    """The join matrix of a key such as a region: positions in `left` and in `right` with equal keys.

    >>> [side.tolist() for side in pairs_by_key(["north", "south", "south"], ["south"])]
    [[1, 2], [0, 0]]
    """
    by_key: dict[Hashable, list[int]] = {}
    for position, key in enumerate(right):
        by_key.setdefault(key, []).append(position)
    found = [(i, j) for i, key in enumerate(left) for j in by_key.get(key, ())]
    both = np.array(found, dtype=np.int32).reshape(len(found), 2)
    return both[:, 0].copy(), both[:, 1].copy()


def all_pairs(left: int, right: int) -> tuple[Ints32, Ints32]:
    """The join matrix when nothing is known: everything may join everything."""
    i, j = np.divmod(np.arange(left * right, dtype=np.int32), np.int32(right))
    return i.astype(np.int32), j.astype(np.int32)


# ------------------------------------------------------------------------------------------------ bad input


def _refuse(p: JoinProblem) -> None:
    """Raises for the first kind of bad entry, naming up to three of them."""
    source = lambda i: f"source {i} at {p.name(int(p.source_node[i]))}"  # noqa: E731
    join = lambda i: f"join {i}"  # noqa: E731
    _check(
        p.source_node < 0, source, "has no node", "give each source a node of the topology", p.source_node >= p.nodes
    )
    for what, column, limit in (
        ("left source", p.join_left, len(p.source_node)), ("right source", p.join_right, len(p.source_node)),
        ("sink", p.join_sink, p.nodes),
    ):  # fmt: skip
        _check(column < 0, join, f"has no {what}", "remove joins without partner (--repair does)", column >= limit)
    _check(p.join_left == p.join_right, join, "joins a source with itself", "give it two sources")
    _check(~(p.source_tps > 0), source, "has no positive rate", "remove such sources (--repair does)",
           np.isinf(p.source_tps))  # fmt: skip
    node = p.name
    _check(np.isnan(p.capacity_tps), node, "has no capacity", "give a number of tuples per second", p.capacity_tps < 0)
    known = np.asarray(~np.isnan(p.points).any(axis=1) & np.isfinite(p.heights))
    _check(~known[p.source_node], source, "is unreachable: it has no place in the cost space",
           "measure it or remove it (--repair does)")  # fmt: skip
    _check(~known[p.join_sink], join, "has an unreachable sink", "measure the sink's node")
    if p.matrix_ms.size:
        _check_matrix(p)
    if not p.least_free_tps >= 0 or not p.bandwidth_tps > 0:
        raise InputError("the least free capacity must not be negative, and the bandwidth threshold must be positive")
    if p.joins and not _could_fit(p):
        most = float(np.nanmax(p.capacity_tps))
        raise InputError(
            f"the joins take in at least {_least_total(p):,.0f} tuples per second, but all nodes together have "
            f"{float(np.sum(p.capacity_tps[known])):,.0f} (the largest {most:,.0f}); add capacity or remove joins"
        )


def _least_total(p: JoinProblem) -> float:
    """No placement takes in less than every joined source once."""
    used = np.unique(np.concatenate((p.join_left, p.join_right)))
    return float(p.source_tps[used].sum())


def _could_fit(p: JoinProblem) -> bool:
    return _least_total(p) <= float(np.sum(p.capacity_tps[~np.isnan(p.points[:, 0])])) * (1 + 1e-9)


def _check(
    bad: NDArray[np.bool_],
    who: Callable[[int], str],
    complaint: str,
    remedy: str,
    also: NDArray[np.bool_] | None = None,
) -> None:
    places = np.flatnonzero(bad if also is None else bad | also)
    if len(places):
        named = ", ".join(_safe(who, int(i)) for i in places[:SHOWN])
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        verb = complaint if len(places) == 1 else complaint.replace("has ", "have ", 1).replace("is ", "are ", 1)
        raise InputError(f"{named}{more} {verb}; {remedy}")


def _safe(who: Callable[[int], str], row: int) -> str:
    try:
        return who(row)
    except IndexError:
        return f"row {row}"


def _check_matrix(p: JoinProblem) -> None:
    matrix = p.matrix_ms
    pair = lambda k: f"{p.name(k // p.nodes)} to {p.name(k % p.nodes)}"  # noqa: E731
    remedy = "--repair fills such entries"
    _check(np.isnan(matrix).ravel(), pair, "is not measured", remedy)
    _check((matrix < 0).ravel(), pair, "has a negative latency", remedy)
    _check(np.isinf(matrix).ravel(), pair, "is unreachable", remedy)
    uneven = np.abs(matrix - matrix.T) > 1e-6 * np.maximum(matrix, matrix.T)
    _check(np.triu(uneven).ravel(), pair, "has another latency back", "--repair takes the mean of both directions")
