"""The coordinator: everything put together on one directory. Start it, talk to it over HTTP or in Python, stop it.

    with running(Path("here"), Path("ring.yaml")) as coordinator:
        coordinator.submit("SELECT id FROM train WHERE speed < 5 INTO alerts", "slow")
        coordinator.events([{"event": "link_removed", "source": "train-1", "target": "station-1"}])

A directory that was used before goes on where it was, however the process before ended.
"""

from __future__ import annotations

import gc
import logging
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.api.server import Server
from meander.coordinator.assembly import Assembly, assemble
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, announce, held, own_secret, withdraw
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.loop import PlacementLoop
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.records import MemberState
from meander.coordinator.membership.service import MembershipService
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.own_site import OwnSite
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.replicas.service import ReplicaService
from meander.coordinator.security.authenticator import OWNER
from meander.coordinator.security.private import private_directory
from meander.coordinator.security.tokens import Tokens
from meander.coordinator.service.changes import body_of
from meander.coordinator.service.service import Service
from meander.lang.topology.reader import TopologyFile, load
from meander.model.events import ChangeEvent
from meander.model.expressions.allowed_functions import ANY
from meander.place.catalog import Catalog
from meander.reconfigure.endpoint import ListenOptions
from meander.run.connectors import check_connectors
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.http_source import HttpPush
from meander.run.delivery.latency import LatencyHistogram
from meander.run.host import Host, HostOptions
from meander.run.operators.user_function import allowing
from meander.run.rebinding.options import rebinding_by
from meander.run.reporting.join_part_memories import memories_of
from meander.run.session import own_session, start_session

_log = logging.getLogger(__name__)
WARM_UP_S = 60.0
"""The time that slots may take for their first step."""


class Coordinator:
    """Use `running`."""

    def __init__(
        self, home: CoordinatorDirectory, world: TopologyFile, options: CoordinatorOptions, spark: SparkSession | None
    ) -> None:
        self.home, self.world, self.options = home, world, options
        self.hub = Hub(secrets.token_hex(4))
        reader = ChangeReader(world.streams, world.sinks, options.functions)
        self.service = Service(self.hub, Tokens.load(home.tokens), reader, options.samples, options.adapt)
        self.server = Server(self.service, options.host, options.port, options.tls)
        self.stepped_down = threading.Event()
        """Set when another coordinator has taken over: this one does nothing any more and should be stopped."""
        self.membership_service = MembershipService(
            home.ledger, reader, self._step_down, options.heartbeat_ms, options.session_timeout_ms
        )
        self.service.has_sites(self.membership_service.membership, self.membership_service.auditor)
        self._spark, self._own_spark = None if spark is None else own_session(spark), spark is None
        self._parts: Assembly | None = None
        self._host: Host | None = None
        self._own_site: OwnSite | None = None
        self._replicas: ReplicaService | None = None

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Listens at once; takes up what ran before and begins to run as soon as Spark is there."""
        allowing.functions = self.options.functions
        self.membership_service.start()
        self.server.start()
        announce(self.home, self.address, self.token)
        started = time.monotonic()
        if self._spark is None:
            self._spark = start_session("meander")
        parts = self._assemble()
        reports = parts.measuring.sites = self.membership_service.membership.roster.reports
        parts.loop.retired.elsewhere = lambda: memories_of(report.memories for report in reports().values())
        host = parts.host
        host.start()
        host.warm_up()
        host.deliver((), parts.around)
        parts.settle()
        parts.core.carry_on()
        sources = {name: self.options.source_of(s, parts.around) for name, s in self.world.streams.items()}
        self.service.receivers = {name: s for name, s in sources.items() if isinstance(s, HttpPush)}
        host.feeding.begin(self.world.streams.values(), parts.around, sources)
        _settle_memory()
        parts.core.start()
        parts.measuring.start()
        self.service.ready(parts.core, EventHistory(self.home.ledger))
        if self._replicas is not None:
            self._replicas.ready(parts.core)
        self.membership_service.ready(parts.core)
        _log.info("running after %.1f s at %s", time.monotonic() - started, self.address)

    def _assemble(self) -> Assembly:
        assert self._spark is not None
        options, world = self.options, self.world
        self.home.results.mkdir(exist_ok=True)
        host_options = HostOptions(
            self.home.host,
            options.slots,
            rebinding=rebinding_by(options.rebinding, options.slots),
            idle_timeout_ms=world.resilience.idle_timeout_ms,
        ).surviving(options.durability)
        self._host = Host.open(host_options, self._spark)
        around = Surroundings(self.home.results, self.home.host, host_options.durable)
        self._parts = assemble(
            self._host, world, self.home.ledger, around, self.hub, options, self.membership_service.epoch, self._join
        )
        return self._parts

    def stop(self) -> None:
        """Stops at once; tuples that were taken in go on at the next start."""
        self.service.stopping()
        allowing.functions = ANY
        self.membership_service.stop()
        if self._replicas is not None:
            self._replicas.stop()
        if self._parts is not None:
            self._parts.measuring.stop()
            self._parts.core.stop()
        if self._own_site is not None:
            self._own_site.close()
        if self._host is not None:
            self._host.stop()
        self.hub.close()
        self.server.stop()
        if self._parts is not None:
            self._parts.close()
        self.service.close()
        self.membership_service.close()
        gc.unfreeze()
        withdraw(self.home)
        if self._own_spark and self._spark is not None:
            self._spark.stop()

    def _join(self, loop: PlacementLoop) -> None:
        """Lets sites take part in the loop's changes."""
        options, tls = self.options, self.options.tls
        pair = None if tls is None else (tls.certificate.read_bytes(), tls.key.read_bytes())
        listen = options.rpc_listen or f"{options.host}:0"
        authority = None if options.ca is None else options.ca.read_bytes()
        broker = (options.broker, options.broker_settings)
        reached = ListenOptions(listen, options.rpc_address, pair, authority, *broker, options.mutual_tls)
        members = MemberFleet(self.membership_service.membership)
        own_site = self._own_site = OwnSite(members, own_secret(self.home), self.world, reached)
        own_site.facts = self.membership_service.membership.roster.facts
        own_site.join(loop)
        replicas = self._replicas = ReplicaService(
            loop.driver, self.membership_service.membership, members, own_site, self.world.resilience
        )
        self.service.has_replicas(replicas)
        present = self.membership_service.membership.roster.present
        self.service.inventories = lambda: own_site.inventories(present())
        self.service.resume_elsewhere = lambda name, operators: own_site.resume(present(), name, operators)

        def heard(site: str, state: MemberState) -> None:
            members.changed()
            if state is MemberState.HERE:
                own_site.joined(site)
                replicas.joined(site)

        self.membership_service.membership.watchers.append(heard)

    def _step_down(self, reason: str) -> None:
        """Stops: another coordinator acts, and this one is to be ended by its user."""
        if self._parts is not None:
            self._parts.core.halt()
        self.stepped_down.set()

    # ---------------------------------------------------------------- asking

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def page(self) -> str:
        """An address that opens the page once, within an hour."""
        return f"{self.address}/{self.service.authenticator.link(OWNER)}"

    @property
    def token(self) -> str:
        """The token of the directory's owner, good for this process."""
        return self.service.authenticator.own_token

    @property
    def parts(self) -> Assembly:
        assert self._parts is not None, "the coordinator was not started"
        return self._parts

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "the coordinator was not started"
        return self._spark

    @property
    def catalog(self) -> Catalog:
        """Not to be touched while the coordinator runs, but for looking at streams and sinks."""
        return self.parts.loop.catalog

    @property
    def first_sink_bindings(self) -> list[SinkBinding]:
        """The sink bindings of the first queries that were never stopped."""
        first = set(self.options.first)
        return [
            o for o in self.parts.core.sink_bindings.known.values() if o.query in first and o.query not in self.stopped
        ]

    @property
    def stopped(self) -> set[str]:
        return self.parts.core.sink_bindings.stopping

    def submit(self, text: str, name: str | None = None) -> dict[str, Any]:
        """Adds a query; gives it as `GET /queries/{id}` does."""
        return body_of(self.service.changes.submit(text, name))

    def events(self, events: Sequence[Mapping[str, Any] | ChangeEvent]) -> dict[str, Any]:
        """Applies change events as one batch; returns the result."""
        return body_of(self.service.changes.apply(events))

    def restore(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Brings removed nodes back as they were; returns the result."""
        return body_of(self.service.changes.restore(nodes))

    def forget(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Removed nodes are not wanted back."""
        return body_of(self.service.changes.forget(nodes))

    def demands(self, query: str, demands: Sequence[str]) -> dict[str, Any]:
        return body_of(self.service.changes.demand(query, demands))

    def positions(self, positions: Mapping[str, tuple[float, float]]) -> None:
        """The positions of moving things now."""
        self.service.positions.move({name: {"x": x, "y": y} for name, (x, y) in positions.items()})

    def latencies(self) -> dict[str, LatencyHistogram]:
        """Event-time latency by query since the process began."""
        return self.parts.host.latencies()

    def summary(self) -> dict[str, Any]:
        """The totals since the process began."""
        return self.parts.summary()

    def drain(self, timeout_s: float = 60.0) -> bool:
        """Stops the sources, ends the streams and waits until everything is delivered; no more changes afterwards."""
        parts = self.parts
        parts.core.stop()
        deadline = time.monotonic() + timeout_s
        transitions = parts.core.adaptation.transitions
        while transitions.under_way and time.monotonic() < deadline:
            parts.loop.settle(1.0)
            transitions.poll()
        parts.loop.settle(max(1.0, deadline - time.monotonic()))
        drained = parts.host.drain(end_streams=True, timeout_s=max(1.0, deadline - time.monotonic()))
        parts.core.measured(parts.measuring.measure())
        parts.core.carry_on()
        return drained


def _settle_memory() -> None:
    """Takes the objects made so far out of garbage collection.

    Most of them are code, and stay; going through all of them stops every thread for 0.3 s, requests included.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def running(
    directory: Path,
    topology: Path | None = None,
    options: CoordinatorOptions | None = None,
    spark: SparkSession | None = None,
) -> Iterator[Coordinator]:
    """A coordinator on a directory, which is made when it is new; it needs a topology then."""
    chosen = options or CoordinatorOptions()
    chosen.check()
    home = CoordinatorDirectory(directory)
    if not home.exists:
        if topology is None:
            home.check()
        else:
            create(directory, topology)
    private_directory(directory)
    with held(home):
        world = load(home.topology)
        check_connectors(world.streams.values(), (), Surroundings(home.results, home.host))
        coordinator = Coordinator(home, world, chosen, spark)
        try:
            coordinator.start()
            yield coordinator
        finally:
            coordinator.stop()
