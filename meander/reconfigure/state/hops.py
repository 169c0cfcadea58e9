"""Hops: the links that a migration query's chunks cross, and when chunks arrive behind them.

The times follow from latency and bandwidth alone, so an embedded host can emulate a path without sockets and a test
can do so without waiting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from meander.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Hop:
    """A link on the way. `bandwidth_mbps` None or infinite is unlimited."""

    latency_ms: float = 0.0
    bandwidth_mbps: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.latency_ms < math.inf:
            raise InputError(f"a hop's latency_ms is {self.latency_ms}; it must be 0 or more, and finite")
        if self.bandwidth_mbps is not None and not self.bandwidth_mbps > 0:
            raise InputError(f"a hop's bandwidth_mbps is {self.bandwidth_mbps}; it must be above 0, or None")
        if self.bandwidth_mbps == math.inf:
            object.__setattr__(self, "bandwidth_mbps", None)

    def busy_ms(self, size: int) -> float:
        """How long so many bytes occupy the link."""
        return 0.0 if self.bandwidth_mbps is None else size * 8 / (self.bandwidth_mbps * 1000)


class Forwarding(Enum):
    """The ways in which a hop passes chunks on."""

    PIPELINED = "pipelined"
    """Sends each on as it comes."""
    WHOLE = "whole"
    """Waits for all of them first."""


def slowest_mbps(hops: Collection[Hop]) -> float:
    """The bandwidth of the slowest hop; infinite if none is limited."""
    return min((h.bandwidth_mbps for h in hops if h.bandwidth_mbps is not None), default=math.inf)


class Timetable:
    """Hops with what occupies them: says when the next chunk arrives behind the last one."""

    def __init__(self, hops: Sequence[Hop], start_ms: float) -> None:
        self._hops, self._start_ms = hops, start_ms
        self._free_ms = [start_ms] * len(hops)

    def arrival_ms(self, size: int) -> float:
        """Of a chunk that follows the earlier ones, each hop sending it on as it comes."""
        at = self._start_ms
        for number, hop in enumerate(self._hops):
            self._free_ms[number] = max(at, self._free_ms[number]) + hop.busy_ms(size)
            at = self._free_ms[number] + hop.latency_ms
        return at

    def whole_arrivals_ms(self, sizes: Sequence[int]) -> list[float]:
        """Of all chunks, each hop waiting for the last one before it sends the first."""
        start, arrivals = self._start_ms, [self._start_ms] * len(sizes)
        for hop in self._hops:
            arrivals = []
            for size in sizes:
                start += hop.busy_ms(size)
                arrivals.append(start + hop.latency_ms)
            start += hop.latency_ms
        return arrivals
