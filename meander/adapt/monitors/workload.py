"""Workload: tuples that enter, per second."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import WorldSpan
from meander.adapt.monitors.base import EnvironmentMonitor
from meander.model.conditions import Fact


class Workload(EnvironmentMonitor):
    fact = Fact.WORKLOAD
    levels = (1_000.0, 10_000.0, 100_000.0)

    def read(self, spans: Sequence[WorldSpan]) -> float | None:
        return sum(span.world.tuples for span in spans) * 1000 / sum(span.span_ms for span in spans)
