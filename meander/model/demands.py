"""Demands: the qualities a query asks for, such as `latency < 100 ms`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from meander.model.errors import InputError, unknown
from meander.model.units import DURATION_UNITS_MS, RATE_UNITS_HZ, SIZE_UNITS_BYTES, quantity


class Metric(Enum):
    """What can be demanded. The value is the word in both query languages."""

    LATENCY = "latency"
    HOPS = "hops"
    OVERHEAD = "overhead"
    NETWORK_USAGE = "network_usage"
    LOAD = "load"
    FREQUENCY = "frequency"


_UNITS: dict[Metric, tuple[dict[str, float], str, str | None]] = {
    Metric.LATENCY: (DURATION_UNITS_MS, "ms", None),
    Metric.HOPS: ({"": 1.0, "hop": 1.0, "hops": 1.0}, "", ""),
    Metric.OVERHEAD: (SIZE_UNITS_BYTES, "bytes", None),
    Metric.NETWORK_USAGE: (SIZE_UNITS_BYTES, "bytes", None),
    Metric.LOAD: ({"": 1.0, "percent": 0.01}, "", ""),
    Metric.FREQUENCY: (RATE_UNITS_HZ, "/s", None),
}
"""Per metric: the units a bound may have, its base unit, and the unit when none is written."""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Demand:
    """A bound on a metric, in base units (ms, bytes, results per second, share of capacity)."""

    metric: Metric
    comparison: str
    bound: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.comparison not in COMPARISONS:
            raise unknown("comparison", self.comparison, COMPARISONS)
        if not self.bound >= 0:
            raise InputError(
                f"a demand's bound must not be negative: {self.metric.value} {self.comparison} {self.bound}"
            )
        if not self.weight > 0:
            raise InputError(f"a demand's weight must be positive, not {self.weight}")

    def met(self, measured: float) -> bool:
        return COMPARISONS[self.comparison](measured, self.bound)

    def __str__(self) -> str:
        unit = _UNITS[self.metric][1]
        weight = f" WEIGHT {self.weight:g}" if self.weight != 1 else ""
        return f"{self.metric.value} {self.comparison} {self.bound:g}{' ' if unit else ''}{unit}{weight}"

    @staticmethod
    def of(metric: str, comparison: str, bound: str, weight: float = 1.0) -> Demand:
        """A demand from its words.

        >>> print(Demand.of("latency", "<", "0.1 s"))
        latency < 100 ms
        """
        names = [m.value for m in Metric]
        if metric.lower() not in names:
            raise unknown("metric", metric, names)
        kind = Metric(metric.lower())
        units, _, default = _UNITS[kind]
        return Demand(kind, comparison, quantity(bound.replace("%", "percent"), units, kind.value, default), weight)
