"""The coordinator's own host among the sites: its RPC server, and the parts that drive changes through the fleet."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from meander.coordinator.loop import PlacementLoop
from meander.coordinator.membership.members import Membership
from meander.coordinator.quarantine import Remote
from meander.membership.addresses import is_everywhere
from meander.membership.protocol import Epoch
from meander.model.errors import InputError
from meander.model.ids import FragmentId, OperatorId
from meander.model.locks import lock
from meander.model.plain import to_plain
from meander.model.streams import SinkTarget, Stream
from meander.reconfigure.agent.peers import PeerDirectory
from meander.reconfigure.agent.request_handler import AgentRequestHandler
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.driver.fleet import ClientPool, Fleet
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.replicas.replicas import Replicas
from meander.reconfigure.replicas.stand_in import KeeperAddress
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME, key_of
from meander.run.channels.flight.server import FlightServer
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.host import Host
from meander.run.reporting.inventory import Inventory
from meander.run.reporting.paused import pauses_from

FRESH_S = 5.0
"""The time for which entries of the membership store are used again, unless a site comes or goes."""
AT_ONCE = 16


class Declared(Protocol):
    """The streams and sinks that sites have to know."""

    @property
    def streams(self) -> Mapping[str, Stream]: ...

    @property
    def sinks(self) -> Mapping[str, SinkTarget]: ...


class Members:
    """Implements `Fleet` with the members of a coordinator."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._lock = lock("fleet addresses")
        self._until = 0.0
        self._addresses: dict[str, str] = {}
        self._stand_ins: dict[str, str] = {}
        self._brokers: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    @property
    def epoch(self) -> Epoch:
        return self._membership.epoch

    def owner(self, node: str) -> str | None:
        return self._membership.owner(node)

    def addresses(self) -> Mapping[str, str]:
        self._refresh()
        return self._addresses

    def brokers(self) -> Mapping[str, str]:
        self._refresh()
        return self._brokers

    def key(self, site: str) -> str | None:
        self._refresh()
        return self._keys.get(site)

    def put(self, site: str, address: str | None) -> None:
        """A replica stands in for a site at an address, or no longer does."""
        with self._lock:
            found = {name: at for name, at in self._stand_ins.items() if name != site}
            self._stand_ins = found if address is None else {**found, site: address}
        self.changed()

    def changed(self) -> None:
        """Drops the cached entries: a site came or went."""
        self._until = 0.0

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() < self._until:
                return
            store = self._membership.store
            self._keys = store.keys()
            rows = [row for row in store.sites() if row.name in self._keys]
            self._addresses = {row.name: row.address for row in rows if row.address} | self._stand_ins
            self._brokers = {row.name: row.broker for row in rows if row.broker}
            self._until = time.monotonic() + FRESH_S


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The listening address of the coordinator's own host, and the address at which sites reach it."""

    listen: str = "127.0.0.1:0"
    address: str | None = None
    certificate: tuple[bytes, bytes] | None = None
    authority: bytes | None = None
    broker: str = ""
    """The Kafka broker that it shares with sites that use the same one."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    replicas: Path | None = None
    """Where replicas of sites are kept; beside the host's store if not given."""


class OwnSite:
    """Made before anything is taken up, opened with the host, closed with it."""

    def __init__(self, fleet: Fleet, secret: str, world: Declared, options: ListenOptions) -> None:
        """`secret` is known to the coordinator only: proofs for clients of this host are made with it."""
        self._key, self._options = key_of(f"{HOME} {secret}"), options
        self._world = {
            "streams": {name: to_plain(stream) for name, stream in world.streams.items()},
            "sinks": {name: to_plain(sink) for name, sink in world.sinks.items()},
        }
        self._clients = ClientPool(fleet, self._key, options.authority, options.broker)
        self._peers: PeerDirectory | None = None
        self._rpc_server: FlightServer | None = None
        self._driver: Driver | None = None
        self.outbox: Outbox | None = None
        self.replicas: Replicas | None = None
        self.facts: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        """The last facts about themselves of the sites that are there."""

    def join(self, loop: PlacementLoop, host: Host) -> None:
        """Lets a loop's changes reach the sites; before it takes up what ran."""
        driver = self._driver = loop.driver
        peers = self._peers = PeerDirectory(host.store, HOME, self._options.authority)
        broker, kafka = self._options.broker, None
        if broker:
            shared = Broker(host.spark, broker, self._options.broker_settings)
            kafka = KafkaExchange(shared, HOME, self._key, peers.contact)
        driver.agent.connect(peers.asker, kafka)
        self.outbox = Outbox(
            self._clients, self._world, lambda: driver.under_way, self._learn, lambda: driver.participants.concerned
        )
        driver.connect(self.outbox)
        loop.quarantine.remote = self._remote
        handler = AgentRequestHandler(HOME, driver.agent, peers)
        kept = self._options.replicas or host.options.directory / "replicas"
        replicas = self.replicas = Replicas(HOME, host.store, kept, peers.asker, lambda: host.spark, self._beside)
        handler.serve_kept = replicas.serve
        host.troubles.append(replicas.problems)
        scheme = "grpc+tls" if self._options.certificate else "grpc"
        pairs = [self._options.certificate] if self._options.certificate else []
        server = self._rpc_server = FlightServer(
            host.store, handler, self._key, f"{scheme}://{self._options.listen}", pairs
        )
        shown = self._options.address or f"{self._here()}:{server.port}"
        self._clients.home_address = shown if "://" in shown else f"{scheme}://{shown}"

    @property
    def clients(self) -> ClientPool:
        return self._clients

    def _beside(self) -> KeeperAddress:
        """Where the replicas of sites listen that stand in for them here."""
        options, shown = self._options, self._clients.home_address or ""
        pairs = [options.certificate] if options.certificate else []
        return KeeperAddress.beside(options.listen, shown, pairs, options.authority)

    def _remote(self) -> Remote:
        """The pauses and backlogs that sites report of their fragments."""
        hosts = self._driver.sites if self._driver is not None else {}
        if not hosts:
            return Remote()
        facts = self.facts()
        behind = [FragmentId(int(f)) for said in facts.values() for f in said.get("behind", ())]
        pauses = [pauses_from(said.get("failed", {})) for said in facts.values()]
        heard = frozenset(f for f, site in hosts.items() if site in facts)
        return Remote({key: p for each in pauses for key, p in each.items()}, frozenset(behind), heard)

    def _here(self) -> str:
        """The host at which sites reach this one, unless configured: its name if it listens everywhere."""
        listen = self._options.listen
        return socket.getfqdn() if is_everywhere(listen) else listen.rsplit(":", 1)[0]

    def close(self) -> None:
        """After the core has stopped and before the host does."""
        if self._driver is not None:
            self._driver.close()
        if self._rpc_server is not None:
            self._rpc_server.shutdown()
        if self.replicas is not None:
            self.replicas.stop()
        if self._driver is not None:
            self._driver.agent.stop()
        if self._peers is not None:
            self._peers.close()
        self._clients.close()

    def _learn(self, peers: Mapping[str, Any]) -> None:
        if self._peers is not None:
            self._peers.learn(peers)

    def resume(
        self, sites: Sequence[str], name: str | None, operators: Sequence[OperatorId] = ()
    ) -> dict[str, list[str] | str]:
        """Lets sites try paused parts again; for each their names, or the reason why the site could not be reached."""
        with ThreadPoolExecutor(AT_ONCE, "resuming") as pool:
            return dict(zip(sites, pool.map(lambda site: self._resume_at(site, name, operators), sites), strict=True))

    def _resume_at(self, site: str, name: str | None, operators: Sequence[OperatorId]) -> list[str] | str:
        try:
            told = {"name": name, "operators": list(operators)}
            return [str(what) for what in self._clients.order(site, "resume", told)]
        except (AwayError, InputError) as error:
            return str(error)

    def inventories(self, sites: Sequence[str]) -> dict[str, Inventory | str]:
        """The inventories of sites; for each that could not be asked the reason."""
        if not sites:
            return {}
        with ThreadPoolExecutor(AT_ONCE, "inventories") as pool:
            return dict(zip(sites, pool.map(self._inventory_of, sites), strict=True))

    def _inventory_of(self, site: str) -> Inventory | str:
        try:
            return Inventory.from_json(self._clients.order(site, "inventory", {}))
        except (AwayError, InputError) as error:
            return str(error)
        except (KeyError, TypeError, ValueError):
            return "its answer is not understood; update the site or the coordinator"

    def joined(self, site: str) -> None:
        """A site is there, for the first time or again: it is greeted."""
        if self.outbox is not None:
            self.outbox.forget(site)
