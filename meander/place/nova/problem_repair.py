"""Corrects mistakes in a problem where it can, and lists the corrections.

Sources without a positive rate, a node or a place are left out; joins that lose a partner or have no sink as well;
nodes without a usable capacity take nothing. In a matrix the mean of both directions counts; a gap takes the opposite
entry, or else the shortest detour.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import csgraph_from_dense, shortest_path

from meander.place.costspace.mds import symmetric
from meander.place.nova.problem import Columns, JoinProblem, checked

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


def repaired(columns: Columns) -> tuple[JoinProblem, list[str]]:
    """A problem from columns with mistakes, and a sentence for each kind of correction."""
    notes: list[str] = []
    capacity = np.where(np.isnan(columns.capacity_tps) | (columns.capacity_tps < 0), 0.0, columns.capacity_tps)
    _note(notes, capacity != columns.capacity_tps, "nodes without a usable capacity take no joins")
    known = np.asarray(~np.isnan(columns.points).any(axis=1))
    good = (columns.source_tps > 0) & np.isfinite(columns.source_tps) & _known(columns.source_node, known)
    _note(notes, ~good, "sources without a positive rate or a place were left out")
    usable = _known(columns.join_left, good) & _known(columns.join_right, good) & _known(columns.join_sink, known)
    usable &= columns.join_left != columns.join_right
    _note(notes, ~usable, "joins without partner or sink were left out")
    new = (np.cumsum(good) - 1).astype(np.int32)
    better = Columns(
        columns.points, columns.heights, capacity, columns.source_node[good], columns.source_tps[good],
        new[columns.join_left[usable]], new[columns.join_right[usable]], columns.join_sink[usable],
        repaired_matrix(columns.matrix_ms, notes), columns.least_free_tps, columns.bandwidth_tps, columns.names,
    )  # fmt: skip
    return checked(better), notes


def repaired_matrix(matrix: Floats, notes: list[str]) -> Floats:
    """A symmetric matrix without gaps."""
    if not matrix.size:
        return matrix
    wrong = ~np.isfinite(matrix) | (matrix < 0)
    _note(notes, wrong.ravel(), "latencies were missing or negative and were filled in")
    cleaned = np.where(wrong, np.nan, matrix)
    uneven = np.abs(cleaned - cleaned.T) > 1e-6 * np.maximum(cleaned, cleaned.T)
    _note(notes, np.triu(uneven).ravel(), "pairs had two latencies, of which the mean was taken")
    both = symmetric(cleaned)
    if np.isnan(both).any():
        detours = shortest_path(csgraph_from_dense(both, null_value=np.nan), directed=False)
        both = np.where(np.isnan(both), detours, both)
    return np.asarray(both, dtype=np.float64)


def _known(rows: Ints32, good: Bools) -> Bools:
    inside = (rows >= 0) & (rows < len(good))
    inside[inside] = good[rows[inside]]
    return np.asarray(inside)


def _note(notes: list[str], wrong: Bools, text: str) -> None:
    count = int(np.count_nonzero(wrong))
    if count:
        notes.append(f"{count} {text}")
