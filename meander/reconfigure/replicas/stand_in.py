"""A stand-in: the replica of a site that died, run by its keeper under the site's name.

It is the site as it was at its last replicated commit: its fragments go on, with its channels, state and changes under
way, at another address. So the coordinator's changes and other sites' requests need know nothing of it; operators leave
it for other nodes by ordinary changes. Sources and sinks belong to the machine that died: a stand-in takes nothing in
and delivers nothing, and what its fragments have for sinks waits for the site.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.membership.fence import Fence
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.endpoint import AgentEndpoint, ListenOptions
from meander.reconfigure.replicas.lost_site import positions_of
from meander.reconfigure.serialised_fragment import take_up
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions

_log = logging.getLogger(__name__)


class StandIn:
    """Starts with its construction; `stop` leaves a store that another process can open."""

    def __init__(
        self,
        site: str,
        keeper: str,
        directory: Path,
        key: str,
        network: ListenOptions,
        spark: SparkSession,
        runner: Runner | None = None,
    ) -> None:
        """`key` is the site's, `network` the keeper's."""
        self.site = site
        host = self.host = Host(HostOptions(directory, label=site), spark, runner)
        self._endpoint: AgentEndpoint | None = None
        try:
            agent = Agent(host)
            endpoint = self._endpoint = AgentEndpoint(site, key, agent, network.beside())
            endpoint.replication.leave_out(keeper)
            take_up(host)
            agent.recovery.recover()
            host.start()
            asked = {"positions": lambda told: positions_of(host.store, told["channels"])}
            endpoint.open(Fence(directory / "fence.json"), facts=self._facts, orders=asked)
            agent.remote_channels.refresh()
        except BaseException:
            self.stop()
            raise
        self.address = endpoint.address
        _log.warning("the replica of site %s goes on in its place at %s", site, self.address)

    def _facts(self) -> dict[str, Any]:
        return {"stands_in": True, "fragments": len(self.host.routing.fragments)}

    def problems(self) -> list[str]:
        return [f"site {self.site}, for which this one stands in: {p}" for p in self.host.status().problems]

    def stop(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
        self.host.stop()
