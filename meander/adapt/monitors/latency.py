"""Latency: a percentile of the event-time latency of results, so that a few slow results do not hide."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.history import Span
from meander.adapt.monitors.base import Monitor, percentile
from meander.model.demands import Metric


class Latency(Monitor):
    """The 95th percentile unless told otherwise."""

    metric = Metric.LATENCY

    def __init__(self, share: float = 0.95) -> None:
        self.share = share

    def read(self, spans: Sequence[Span]) -> float | None:
        latencies = [ms for span in spans for ms in span.query.latencies_ms]
        return percentile(latencies, self.share) if latencies else None
