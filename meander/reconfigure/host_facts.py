"""Facts about the host of a site, for the coordinator: with the site's heartbeats, or, of a replica that goes on in its
place, with those of its keeper."""

from __future__ import annotations

import time
from typing import Any

from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.replication import Replication
from meander.run.reporting.backlog import Backlog, read_counters
from meander.run.reporting.host_report import HostReport, state_sizes
from meander.run.reporting.join_part_memories import memory_rows
from meander.run.reporting.paused import MOST_FACTS, failed_facts

MOST_PROBLEMS = 10


class HostFacts:
    """Those of one host, at any time."""

    def __init__(self, agent: Agent, replication: Replication) -> None:
        """`replication` is of the host's own store."""
        self._agent, self._replication, self._backlog = agent, replication, Backlog()

    def report(self) -> dict[str, Any]:
        """The facts by which queries are judged, and those about the process."""
        host = self._agent.host
        flows = self._backlog.read(int(time.monotonic() * 1000), read_counters(host.store.exchange))
        memories, sizes = memory_rows(host), state_sizes(host.store)
        report = HostReport.of(host.status(), flows, host.feeding.channels, memories, sizes)
        return {**self.facts(), **report.as_json()}

    def facts(self) -> dict[str, Any]:
        """The facts about this process."""
        host, pulling = self._agent.host, self._agent.remote_channels.pulling
        status = host.status()
        assert pulling is not None
        delivery = status.delivery
        return {
            "healthy": status.healthy,
            "problems": list(status.problems)[:MOST_PROBLEMS],
            "fragments": status.fragments,
            "failed": failed_facts(host),
            "behind": [int(f) for f in status.behind][:MOST_FACTS],
            "pending": status.pending_tuples,
            "tuples_in": status.ingest.rows if status.ingest else 0,
            "tuples_out": delivery.rows if delivery else 0,
            "state_bytes": status.state_bytes,
            "results": {name: task.rows for name, task in (delivery.sink_bindings if delivery else {}).items()},
            "replication": {site: found.as_json() for site, found in self._replication.status().items()},
            "pulled_records": pulling.metrics.records,
            "pulled_damaged": pulling.metrics.damaged,
            "pulls_nothing": {way[-1]: reason for way, reason in list(pulling.problems.items())},
        }
