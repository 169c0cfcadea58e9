"""Network usage: bandwidth-delay product, the data that is on its way at any moment."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor
from meander.model.demands import Metric


class NetworkUsage(Monitor):
    """Bytes per ms over each channel times its latency, averaged over the window."""

    metric = Metric.NETWORK_USAGE

    def read(self, spans: Sequence[Span]) -> float | None:
        deployed = [span for span in spans if span.query.channels]
        if not deployed:
            return None
        total_ms = sum(span.span_ms for span in deployed)
        return sum(c.bytes * c.latency_ms for span in deployed for c in span.query.channels) / total_ms
