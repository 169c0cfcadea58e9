"""The report of a site about itself: a few facts about its process, and what its heartbeats say."""

from __future__ import annotations

import time
from typing import Any

from meander.membership.protocol import SiteMeasures
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.replicas.replicas import Replicas
from meander.run.reporting.backlog import Backlog, read_counters
from meander.run.reporting.host_report import HostReport
from meander.run.reporting.join_part_memories import memory_rows
from meander.run.reporting.paused import MOST_FACTS, failed_facts

MOST_PROBLEMS = 10


class SiteReport:
    """That of one site, at any time."""

    def __init__(self, agent: Agent, replication: Replication, replicas: Replicas) -> None:
        """`replication` is of its own store, `replicas` are those of other sites."""
        self._host, self._agent, self._replication, self._replicas = agent.host, agent, replication, replicas
        self._backlog = Backlog()

    def measures(self) -> SiteMeasures:
        """The content of a heartbeat."""
        flows = self._backlog.read(int(time.monotonic() * 1000), read_counters(self._host.store.exchange))
        report = HostReport.of(self._host.status(), flows, self._host.feeding.channels, memory_rows(self._host))
        return SiteMeasures(host={**self.facts(), **report.as_json()})

    def facts(self) -> dict[str, Any]:
        """The facts about this process."""
        status, pulling = self._host.status(), self._agent.remote_channels.pulling
        assert pulling is not None
        delivery = status.delivery
        return {
            "healthy": status.healthy,
            "problems": list(status.problems)[:MOST_PROBLEMS],
            "fragments": status.fragments,
            "failed": failed_facts(self._host),
            "behind": [int(f) for f in status.behind][:MOST_FACTS],
            "pending": status.pending_tuples,
            "tuples_in": status.ingest.rows if status.ingest else 0,
            "tuples_out": delivery.rows if delivery else 0,
            "state_bytes": status.state_bytes,
            "results": {name: task.rows for name, task in (delivery.sink_bindings if delivery else {}).items()},
            "replication": {site: found.as_json() for site, found in self._replication.status().items()},
            "replicas": self._replicas.status(),
            "pulled_records": pulling.metrics.records,
            "pulled_damaged": pulling.metrics.damaged,
            "pulls_nothing": {way[-1]: reason for way, reason in list(pulling.problems.items())},
        }
