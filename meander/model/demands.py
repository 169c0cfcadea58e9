"""Demands: the qualities a query asks for, such as `latency < 100 ms`, always or under a condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from meander.model.conditions import COMPARISONS, Clause, Facts, can_hold, exact
from meander.model.errors import InputError, unknown
from meander.model.units import DURATION_UNITS_MS, RATE_UNITS_HZ, SIZE_UNITS_BYTES, quantity


class Metric(Enum):
    """The metrics that can be demanded. The value is the word in both query languages."""

    LATENCY = "latency"
    """Event-time latency of results."""
    HOPS = "hops"
    """Links on the longest way from a source to a sink."""
    OVERHEAD = "overhead"
    """Bytes of control messages and moved state within the monitor's window."""
    NETWORK_USAGE = "network_usage"
    """Bandwidth-delay product: bytes that are on their way at any moment."""
    LOAD = "load"
    """Share of its capacity that the busiest node of the query uses."""
    FREQUENCY = "frequency"
    """Results per second."""
    ENERGY = "energy"
    """Watts that the query's nodes draw for it: a node's power is shared by the queries that run there."""
    PRICE = "price"
    """The price of its nodes in an hour, shared in the same way."""


_UNITS: dict[Metric, tuple[dict[str, float], str, str | None]] = {
    Metric.LATENCY: (DURATION_UNITS_MS, "ms", None),
    Metric.HOPS: ({"": 1.0, "hop": 1.0, "hops": 1.0}, "", ""),
    Metric.OVERHEAD: (SIZE_UNITS_BYTES, "bytes", None),
    Metric.NETWORK_USAGE: (SIZE_UNITS_BYTES, "bytes", None),
    Metric.LOAD: ({"": 1.0, "percent": 0.01}, "", ""),
    Metric.FREQUENCY: (RATE_UNITS_HZ, "/s", None),
    Metric.ENERGY: ({"mw": 1e-3, "w": 1.0, "kw": 1e3}, "W", None),
    Metric.PRICE: ({"/h": 1.0, "/day": 1 / 24}, "/h", None),
}
"""Per metric: the units a bound may have, its base unit, and the unit when none is written."""

_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, slots=True)
class Demand:
    """A bound on a metric, in base units (ms, bytes, results per second, share of capacity).

    It applies when all clauses of `when` hold; without any, always.
    """

    metric: Metric
    comparison: str
    bound: float
    weight: float = 1.0
    when: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        if self.comparison not in COMPARISONS:
            raise unknown("comparison", self.comparison, COMPARISONS)
        if not self.bound >= 0:
            raise InputError(
                f"a demand's bound must not be negative: {self.metric.value} {self.comparison} {self.bound}"
            )
        if not 0 < self.weight < math.inf:
            raise InputError(f"a demand's weight must be positive, not {self.weight}")

    def met(self, measured: float) -> bool:
        return COMPARISONS[self.comparison](measured, self.bound)

    def applies(self, facts: Facts) -> bool:
        return all(clause.holds(facts) for clause in self.when)

    @property
    def wants_more(self) -> bool:
        """Whether larger values are better."""
        return self.comparison in (">", ">=")

    def shortfall(self, measured: float) -> float:
        """The distance of a value from meeting the demand, relative to the bound; 0 when it does.

        >>> Demand.of("latency", "<", "100 ms").shortfall(150.0)
        0.5
        """
        if self.met(measured):
            return 0.0
        away = abs(measured - self.bound)
        return max(away / self.bound if self.bound else away, math.ulp(1.0))

    def show(self, value: float) -> str:
        """A value of this metric with its unit."""
        unit = _UNITS[self.metric][1]
        if unit == "bytes":
            for name, size in _SIZES:
                if value >= size and value / size * size == value:
                    return f"{exact(value / size)} {name}"
        return f"{exact(value)}{' ' if unit else ''}{unit}"

    @property
    def core(self) -> str:
        """The bound in words, without weight and conditions."""
        return f"{self.metric.value} {self.comparison} {self.show(self.bound)}"

    def __str__(self) -> str:
        weight = f" WEIGHT {exact(self.weight)}" if self.weight != 1 else ""
        return f"{self.core}{weight}{''.join(f' {clause}' for clause in self.when)}"

    @staticmethod
    def of(metric: str, comparison: str, bound: str, weight: float = 1.0, when: tuple[Clause, ...] = ()) -> Demand:
        """A demand from its words.

        >>> print(Demand.of("latency", "<", "0.1 s"))
        latency < 100 ms
        """
        names = [m.value for m in Metric]
        if metric.lower() not in names:
            raise unknown("metric", metric, names)
        kind = Metric(metric.lower())
        units, _, default = _UNITS[kind]
        amount = quantity(bound.replace("%", "percent"), units, kind.value, default)
        return Demand(kind, comparison, amount, weight, when)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The reason why demands cannot be met together; `at` is the number of the demand that is one too many."""

    at: int
    reason: str


def contradiction(demands: Sequence[Demand]) -> Contradiction | None:
    """The first demand that no value meets, or that no value meets together with an earlier one.

    Bounds are intervals, and intervals that meet in pairs have a point in common: pairs are all there is to look at.
    """
    for at, demand in enumerate(demands):
        if not _overlap(demand, demand):
            limits = "between 0 and 1" if demand.metric is Metric.LOAD else "at least 0"
            return Contradiction(at, f"nothing meets {demand.core}, as it is {limits} always; change the bound")
        if not can_hold(demand.when):
            return Contradiction(at, f"{demand} never applies: its conditions exclude each other")
        for earlier in demands[:at]:
            if earlier.metric is not demand.metric or _overlap(earlier, demand):
                continue
            if can_hold((*earlier.when, *demand.when)):
                remedy = "leave one out or give them conditions (WHEN) that exclude each other"
                return Contradiction(at, f"{demand} contradicts {earlier}; {remedy}")
    return None


def check_consistent(demands: Sequence[Demand]) -> None:
    """Raises when demands contradict each other."""
    found = contradiction(demands)
    if found is not None:
        raise InputError(found.reason)


def _overlap(a: Demand, b: Demand) -> bool:
    """Whether some possible value meets both."""
    most = 1.0 if a.metric is Metric.LOAD else math.inf
    low, high = 0.0, most
    open_low, open_high = False, False
    for demand in (a, b):
        if demand.comparison in (">", ">=", "=") and demand.bound >= low:
            open_low = demand.comparison == ">" or (open_low and demand.bound == low)
            low = demand.bound
        if demand.comparison in ("<", "<=", "=") and demand.bound <= high:
            open_high = demand.comparison == "<" or (open_high and demand.bound == high)
            high = demand.bound
    return low < high or (low == high and not open_low and not open_high)
