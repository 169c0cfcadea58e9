"""Message overhead: control messages and moved state in the last minute, from bytes that were really sent."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor, minutes
from meander.model.demands import Metric


class Overhead(Monitor):
    """A window that has just begun counts as it is; one that is longer than a minute gives the mean."""

    metric = Metric.OVERHEAD

    def read(self, spans: Sequence[Span]) -> float | None:
        return sum(span.query.control_bytes for span in spans) / max(minutes(spans), 1.0)
