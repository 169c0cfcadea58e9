"""The report of a site about itself: a few facts about its process, and what its heartbeats say."""

from __future__ import annotations

from typing import Any

from meander.membership.protocol import SiteMeasures
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.host_facts import HostFacts
from meander.reconfigure.replicas.replicas import Replicas


class SiteReport:
    """That of one site, at any time."""

    def __init__(self, agent: Agent, replication: Replication, replicas: Replicas) -> None:
        """`replication` is of its own store, `replicas` are those of other sites."""
        self._facts, self._replicas = HostFacts(agent, replication), replicas

    def measures(self) -> SiteMeasures:
        """The content of a heartbeat."""
        return SiteMeasures(host={**self._facts.report(), "replicas": self._replicas.status(with_reports=True)})

    def facts(self) -> dict[str, Any]:
        """The facts about this process."""
        return {**self._facts.facts(), "replicas": self._replicas.status()}
