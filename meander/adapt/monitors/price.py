"""Price: what the nodes of a query cost an hour for it, as it is deployed now."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor
from meander.model.demands import Metric


class Price(Monitor):
    """Only the latest span counts: a deployment is as it is."""

    metric = Metric.PRICE

    def read(self, spans: Sequence[Span]) -> float | None:
        return spans[-1].query.price_per_h
