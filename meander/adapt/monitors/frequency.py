"""Output frequency: results per second over all sinks. A query that gives nothing has frequency 0."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor
from meander.model.demands import Metric


class Frequency(Monitor):
    """Counts what sinks got."""

    metric = Metric.FREQUENCY

    def read(self, spans: Sequence[Span]) -> float | None:
        return sum(sum(span.query.results.values()) for span in spans) * 1000 / sum(span.span_ms for span in spans)
