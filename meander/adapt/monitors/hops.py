"""Hops: links on the longest way from a source to a sink, as the query is deployed now."""

from __future__ import annotations

from collections.abc import Sequence

from meander.adapt.measure_history import Span
from meander.adapt.measures import MeasuredChannel
from meander.adapt.monitors.base import Monitor
from meander.model.demands import Metric
from meander.model.ids import OperatorId
from meander.model.plan import topological_order


class Hops(Monitor):
    """Only the latest span counts: a deployment is as it is."""

    metric = Metric.HOPS

    def read(self, spans: Sequence[Span]) -> float | None:
        channels = spans[-1].query.channels
        return float(longest_route(channels)) if channels else None


def longest_route(channels: Sequence[MeasuredChannel]) -> int:
    """Most links on a way through the channels."""
    into: dict[OperatorId, list[MeasuredChannel]] = {}
    for channel in channels:
        into.setdefault(channel.upstream, [])
        into.setdefault(channel.reader, []).append(channel)
    hops: dict[OperatorId, int] = {}
    for operator in topological_order({o: [c.upstream for c in found] for o, found in into.items()}):
        hops[operator] = max((hops[c.upstream] + c.hops for c in into[operator]), default=0)
    return max(hops.values(), default=0)
