"""Linear ranking selection: probabilities from ranks, with an explicit selection pressure (TCEP, equations 7 and 8).

Three things differ from the paper's letter. Scores of equation 5 are centred and sum to about zero, so shares are taken
from scores shifted to be positive. `eta_plus` is always 2 - `eta_minus`; otherwise probabilities do not sum to one.
Equal scores share the mean of their ranks, so they are equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meander.model.errors import InputError

LEAST = 0.1
"""The worst score, after shifting, relative to the range of scores."""


def shifted(scores: Sequence[float]) -> list[float]:
    """The same scores moved up to be positive; equal scores become 1."""
    low, high = min(scores), max(scores)
    if not math.isfinite(high - low):
        raise InputError(f"scores must be finite, but reach from {low} to {high}")
    if high == low:
        return [1.0] * len(scores)
    return [score - low + LEAST * (high - low) for score in scores]


def eta_minus_of(scores: Sequence[float]) -> float:
    """The expected number of draws of the worst in as many draws as there are scores: 1 when all are equal.

    Equation 8 on shifted scores. It lies between 0 and 1, because no share is above average when it is the smallest.
    """
    positive = shifted(scores)
    return min(1.0, len(positive) * min(positive) / math.fsum(positive))


def ranks(scores: Sequence[float]) -> list[float]:
    """1 is the worst; equal scores share the mean of their ranks.

    >>> ranks([0.5, -1.0, 0.5])
    [2.5, 1.0, 2.5]
    """
    order = sorted(range(len(scores)), key=scores.__getitem__)
    found = [0.0] * len(scores)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and scores[order[end + 1]] == scores[order[start]]:
            end += 1
        for place in range(start, end + 1):
            found[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return found


def linear_ranking(scores: Sequence[float], eta_minus: float | None = None) -> list[float]:
    """Probability of each score (equation 7). Without `eta_minus`, the scores say how strong the pressure is."""
    count = len(scores)
    if not count:
        return []
    if eta_minus is None:
        eta_minus = eta_minus_of(scores)
    if not 0 <= eta_minus <= 1:
        raise InputError(f"eta_minus must lie between 0 and 1, not {eta_minus}")
    if count == 1:
        return [1.0]
    eta_plus = 2 - eta_minus
    return [(eta_minus + (eta_plus - eta_minus) * (rank - 1) / (count - 1)) / count for rank in ranks(scores)]
