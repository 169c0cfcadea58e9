"""Latency: a percentile of the event-time latency of results, so that a few slow results do not hide.

A query that gives nothing has no results to measure, so its silence counts: while a tuple is on its way and not
processed, its result is at least as late as the tuple has waited. A query whose sources are quiet, and one whose filter
lets nothing through, has no such tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor, percentile
from meander.model.demands import Metric


class Latency(Monitor):
    """The 95th percentile unless told otherwise, or the age of the oldest tuple that waits, if that is more.

    While results come, an age below one round says nothing that they do not say: a tuple is always on its way.
    """

    metric = Metric.LATENCY

    def __init__(self, share: float = 0.95) -> None:
        self.share = share

    def read(self, spans: Sequence[Span]) -> float | None:
        seen, waits_ms = self._seen(spans), self._waits_ms(spans)
        return seen if waits_ms is None else waits_ms

    def is_settled(self, spans: Sequence[Span]) -> bool:
        return self._waits_ms(spans) is None

    def _seen(self, spans: Sequence[Span]) -> float | None:
        latencies = [ms for span in spans for ms in span.query.latencies_ms]
        return percentile(latencies, self.share) if latencies else None

    def _waits_ms(self, spans: Sequence[Span]) -> float | None:
        """The age of waiting tuples, if it is above the latency of results."""
        last, seen = spans[-1], self._seen(spans)
        waits_ms = last.query.waits_ms
        if not waits_ms or (seen is not None and waits_ms < max(seen, last.span_ms)):
            return None
        return waits_ms
