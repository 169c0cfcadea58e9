"""The number of partitions of a join's streams: a scaling factor bounds it, and bandwidth decides that factor (Eqs.
7, 8)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError

Floats = NDArray[np.float64]
Ints32 = NDArray[np.int32]

SIGMA = 0.4
MOST_PARTS = 1024


def check_sigma(sigma: float) -> None:
    if not 0 <= sigma <= 1:
        raise InputError(f"sigma must lie between 0 (split finely) and 1 (split hardly), but is {sigma:g}")


def sigma_for(left_tps: Floats, right_tps: Floats, bandwidth_tps: float) -> Floats:
    """Eq. 8 in closed form: the parabola's vertex t_b / (2 dr(s) dr(t)), kept between 0 and 1."""
    if not np.isfinite(bandwidth_tps):
        return np.full(np.broadcast(left_tps, right_tps).shape, 1.0)
    return np.clip(bandwidth_tps / (2 * np.asarray(left_tps) * np.asarray(right_tps)), 0.0, 1.0)


def p_max(left_tps: Floats, right_tps: Floats, sigma: Floats | float) -> Floats:
    """Eq. 7: the most that one partition may bring.

    >>> float(p_max(np.array(2.0), np.array(10.0), 0.5))
    3.0
    """
    return np.asarray(np.maximum(1.0, np.asarray(sigma) * 0.5 * (left_tps + right_tps)), dtype=np.float64)


def parts(left_tps: Floats, right_tps: Floats, sigma: Floats | float) -> Ints32:
    """Per join the number of equal partitions of its left and of its right.

    >>> parts(np.array([2.0]), np.array([10.0]), 0.5).tolist()
    [[1, 4]]
    """
    most = p_max(left_tps, right_tps, sigma)
    both = np.column_stack((left_tps, right_tps)) / most[:, None]
    return np.clip(np.ceil(both - 1e-9), 1, MOST_PARTS).astype(np.int32)
