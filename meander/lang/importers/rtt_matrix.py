"""A square matrix of round-trip times becomes a full mesh; a link's latency is half the round trip.

A matrix that is not symmetric, or has gaps, negative or infinite entries, is refused with the entries named. With
repair, the mean of both directions counts; a gap takes the opposite entry, or else the shortest detour.
"""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meander.lang.importers.imported import Imported
from meander.lang.topology.reader import DEFAULT_SLOTS, TopologyFile
from meander.model.errors import InputError
from meander.model.text_files import read_text
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import topology_of_columns

KEY = "rtt_ms"
TOLERANCE = 1e-6
SHOWN_ENTRIES = 3

Matrix = NDArray[np.float64]


def import_rtt_matrix(path: Path, repair: bool = False) -> Imported:
    """Reads .csv (optionally gzipped, with or without names) or .npz (key `rtt_ms`, names in `name`)."""
    names, matrix = _from_npz(path) if path.suffix == ".npz" else _from_csv(path)
    try:
        rtt_ms, notes = _checked(matrix, repair)
    except InputError as error:
        raise error.at(str(path)) from None
    names = names or [f"node-{i + 1}" for i in range(len(rtt_ms))]
    tails, tips = np.triu_indices(len(rtt_ms), 1)
    topology = topology_of_columns(
        names,
        np.full(len(names), NodeKind.EDGE, dtype=np.uint8),
        np.full(len(names), DEFAULT_SLOTS[NodeKind.EDGE], dtype=np.int32),
        tails.astype(np.int32),
        tips.astype(np.int32),
        (rtt_ms[tails, tips] / 2).astype(np.float32),
    )
    try:
        topology.id(names[0])
    except InputError as error:
        raise error.at(str(path)) from None
    notes += ("latency is half the round-trip time", "all nodes are edges; name sensors and clouds in the file")
    return Imported(TopologyFile(topology, {}, {}), notes=notes)


def _from_npz(path: Path) -> tuple[list[str], Matrix]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if KEY not in arrays.files:
                raise InputError(f"no array {KEY!r}; the file has: {', '.join(arrays.files) or 'nothing'}", str(path))
            matrix = np.array(arrays[KEY], dtype=np.float64)
            names = [str(name) for name in arrays["name"]] if "name" in arrays.files else []
    except OSError as error:
        raise InputError(f"cannot read this file: {(error.strerror or 'not an npz file').lower()}", str(path)) from None
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError, TypeError):
        raise InputError(f"this is not an npz file with a matrix {KEY!r} of numbers", str(path)) from None
    if names and len(names) != len(matrix):
        raise InputError(f"{len(names)} names for {len(matrix)} rows; give one name per row", str(path))
    return names, matrix


def _from_csv(path: Path) -> tuple[list[str], Matrix]:
    """Numbers only, or a header with names and, behind an empty first cell, a name before each row."""
    rows = [
        (n, row) for n, row in enumerate(csv.reader(read_text(path).splitlines()), 1) if any(c.strip() for c in row)
    ]
    if not rows:
        raise InputError("the file is empty; one line per node expected", str(path))
    header = [cell.strip() for cell in rows[0][1]]
    names: list[str] = []
    if any(cell and not _is_number(cell) for cell in header):
        led = not header[0] or (len(rows) > 1 and not _is_number(rows[1][1][0]))
        names, rows = header[1:] if led else header, rows[1:]
        rows = [(n, row[1:]) for n, row in rows] if led else rows
    values = []
    for line, row in rows:
        values.append([_cell(cell, f"{path}, line {line}", column) for column, cell in enumerate(row, 1)])
        if len(row) != len(values[0]):
            raise InputError(f"{len(row)} entries, but {len(values[0])} on the line above", f"{path}, line {line}")
    if names and len(names) != len(values):
        raise InputError(f"{len(names)} names for {len(values)} rows; give one name per row", str(path))
    return names, np.array(values, dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cell(text: str, where: str, column: int) -> float:
    text = text.strip()
    if not text or text in ("-", "NA", "null"):
        return float("nan")
    if not _is_number(text):
        raise InputError(f"entry {column} must be a number of milliseconds, not {text!r}", where)
    return float(text)


def _checked(matrix: Matrix, repair: bool) -> tuple[Matrix, tuple[str, ...]]:
    """The matrix when it is fit to use, repaired if that is wanted, and the list of repairs."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " x ".join(map(str, matrix.shape))
        raise InputError(f"the matrix is {shape}; it must have as many rows as columns")
    matrix = matrix.copy()
    np.fill_diagonal(matrix, 0.0)
    gaps = ~np.isfinite(matrix) | (matrix < 0)
    opposite = matrix.T
    with np.errstate(invalid="ignore"):
        uneven = ~gaps & ~gaps.T & (np.abs(matrix - opposite) > TOLERANCE * np.maximum(matrix, opposite))
    if not repair:
        _refuse(np.isnan(matrix), matrix, "is missing")
        _refuse(matrix < 0, matrix, "is negative ({:g})")
        _refuse(np.isinf(matrix), matrix, "is infinite")
        pairs = np.argwhere(np.triu(uneven))
        if len(pairs):
            i, j = pairs[0]
            raise InputError(
                f"the matrix is not symmetric: row {i + 1}, column {j + 1} is {matrix[i, j]:g}, but row {j + 1}, "
                f"column {i + 1} is {matrix[j, i]:g}{_more(len(pairs) - 1, 'pair')}; --repair takes the mean"
            )
        return matrix, ()
    return _repaired(matrix, gaps, uneven)


def _repaired(matrix: Matrix, gaps: NDArray[np.bool_], uneven: NDArray[np.bool_]) -> tuple[Matrix, tuple[str, ...]]:
    known = np.where(gaps, np.nan, matrix)
    sides = np.where(gaps, known.T, known)
    both = (sides + sides.T) / 2
    open_ = np.isnan(both)
    if open_.any():
        from scipy.sparse.csgraph import csgraph_from_dense, shortest_path

        detours = shortest_path(csgraph_from_dense(both, null_value=np.nan), directed=False)
        both = np.where(open_, detours, both)
        pairs = np.argwhere(np.triu(~np.isfinite(both)))
        if len(pairs):
            i, j = pairs[0]
            raise InputError(
                f"row {i + 1}, column {j + 1} cannot be filled{_more(len(pairs) - 1, 'entry')}: no measurements "
                "connect the two nodes; remove one of them"
            )
    np.fill_diagonal(both, 0.0)
    counts = (
        (int(np.triu(uneven).sum()), "asymmetric {} replaced by the mean", "pair"),
        (int((gaps & ~open_).sum()), "{} filled from the opposite direction", "entry"),
        (int(np.triu(open_).sum()), "{} filled by the shortest detour", "pair"),
    )
    return both, tuple(f"{n} {text.format(_plural(what, n))}" for n, text, what in counts if n)


def _refuse(bad: NDArray[np.bool_], matrix: Matrix, complaint: str) -> None:
    places = np.argwhere(bad)
    if len(places):
        shown = "; ".join(
            f"row {i + 1}, column {j + 1} {complaint.format(matrix[i, j])}" for i, j in places[:SHOWN_ENTRIES]
        )
        raise InputError(f"{shown}{_more(len(places) - SHOWN_ENTRIES, 'entry')}; --repair fills such entries")


def _more(count: int, what: str) -> str:
    return f" (and {count} more {_plural(what, count)})" if count > 0 else ""


def _plural(what: str, count: int) -> str:
    return what if count == 1 else {"entry": "entries", "pair": "pairs"}[what]
