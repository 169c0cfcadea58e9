"""Load: the share of its capacity that the busiest node of a query uses, averaged over the window."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.monitors.base import Monitor
from meander.model.demands import Metric


class Load(Monitor):
    """The busiest node of each span; nodes without a measured load are left out."""

    metric = Metric.LOAD

    def read(self, spans: Sequence[Span]) -> float | None:
        found = [[span.loads[n] for n in span.query.nodes if n in span.loads] for span in spans]
        busiest = [max(loads) for loads in found if loads]
        return sum(busiest) / len(busiest) if busiest else None
