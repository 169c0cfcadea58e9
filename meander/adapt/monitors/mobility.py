"""Mobility: how often a mobile node changes its links, per minute. Without mobile nodes it is 0."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import WorldSpan
from meander.adapt.monitors.base import EnvironmentMonitor, minutes
from meander.model.conditions import Fact


class Mobility(EnvironmentMonitor):
    fact = Fact.MOBILITY
    levels = (0.1, 1.0)

    def read(self, spans: Sequence[WorldSpan]) -> float | None:
        mobile = max(span.world.mobile_nodes for span in spans)
        return sum(span.world.handovers for span in spans) / minutes(spans) / mobile if mobile else 0.0
