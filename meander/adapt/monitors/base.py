"""The interface of monitors. Adding one: a new file with a subclass, and one line in the table beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from meander.adapt.measure_history import Span, WorldSpan
from meander.model.conditions import Fact
from meander.model.demands import Metric

MINUTE_MS = 60_000


class Monitor(ABC):
    """Turns a query's measures within a window into one value of a metric, in the base unit of demands."""

    metric: Metric
    window_ms: int = MINUTE_MS

    @abstractmethod
    def read(self, spans: Sequence[Span]) -> float | None:
        """The value, or None when nothing was seen that says anything about it. `spans` is not empty."""

    def is_settled(self, spans: Sequence[Span]) -> bool:
        """Whether the value comes from results, not from tuples that still wait. `spans` is not empty."""
        return True


class EnvironmentMonitor(ABC):
    """Turns the environment's measures of a window into one fact."""

    fact: Fact
    window_ms: int = 5 * MINUTE_MS
    levels: tuple[float, ...] = ()
    """Values at which the environment counts as a different one."""

    @abstractmethod
    def read(self, spans: Sequence[WorldSpan]) -> float | None:
        """The value, or None when it is not known. `spans` is not empty."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def minutes(spans: Sequence[Span] | Sequence[WorldSpan]) -> float:
    return sum(s.span_ms for s in spans) / MINUTE_MS
