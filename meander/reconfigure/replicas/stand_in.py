"""A stand-in: the replica of a site that died, run by its keeper under the site's name.

It is the site as it was at its last replicated commit: its fragments go on, with its channels, state and changes under
way, at another address. So the coordinator's changes and other sites' requests need know nothing of it; operators leave
it for other nodes by ordinary changes. Sources and sinks belong to the machine that died: a stand-in takes nothing in
and delivers nothing, and what its fragments have for sinks waits for the site.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.membership.fence import Fence
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.peers import PeerDirectory
from meander.reconfigure.agent.replication import Replication
from meander.reconfigure.agent.request_handler import AgentRequestHandler
from meander.reconfigure.serialised_fragment import take_up
from meander.run.channels.flight.server import FlightServer
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeeperAddress:
    """Where a keeper listens, for the sites that it stands in for: at a free port of the same address."""

    host: str
    """As it listens."""
    shown: str
    """As others reach it."""
    certificates: Sequence[tuple[bytes, bytes]] = ()
    authority: bytes | None = None

    @property
    def scheme(self) -> str:
        return "grpc+tls" if self.certificates else "grpc"

    @staticmethod
    def beside(
        listen: str, address: str, pairs: Sequence[tuple[bytes, bytes]], authority: bytes | None
    ) -> KeeperAddress:
        """That of a keeper that listens somewhere, and is reached at an address."""
        shown = address.rsplit("://", 1)[-1].rsplit(":", 1)[0]
        return KeeperAddress(listen.rsplit(":", 1)[0], shown, pairs, authority)


class StandIn:
    """Starts with its construction; `stop` leaves a store that another process can open."""

    def __init__(
        self,
        site: str,
        keeper: str,
        directory: Path,
        key: str,
        at: KeeperAddress,
        spark: SparkSession,
        runner: Runner | None = None,
    ) -> None:
        self.site = site
        host = self.host = Host(HostOptions(directory, label=site), spark, runner)
        try:
            self._peers = PeerDirectory(host.store, site, at.authority)
            self.agent = Agent(host)
            self.agent.connect(self._peers.asker)
            self.replication = Replication(host.store)
            self.replication.leave_out(keeper)
            host.troubles.append(self.replication.problems)
            handler = AgentRequestHandler(
                site,
                self.agent,
                self._peers,
                Fence(directory / "fence.json"),
                facts=self._facts,
                replication=self.replication,
            )
            take_up(host)
            self.agent.recover()
            self._server = FlightServer(host.store, handler, key, f"{at.scheme}://{at.host}:0", at.certificates)
        except BaseException:
            host.stop()
            raise
        self.address = f"{at.scheme}://{at.shown}:{self._server.port}"

    def start(self) -> None:
        """Its fragments go on."""
        self.host.start()
        self.agent.refresh()
        _log.warning("the replica of site %s stands in for it at %s", self.site, self.address)

    def _facts(self) -> dict[str, Any]:
        return {"stands_in": True, "fragments": len(self.host.routing.fragments)}

    def problems(self) -> list[str]:
        return [f"site {self.site}, for which this one stands in: {p}" for p in self.host.status().problems]

    def stop(self) -> None:
        self.replication.stop()
        self._server.shutdown()
        self.agent.stop()
        self._peers.close()
        self.host.stop()
