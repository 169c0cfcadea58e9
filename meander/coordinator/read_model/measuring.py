"""Measuring: once a second, a thread of its own reads the host, so that no decision waits for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meander.model.clock import wall_clock_ms
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelCounters
from meander.run.channels.flight.proof import HOME
from meander.run.delivery.latency import LatencyHistogram, Percentiles
from meander.run.host import Host, HostStatus
from meander.run.periodic import PeriodicThread
from meander.run.reporting.backlog import Backlog, ChannelFlow, read_counters
from meander.run.reporting.host_report import HostReport, merged_flows, state_sizes

EVERY_S = 1.0
SPAN = 10
"""Latency and rates are those of so many readings."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of one moment; rates are per second."""

    at_ms: int
    status: HostStatus
    counters: Mapping[ChannelId, ChannelCounters]
    reports: Mapping[str, HostReport]
    """The reports of all hosts about themselves: the own one, and those of sites."""
    flows: Mapping[ChannelId, ChannelFlow]
    """The flow of all their channels."""
    state_bytes: Mapping[FragmentId, int]
    """The size of fragments' state, here and at sites."""
    latency: Mapping[str, Percentiles]
    """Event-time latency by query, of the last seconds."""
    channel_tps: Mapping[ChannelId, float] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    """Results delivered, by sink binding, since the query began."""
    rows_tps: Mapping[str, float] = field(default_factory=dict)
    tuples_in_tps: float = 0.0
    tuples_out_tps: float = 0.0
    steps_per_s: float = 0.0
    busy: float = 0.0
    """Share of the time that slots spent in steps."""


@dataclass(frozen=True, slots=True)
class _Earlier:
    at_s: float
    measured: Measured
    latencies: Mapping[str, LatencyHistogram]


class Measuring(PeriodicThread):
    """Reads the host and publishes the measures."""

    def __init__(self, host: Host, tell: Callable[[Measured], None], every_s: float = EVERY_S) -> None:
        super().__init__("measuring", every_s, lambda: self.tell(self.measure()))
        self.host, self.tell = host, tell
        self.sites: Callable[[], Mapping[str, HostReport]] = dict
        """The last reports of the hosts of sites."""
        self._backlog = Backlog()
        self._earlier: deque[_Earlier] = deque(maxlen=SPAN)

    def measure(self) -> Measured:
        """The measures now, compared with some seconds ago."""
        host = self.host
        status = host.status()
        exchange = host.store.exchange
        counters = read_counters(exchange)
        flows = self._backlog.read(int(time.monotonic() * 1000), counters)
        own = HostReport.of(status, flows, host.feeding.channels, state_bytes=state_sizes(host.store))
        reports = {HOME: own, **self.sites()}
        seen = (wall_clock_ms(), status, counters, reports, merged_flows(reports))
        sizes = {f: size for report in (*reports.values(), own) for f, size in report.state_bytes.items()}
        latencies = host.latencies()
        sink_bindings = status.delivery.sink_bindings if status.delivery else {}
        rows = {name: binding.rows for name, binding in sink_bindings.items()}
        now = time.monotonic()
        then = self._earlier[0] if self._earlier else None
        recent = {
            q: found.since(then.latencies[q]) if then and q in then.latencies else found
            for q, found in latencies.items()
        }
        percentiles = {q: found.percentiles() for q, found in recent.items()}
        if then is None:
            measured = Measured(*seen, sizes, percentiles, rows=rows)
        else:
            before, span = then.measured, max(1e-3, now - then.at_s)
            measured = Measured(
                *seen,
                sizes,
                percentiles,
                {
                    c: max(0, found.appended_tuples - before.counters[c].appended_tuples) / span
                    for c, found in counters.items()
                    if c in before.counters
                },
                rows,
                {name: max(0, count - before.rows.get(name, 0)) / span for name, count in rows.items()},
                _tps(status, before.status, "ingest", span),
                _tps(status, before.status, "delivery", span),
                (status.totals.steps - before.status.totals.steps) / span,
                (status.totals.seconds - before.status.totals.seconds) / span / max(1, len(host.slots)),
            )
        self._earlier.append(_Earlier(now, measured, latencies))
        return measured


def _tps(now: HostStatus, before: HostStatus, side: str, span: float) -> float:
    later, earlier = getattr(now, side), getattr(before, side)
    return 0.0 if later is None or earlier is None else max(0, later.rows - earlier.rows) / span
