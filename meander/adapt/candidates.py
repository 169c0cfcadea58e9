"""The options of one query: for each mechanism its forecasts, corrected by measures, and its samples.

A forecast leaves out unknown parts, such as processing time. Where the query runs now, both a prediction and a reading
exist; their difference corrects the forecasts of other mechanisms. A corrected forecast is the prior that samples then
replace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meander.adapt.mechanism_forecasts import Forecast
from meander.adapt.selection.base import Candidate
from meander.model.demands import Demand, Metric

STEEPNESS = 10.0
"""A forecast 10% inside its bound is believed at 73%, one 30% inside at 95%."""
ENOUGH_SAMPLES = 3.0
"""Samples that outweigh a forecast when the question is whether anything can meet a demand."""

ADDED = frozenset({Metric.LATENCY})
"""Metrics for which what a forecast leaves out is added."""
SCALED = frozenset({Metric.NETWORK_USAGE, Metric.OVERHEAD, Metric.LOAD})
"""Metrics for which it is in proportion."""
RELATIVE = frozenset({Metric.OVERHEAD})
"""Metrics of which a forecast says nothing without a reading to compare with."""


@dataclass(slots=True)
class Option:
    """A mechanism that could run a query. `values` has one entry per demand, None where nothing is predicted."""

    mechanism: str
    forecast: Forecast | None
    values: Sequence[float | None]
    candidate: Candidate
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Correction:
    """The reading of a query and the prediction for where it runs now, or nothing of either."""

    read: Mapping[Metric, float] = field(default_factory=dict)
    predicted: Mapping[Metric, float] = field(default_factory=dict)
    added: Mapping[Metric, float] = field(default_factory=dict)
    """The correction that applies to all mechanisms: the least that any of them was seen to add."""

    def corrected(self, metric: Metric, value: float | None) -> float | None:
        """A forecast as it would be read."""
        read, predicted = self.read.get(metric), self.predicted.get(metric)
        if value is None or read is None or predicted is None:
            return None if metric in RELATIVE else value
        if metric in ADDED:
            return value + self.added.get(metric, max(0.0, read - predicted))
        if metric in SCALED:
            if predicted > 0:
                return value * read / predicted
            return None if metric in RELATIVE else value
        return value


def chance(demand: Demand, value: float) -> float:
    """The chance that a forecast value meets the demand."""
    if not demand.bound or demand.comparison == "=":
        return 0.9 if demand.met(value) else 0.1
    slack = (value - demand.bound if demand.wants_more else demand.bound - value) / demand.bound
    return 1 / (1 + math.exp(-STEEPNESS * min(max(slack, -1.0), 1.0)))


@dataclass(frozen=True, slots=True)
class Hopeless:
    """A demand that nothing is known to meet, with the best value that can be reached."""

    number: int
    demand: Demand
    best: float
    by: str


def hopeless(demands: Sequence[Demand], options: Sequence[Option]) -> list[Hopeless]:
    """Demands for which every option has a value and none meets it, whatever samples say."""
    found: list[Hopeless] = []
    for number, demand in enumerate(demands):
        values = [(option.values[number], option) for option in options]
        known = [(value, option) for value, option in values if value is not None]
        proven = any(
            o.candidate.samples[number] >= ENOUGH_SAMPLES and o.candidate.estimates[number] > 0.5 for o in options
        )
        if not known or len(known) < len(values) or proven or any(demand.met(value) for value, _ in known):
            continue
        best, option = min(known, key=lambda pair: demand.shortfall(pair[0]))
        found.append(Hopeless(number, demand, best, option.mechanism))
    return found


def resigned(option: Option, without: Sequence[Hopeless]) -> Candidate:
    """The candidate when some demands cannot be met: there, being closer counts, but never as much as meeting one."""
    estimates = list(option.candidate.estimates)
    for each in without:
        value = option.values[each.number]
        estimates[each.number] = 0.0 if value is None else 0.5 / (1 + each.demand.shortfall(value))
    return option.candidate._replace(estimates=estimates, may_try=False)
