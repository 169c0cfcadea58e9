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
from meander.model.errors import InputError
from meander.model.locks import lock
from meander.model.plain import from_plain
from meander.model.streams import SinkTarget, Stream
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.peers import PeerDirectory
from meander.reconfigure.agent.request_handler import AgentRequestHandler
from meander.reconfigure.serialised_fragment import take_up
from meander.run.channels.flight.proof import key_of
from meander.run.channels.flight.server import FlightServer
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.connectors import source_for
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions
from meander.run.rebinding.options import USUAL, rebinding_by
from meander.run.reporting.backlog import Backlog, read_counters
from meander.run.reporting.host_report import HostReport
from meander.run.reporting.paused import MOST_FACTS, failed_facts
from meander.run.session import own_session, start_session
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.decisions import StreamsAndSinksRecord
from meander.site.sink_bindings import SiteSinkBindings

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


class Site(MembershipListener):
    """Start it, wait, stop it."""

    def __init__(self, options: SiteOptions, spark: SparkSession | None = None) -> None:
        self.options = options
        self._spark, self._own_spark = None if spark is None else own_session(spark), spark is None
        self._host: Host | None = None
        self._agent: Agent | None = None
        self._door: FlightServer | None = None
        self._client: MembershipClient | None = None
        self._contacts: PeerDirectory | None = None
        self._outlets: SiteSinkBindings | None = None
        self._backlog = Backlog()
        self._streams: dict[str, Stream] = {}
        self._fed: dict[str, Stream] | None = None
        """The streams that are taken in, as they were when that began."""
        self._sinks: dict[str, SinkTarget] = {}
        self._feeding = lock("site ingest")
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="site", daemon=True)
        self.refusal: str | None = None
        """Why the coordinator does not want this site, if it does not."""

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Runs what the directory says, listens, and begins to join."""
        options = self.options
        rebinding = rebinding_by(options.rebinding, options.slots)
        options.directory.mkdir(parents=True, exist_ok=True)
        instance = self._instance()
        if self._spark is None:
            extra = dict(options.spark) | ({"spark.master": options.master} if options.master else {})
            self._spark = start_session(f"meander site {options.name}", extra=extra)
        try:
            found = HostOptions(options.directory / "host", options.slots, rebinding=rebinding)
            host = self._host = Host(found, self._spark)
        except JournalError as error:
            raise InputError(str(error)) from None
        authority = None if options.ca is None else options.ca.read_bytes()
        contacts = self._contacts = PeerDirectory(host.store, options.name, authority)
        key, kafka = key_of(options.token), None
        if options.broker:
            broker = Broker(self._spark, options.broker, options.broker_settings)
            kafka = KafkaExchange(broker, options.name, key, contacts.contact)
        agent = self._agent = Agent(host)
        agent.connect(contacts.asker, kafka)
        self._outlets = SiteSinkBindings(host, agent.changing)
        host.troubles.append(self._stale)
        fence = Fence(options.directory / "fence.json")
        desk = AgentRequestHandler(
            options.name,
            agent,
            contacts,
            fence,
            world=self._take_world,
            changed=self._deliver,
            facts=self._facts,
        )
        take_up(host)
        agent.recover()  # before any slot runs: what had stopped at a marker must not read on
        host.start()
        host.deliver((), self.around)
        if (told := host.store.record(StreamsAndSinksRecord)) is not None:
            self._learn_world(told)
        self._door = FlightServer(host.store, desk, key, self._location(), self._certificates())
        agent.refresh()
        self._ticker.start()
        nodes, ours = tuple(options.nodes), version("meander")
        description = Description(options.name, nodes, self.address, instance, ours, options.broker)
        self._client = MembershipClient(
            CoordinatorClient(options.join, options.token, options.ca), description, fence, self
        )
        self._client.start()
        threading.Thread(target=host.warm_up, name="warming up", daemon=True).start()
        _log.info("site %s listens at %s", options.name, self.address)

    def stop(self, *, drain: bool = True) -> bool:
        """Ends after what was taken in is processed and has left, as far as that works in time, and leaves the fleet.

        Operators that can go elsewhere do so before. What is left is there at the next start. Says whether nothing was.
        Without `drain` it ends at once, and the coordinator waits for it until its patience ends.
        """
        drained = True
        host, client = self._host, self._client
        if host is not None and drain and host.slots:
            self._hand_over()
            drained = host.drain(timeout_s=DRAIN_S)
        self._ended.set()
        if client is not None:
            client.leave() if drain else client.stop()
        if self._door is not None:
            self._door.shutdown()
        if self._agent is not None:
            self._agent.stop()
        if self._contacts is not None:
            self._contacts.close()
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
        assert self._door is not None
        scheme = "grpc+tls" if self.options.certificate else "grpc"
        host = self.options.listen.rsplit(":", 1)[0]
        shown = self.options.address or f"{host}:{self._door.port}"
        return shown if "://" in shown else f"{scheme}://{shown}"

    @property
    def around(self) -> Surroundings:
        results = self.options.directory / "results"
        results.mkdir(exist_ok=True)
        return Surroundings(results, self.options.directory / "host")

    @property
    def host(self) -> Host:
        assert self._host is not None, "the site was not started"
        return self._host

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "the site was not started"
        return self._agent

    def _location(self) -> str:
        return f"{'grpc+tls' if self.options.certificate else 'grpc'}://{self.options.listen}"

    def _certificates(self) -> list[tuple[bytes, bytes]]:
        certificate, key = self.options.certificate, self.options.key
        if certificate is None or key is None:
            return []
        return [(certificate.read_bytes(), key.read_bytes())]

    def _instance(self) -> str:
        """A random text that is made once for a directory."""
        path = self.options.directory / "instance.json"
        if not path.exists():
            path.write_text(json.dumps({"instance": secrets.token_hex(8)}))
        return str(json.loads(path.read_text())["instance"])

    # ---------------------------------------------------------------- streams and sinks

    def _take_world(self, told: Mapping[str, Any]) -> None:
        """Streams and sinks, told by the coordinator."""
        saved = StreamsAndSinksRecord(told["streams"], told["sinks"])
        with self._feeding:
            if self.host.store.record(StreamsAndSinksRecord) != saved:
                self.host.store.commit(Commit(records=(saved,)))
        self._learn_world(saved)

    def _learn_world(self, told: StreamsAndSinksRecord) -> None:
        """Begins to take in the streams that nodes of this site produce."""
        with self._feeding:
            self._sinks = {name: from_plain(sink) for name, sink in told.sinks.items()}
            mine = {str(node["name"]) for node in self.options.nodes}
            streams: dict[str, Stream] = {name: from_plain(stream) for name, stream in told.streams.items()}
            self._streams = {name: s for name, s in streams.items() if mine & set(s.nodes)}
            if self.host.ingest is None:
                self._fed = self._streams
                sources = {name: source_for(s, self.around) for name, s in self._streams.items()}
                self.host.feed(self._streams.values(), self.around, sources)
        self._deliver()

    def _stale(self) -> list[str]:
        """Streams that are not taken in as they are now."""
        fed = self._fed
        changed = [] if fed is None else [name for name, stream in self._streams.items() if fed.get(name) != stream]
        return [f"stream {name} is new or has changed; start this site again to take it in" for name in changed]

    def _deliver(self) -> None:
        assert self._outlets is not None
        with self._feeding:
            self._outlets.tick(self._sinks)

    def _tick(self) -> None:
        while not self._ended.wait(TICK_S):
            try:
                self._deliver()
                self.agent.tidy()
            except Exception:
                _log.exception("keeping delivery in step failed; it is tried again")

    # ---------------------------------------------------------------- membership

    def refused(self, error: RequestRefusedError) -> None:
        self.refusal = str(error)
        self._ended.set()

    def measures(self) -> SiteMeasures:
        flows = self._backlog.read(int(time.monotonic() * 1000), read_counters(self.host.store.exchange))
        report = HostReport.of(self.host.status(), flows, self.host.ingest_channels)
        return SiteMeasures(host={**self._facts(), **report.as_json()})

    def _facts(self) -> dict[str, Any]:
        """The facts about this process."""
        status, pulling = self.host.status(), self.agent.pulling
        assert pulling is not None
        return {
            "healthy": status.healthy,
            "problems": list(status.problems)[:10],
            "fragments": status.fragments,
            "failed": failed_facts(self.host),
            "behind": [int(f) for f in status.behind][:MOST_FACTS],
            "pending": status.pending_tuples,
            "tuples_in": status.ingest.rows if status.ingest else 0,
            "tuples_out": status.delivery.rows if status.delivery else 0,
            "state_bytes": status.state_bytes,
            "results": {
                name: task.rows for name, task in (status.delivery.sink_bindings if status.delivery else {}).items()
            },
            "pulled_records": pulling.metrics.records,
            "pulled_damaged": pulling.metrics.damaged,
            "pulls_nothing": {way[-1]: reason for way, reason in list(pulling.problems.items())},
        }
