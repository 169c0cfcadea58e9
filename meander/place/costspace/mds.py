"""Multidimensional scaling: coordinates from a complete matrix of latencies. For small matrices.

Classical scaling gives the start; majorisation (SMACOF) then lowers the relative stress, which weighs short and long
latencies alike. Every step solves the same linear system, so it is factorised once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from meander.model.errors import InputError
from meander.place.costspace.space import CostSpace

Floats = NDArray[np.float64]

MOST_NODES = 2_000
LEAST_MS = 1e-3


def embed(latency_ms: Floats, dimensions: int = 2, *, steps: int = 300) -> CostSpace:
    """Coordinates without heights whose distances come close to the matrix. NaN stands for missing measures."""
    nodes = len(latency_ms)
    if latency_ms.shape != (nodes, nodes):
        raise InputError(f"scaling needs a square matrix of latencies, not {latency_ms.shape}")
    if nodes > MOST_NODES:
        raise InputError(f"scaling takes at most {MOST_NODES:,} nodes, not {nodes:,}; use Vivaldi instead")
    measured = symmetric(latency_ms)
    known = np.isfinite(measured) & ~np.eye(nodes, dtype=bool)
    start = classical(np.where(known, measured, np.nanmedian(measured) if known.any() else 0.0), dimensions)
    coordinates = _majorise(start, measured, known, steps)
    away = cdist(coordinates, coordinates)
    relative = np.where(known, np.abs(away - measured) / np.maximum(measured, LEAST_MS), np.nan)
    error = np.array([np.median(row[k]) if k.any() else 1.0 for row, k in zip(relative, known, strict=True)])
    return CostSpace(coordinates, np.zeros(nodes), np.clip(1 - error, 0, 1), messages=int(known.sum()) // 2)


def symmetric(latency_ms: Floats) -> Floats:
    """The mean of both directions; the one that was measured if the other was not."""
    other = latency_ms.T
    mean = np.where(np.isnan(latency_ms), other, np.where(np.isnan(other), latency_ms, (latency_ms + other) / 2))
    return np.asarray(np.where(np.eye(len(mean), dtype=bool), 0.0, mean), dtype=np.float64)


def classical(latency_ms: Floats, dimensions: int) -> Floats:
    """Principal coordinates of the double-centred squared matrix."""
    squared = np.where(np.eye(len(latency_ms), dtype=bool), 0.0, latency_ms) ** 2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    largest = np.argsort(values)[::-1][:dimensions]
    found = np.asarray(vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0)), dtype=np.float64)
    missing = dimensions - found.shape[1]
    return np.pad(found, ((0, 0), (0, missing))) if missing > 0 else found


def _majorise(coordinates: Floats, measured: Floats, known: NDArray[np.bool_], steps: int) -> Floats:
    weights = np.zeros(measured.shape)
    weights[known] = 1 / np.maximum(measured[known], LEAST_MS) ** 2
    total = weights.sum()
    if not total:
        return coordinates
    weights *= len(weights) / total
    laplacian = np.diag(weights.sum(axis=1)) - weights
    factor = cho_factor(laplacian + np.full(laplacian.shape, 1 / len(laplacian)) + np.eye(len(laplacian)) * 1e-9)
    wanted = np.where(known, measured, 0.0)
    before = np.inf
    for _ in range(steps):
        away = cdist(coordinates, coordinates)
        stress = float((weights * (away - wanted) ** 2).sum())
        if stress > before * (1 - 1e-6):
            break
        before = stress
        ratio = weights * wanted / np.maximum(away, 1e-9)
        pulled = ratio.sum(axis=1)[:, None] * coordinates - ratio @ coordinates
        coordinates = np.asarray(cho_solve(factor, pulled), dtype=np.float64)
    return coordinates
