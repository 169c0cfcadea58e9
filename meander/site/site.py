"""A site: one process with its own Spark, host and store, that runs the fragments of some nodes.

It starts from its directory alone: what ran before runs again, what was under way is taken up, channels are pulled from
where they were pulled, whether or not the coordinator is there. Then it joins, and does what it is told.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.membership.client import MembershipClient, MembershipListener
from meander.membership.fence import Fence, FencedError
from meander.membership.http_client import CoordinatorClient, RequestRefusedError, UnreachableError
from meander.membership.protocol import Description, SiteMeasures
from meander.model.durable_files import FILES
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.endpoint import AgentEndpoint, ListenOptions
from meander.reconfigure.replicas.replicas import Replicas
from meander.reconfigure.serialised_fragment import take_up
from meander.run.channels.flight.proof import FORMER, former_key_of, key_of
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions
from meander.run.outside.sink_bindings import SiteSinkBindings
from meander.run.outside.streams import SiteStreams
from meander.run.rebinding.options import USUAL, rebinding_by
from meander.run.session import own_session, start_session
from meander.site.report import SiteReport
from meander.site.restoring import restore

_log = logging.getLogger(__name__)
TICK_S, LOOK_S = 0.5, 0.05
DRAIN_S = 30.0
HAND_OVER_S, CALM_S = 10.0, 1.0
"""How long a site that ends helps operators to leave it, and how long nothing has to happen until that is over."""


@dataclass(frozen=True)
class SiteOptions:
    """How a site runs."""

    name: str
    directory: Path
    join: str
    token: str
    nodes: Sequence[Mapping[str, Any]]
    listen: str = "127.0.0.1:0"
    address: str | None = None
    """Where others reach it, if that is not where it listens."""
    slots: int = 1
    rebinding: str = USUAL
    """The policy by which fragments change slots when there are several, or `off`."""
    durability: str = "process"
    """The failures that what was acknowledged survives: the end of the process, or a power failure (`disk`)."""
    channel_budget: str | None = None
    """The most that may wait in one channel, such as 500MB."""
    overflow: str | None = None
    """The policy beyond that: `block`, `spill` or `drop_oldest`."""
    master: str | None = None
    """The Spark master; None for this machine's cores."""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """More settings for Spark."""
    broker: str = ""
    """The Kafka broker that it shares with other sites: host and port."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings of Kafka's clients."""
    mutual_tls: bool = False
    """Whether clients have to show a certificate of the authority."""

    @property
    def network(self) -> ListenOptions:
        """The settings of its network, with the contents of the files that are named."""
        pair = (self.certificate.read_bytes(), self.key.read_bytes()) if self.certificate and self.key else None
        authority = None if self.ca is None else self.ca.read_bytes()
        return ListenOptions(
            self.listen, self.address, pair, authority, self.broker, self.broker_settings, self.mutual_tls
        )


class Site(MembershipListener):
    """Start it, wait, stop it."""

    def __init__(self, options: SiteOptions, spark: SparkSession | None = None) -> None:
        self.options = options
        self._spark, self._own_spark = None if spark is None else own_session(spark), spark is None
        self._host: Host | None = None
        self._agent: Agent | None = None
        self._endpoint: AgentEndpoint | None = None
        self._report: SiteReport | None = None
        self._replicas: Replicas | None = None
        self.streams: SiteStreams | None = None
        self._client: MembershipClient | None = None
        self._ended = threading.Event()
        self.refusal: str | None = None
        """Why the coordinator does not want this site, if it does not."""

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Runs what the directory says, listens, and begins to join."""
        options = self.options
        rebinding = rebinding_by(options.rebinding, options.slots)
        host_options = HostOptions(options.directory / "host", options.slots, rebinding=rebinding)
        host_options = host_options.surviving(options.durability).bounded(options.channel_budget, options.overflow)
        options.directory.mkdir(parents=True, exist_ok=True)
        client = CoordinatorClient(options.join, options.token, options.ca, shown=(options.certificate, options.key))
        restore(options.directory, options.name, self._instance(), client, options.network.tls)
        instance = self._instance()
        if self._spark is None:
            extra = dict(options.spark) | ({"spark.master": options.master} if options.master else {})
            self._spark = start_session(f"meander site {options.name}", extra=extra)
        host = self._host = Host.open(host_options, self._spark)
        agent = self._agent = Agent(host)
        key = key_of(options.token)
        endpoint = self._endpoint = AgentEndpoint(options.name, key, agent, options.network, self._former_key)
        around = Surroundings(options.directory / "results", options.directory / "host", host_options.durable)
        around.base.mkdir(exist_ok=True)
        bindings = SiteSinkBindings(host, agent.changing)
        streams = self.streams = SiteStreams(host, [str(node["name"]) for node in options.nodes], around, bindings)
        replicas = self._replicas = Replicas(
            options.name, host, options.directory / "replicas", endpoint.peers.client_for, options.network, key
        )
        report = self._report = SiteReport(agent, endpoint.replication, replicas)
        fence = Fence(options.directory / "fence.json")
        take_up(host)
        agent.recovery.recover()  # before any slot runs: what had stopped at a marker must not read on
        host.start()
        host.deliver((), around)
        streams.restore()
        endpoint.open(
            fence,
            world=streams.take,
            changed=streams.deliver,
            facts=report.facts,
            orders=replicas.orders,
            serve_kept=replicas.serve,
            vote=self._vote,
        )
        agent.remote_channels.refresh()
        replicas.recover()
        threading.Thread(target=self._tick, args=(streams,), name="site", daemon=True).start()
        nodes, ours = tuple(options.nodes), version("meander")
        description = Description(options.name, nodes, self.address, instance, ours, options.broker)
        self._client = MembershipClient(client, description, fence, self, directory=options.directory)
        self._client.start()
        threading.Thread(target=host.warm_up, name="warming up", daemon=True).start()
        _log.info("site %s listens at %s", options.name, self.address)

    def stop(self, *, drain: bool = True) -> bool:
        """Ends after what was taken in is processed and has left, as far as that works in time, and leaves the fleet.

        Operators that can go elsewhere do so before. What is left is there at the next start. Says whether nothing was.
        Without `drain` it ends at once, and the coordinator waits for it until its session timeout ends.
        """
        drained = True
        host, client = self._host, self._client
        if host is not None and drain and host.slots:
            self._hand_over()
            drained = host.drain(timeout_s=DRAIN_S)
        self._ended.set()
        if client is not None:
            client.leave() if drain else client.stop()
        if self._replicas is not None:
            self._replicas.stop()
        if self._endpoint is not None:
            self._endpoint.close()
        if host is not None:
            host.stop()
        if self._own_spark and self._spark is not None:
            self._spark.stop()
        return drained

    def _hand_over(self) -> None:
        """Lets the coordinator move operators away, for as long as it does; if it does not answer they stay."""
        client, agent = self._client, self._agent
        if client is None or agent is None or client.membership is None:
            return
        try:
            client.drain()
        except (UnreachableError, RequestRefusedError, FencedError) as error:
            _log.warning("operators stay here until the next start: %s", error)
            return
        now = calm = time.monotonic()
        deadline = now + HAND_OVER_S
        while now < deadline and now - calm < CALM_S:
            time.sleep(LOOK_S)
            now = time.monotonic()
            calm = now if agent.changes else calm

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the coordinator has refused this site, or for a time; says whether it ended."""
        return self._ended.wait(timeout_s)

    @property
    def address(self) -> str:
        """Where others reach this site."""
        assert self._endpoint is not None, "the site was not started"
        return self._endpoint.address

    @property
    def host(self) -> Host:
        assert self._host is not None, "the site was not started"
        return self._host

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "the site was not started"
        return self._agent

    def _instance(self) -> str:
        """A random text that is made once for a directory."""
        path = self.options.directory / "instance.json"
        if not path.exists():
            FILES.replace(path, json.dumps({"instance": secrets.token_hex(8)}).encode())
        return str(json.loads(path.read_text())["instance"])

    def _tick(self, streams: SiteStreams) -> None:
        while not self._ended.wait(TICK_S):
            try:
                streams.deliver()
                self.agent.tidy()
            except Exception:
                _log.exception("keeping delivery in step failed; it is tried again")

    # ---------------------------------------------------------------- membership

    def refused(self, error: RequestRefusedError) -> None:
        self.refusal = str(error)
        self._ended.set()

    def measures(self) -> SiteMeasures:
        assert self._report is not None, "the site was not started"
        return self._report.measures()

    def _former_key(self) -> str | None:
        """The key of this site while its coordinator is of the version before."""
        client = self._client
        return former_key_of(self.options.token) if client is not None and client.protocol <= FORMER else None

    def _vote(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a standby of the coordinator."""
        votes = None if self._client is None else self._client.votes
        return {"granted": False, "reason": "it is starting"} if votes is None else votes.vote(asked)
