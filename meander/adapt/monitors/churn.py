"""Churn: nodes and links that came or went, per minute."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import WorldSpan
from meander.adapt.monitors.base import EnvironmentMonitor, minutes
from meander.model.conditions import Fact


class Churn(EnvironmentMonitor):
    fact = Fact.CHURN
    levels = (10.0,)

    def read(self, spans: Sequence[WorldSpan]) -> float | None:
        return sum(span.world.changes for span in spans) / minutes(spans)
