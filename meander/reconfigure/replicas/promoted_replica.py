"""A promoted replica: that of a site that died, run by its keeper under the site's name.

It is the site as it was at its last replicated commit: its fragments go on, with its channels, state and changes under
way, at another address. So the coordinator's changes and other sites' requests need know nothing of it; operators leave
it for other nodes by ordinary changes. It takes in streams and delivers to sinks that are reached from here, from where
the site had got to; what only the machine that died has waits for the site.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.membership.fence import Fence
from meander.model.errors import InputError
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.endpoint import AgentEndpoint, ListenOptions
from meander.reconfigure.host_facts import HostFacts
from meander.reconfigure.replicas.lost_site import positions_of
from meander.reconfigure.serialised_fragment import take_up
from meander.run.connectors.base import Surroundings
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions
from meander.run.outside.sink_bindings import SiteSinkBindings
from meander.run.outside.streams import SiteStreams

_log = logging.getLogger(__name__)
TICK_S = 0.5


class PromotedReplica:
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
        *,
        has_positions: bool = True,
    ) -> None:
        """`key` is the site's, of the former kind if the site is of the version before; `network` is the keeper's.

        `has_positions` says whether the store knows how far sources and sinks were: without, it touches none of them.
        """
        self.site, self._trouble = site, ""
        host = self.host = Host(HostOptions(directory, label=site), spark, runner)
        self._endpoint: AgentEndpoint | None = None
        self._ending, self._thread = (
            threading.Event(),
            threading.Thread(target=self._run, name=f"promoted replica of {site}", daemon=True),
        )
        self._streams: SiteStreams | None = None
        try:
            agent = self._agent = Agent(host)
            endpoint = self._endpoint = AgentEndpoint(site, key, agent, network.beside(), lambda: key)
            self._facts = HostFacts(agent, endpoint.replication)
            endpoint.replication.leave_out(keeper)
            take_up(host)
            agent.recovery.recover()
            host.start()
            if has_positions:
                self._reach_out(directory)
            asked = {"positions": lambda told: positions_of(host.store, told["channels"])}
            endpoint.open(Fence(directory / "fence.json"), facts=self._facts.facts, orders=asked)
            agent.remote_channels.refresh()
            self._thread.start()
        except BaseException:
            self.stop()
            raise
        self.address = endpoint.address
        _log.warning("the replica of site %s goes on in its place at %s", site, self.address)

    def _reach_out(self, directory: Path) -> None:
        """Takes in and delivers what is reached from here."""
        host = self.host
        around = Surroundings(directory / "results", directory)
        around.base.mkdir(exist_ok=True)
        host.deliver((), around)
        nodes = {node for _, node in host.feeding.channels}
        bindings = SiteSinkBindings(host, self._agent.changing)
        self._streams = SiteStreams(host, nodes, around, bindings, elsewhere=True)
        try:
            self._streams.restore()
        except InputError as error:
            self._streams, self._trouble = None, f"nothing is taken in here: {error}"

    def _run(self) -> None:
        while not self._ending.wait(TICK_S):
            try:
                if self._streams is not None:
                    self._streams.deliver()
                self._agent.tidy()
            except Exception:
                _log.exception("keeping delivery in step failed; it is tried again")

    @property
    def nodes(self) -> list[str]:
        """The nodes whose streams are taken in, or whose sinks are delivered to."""
        return [] if self._streams is None else sorted(self._streams.nodes_reached())

    def report(self) -> dict[str, Any]:
        """The facts for the coordinator."""
        found = self._facts.report()
        if self._streams is not None:
            found["not_reached"] = absent = self._streams.not_reached()
            paused: dict[str, Any] = found["paused"]
            streams = {name: reason for name, reason in paused["streams"].items() if name not in absent["streams"]}
            found["paused"] = {**paused, "streams": streams}
        return found

    def problems(self) -> list[str]:
        own = [self._trouble] if self._trouble else []
        about = f"site {self.site}, for which this one stands in"
        return [f"{about}: {problem}" for problem in (*own, *self.host.status().problems)]

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._endpoint is not None:
            self._endpoint.close()
        self.host.stop()
