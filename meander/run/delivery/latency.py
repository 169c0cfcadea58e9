"""Event-time latency of results, as a histogram whose buckets grow by two per cent: small, and exact enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meander.model.locks import lock
from meander.run.channels.base import Int64s

_EDGES = np.unique(np.concatenate([np.arange(50), np.geomspace(50, 7 * 86_400_000, 740)]).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds; `count` is how many results they stand for."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    most_ms: float


class LatencyHistogram:
    """Counts latencies, from several threads."""

    def __init__(self) -> None:
        self._lock = lock("latency")
        self._counts = np.zeros(_EDGES.size, np.int64)
        self._most = 0

    def add(self, latencies_ms: Int64s) -> None:
        if latencies_ms.size:
            found = np.searchsorted(_EDGES, np.maximum(latencies_ms, 0), side="right") - 1
            counts = np.bincount(found, minlength=_EDGES.size)
            with self._lock:
                self._counts += counts
                self._most = max(self._most, int(latencies_ms.max()))

    def copy(self) -> LatencyHistogram:
        """The counts as of now."""
        found = LatencyHistogram()
        with self._lock:
            found._counts, found._most = self._counts.copy(), self._most
        return found

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram:
        """The latencies that were added after a copy was made."""
        found = self.copy()
        found._counts -= earlier._counts
        return found

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """Both together."""
        found = self.copy()
        found._counts += other._counts
        found._most = max(found._most, other._most)
        return found

    def percentile(self, share: float) -> float:
        """The latency that this share of the results does not exceed; NaN before the first."""
        total = int(self._counts.sum())
        if not total:
            return float("nan")
        at = int(np.searchsorted(np.cumsum(self._counts), share * total))
        upper = _EDGES[at + 1] - 1 if at + 1 < _EDGES.size else self._most
        return float(min(upper, self._most))

    def percentiles(self) -> Percentiles:
        p50_ms, p95_ms, p99_ms = (self.percentile(share) for share in (0.5, 0.95, 0.99))
        return Percentiles(int(self._counts.sum()), p50_ms, p95_ms, p99_ms, float(self._most))


def between(earlier: Mapping[str, LatencyHistogram], later: Mapping[str, LatencyHistogram]) -> Percentiles:
    """Latency of the results of all queries between two moments."""
    total = LatencyHistogram()
    for query, latency in later.items():
        total = total.plus(latency.since(earlier[query]) if query in earlier else latency)
    return total.percentiles()
