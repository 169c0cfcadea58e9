"""The coordinator's process: its parts made and joined on one directory, started in order, stopped in order."""

from __future__ import annotations

import gc
import logging
import secrets
import threading
import time

from pyspark.sql import SparkSession

from meander.api.server import Server
from meander.api.site_side import SiteSide
from meander.coordinator.assembly import Assembly, assemble
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.directory.directory import CoordinatorDirectory, announce, own_secret, withdraw
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.membership.service import MembershipService
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.tokens import Tokens
from meander.coordinator.service.service import Service
from meander.lang.topology.reader import TopologyFile
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions
from meander.run.rebinding.options import rebinding_by
from meander.run.reporting.join_part_memories import memories_of
from meander.run.session import own_session, start_session

_log = logging.getLogger(__name__)


class CoordinatorProcess:
    """Started once, stopped once."""

    def __init__(
        self, home: CoordinatorDirectory, world: TopologyFile, options: CoordinatorOptions, spark: SparkSession | None
    ) -> None:
        self.home, self.world, self.options = home, world, options
        self.hub = Hub(secrets.token_hex(4))
        reader = ChangeReader(world.streams, world.sinks, options.functions)
        self.service = Service(self.hub, Tokens.load(home.tokens), reader, options.samples, options.adapt)
        if options.oidc is not None:
            self.service.authenticator.use(options.oidc)
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
        self._site_side: SiteSide | None = None

    @property
    def token(self) -> str:
        """The token of the directory's owner, good for this process."""
        return self.service.authenticator.own_token

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Listens at once; takes up what ran before and begins to run as soon as Spark is there."""
        self.membership_service.start()
        self.server.start()
        announce(self.home, self.server.address, self.token)
        started = time.monotonic()
        if self._spark is None:
            self._spark = start_session("meander")
        parts = self._assemble()
        if self.stepped_down.is_set():  # sites listen to another one since
            return
        assert self._site_side is not None, "the own host has joined"
        reports = parts.measuring.sites = self._site_side.replicas.told.reports
        parts.loop.retired.elsewhere = lambda: memories_of(report.memories for report in reports().values())
        host = parts.host
        host.start()
        host.warm_up()
        host.deliver((), parts.around)
        parts.settle()
        parts.core.carry_on()
        sources = {name: self.options.source_of(s, parts.around) for name, s in self.world.streams.items()}
        self.service.take_rows(sources)
        host.feeding.begin(self.world.streams.values(), parts.around, sources)
        _settle_memory()
        parts.core.start()
        parts.measuring.start()
        self.service.ready(parts.core, EventHistory(self.home.ledger))
        self._site_side.ready(parts.core)
        self.membership_service.ready(parts.core)
        _log.info("running after %.1f s at %s", time.monotonic() - started, self.server.address)

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
        host_options = host_options.bounded(options.channel_budget, options.overflow)
        self._host = Host.open(host_options, self._spark)
        around = Surroundings(self.home.results, self.home.host, host_options.durable)
        self._parts = assemble(
            self._host, world, self.home.ledger, around, self.hub, options, self.membership_service.epoch, self._join
        )
        return self._parts

    def stop(self) -> None:
        """Stops at once; tuples that were taken in go on at the next start."""
        self.service.stopping()
        self.membership_service.stop()
        if self._site_side is not None:
            self._site_side.stop()
        if self._parts is not None:
            self._parts.measuring.stop()
            self._parts.core.stop()
        if self._site_side is not None:
            self._site_side.close()
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
        membership = self.membership_service.membership
        address = self.options.url or self.server.address
        self._site_side = SiteSide(
            loop, membership, self.service, own_secret(self.home), self.world, self.options, self.home, address
        )

    def _step_down(self, reason: str) -> None:
        """Stops: another coordinator acts, and this one is to be ended by its user."""
        if self._parts is not None:
            self._parts.core.halt()
        self.stepped_down.set()


def _settle_memory() -> None:
    """Takes the objects made so far out of garbage collection.

    Most of them are code, and stay; going through all of them stops every thread for 0.3 s, requests included.
    """
    gc.collect()
    gc.freeze()
