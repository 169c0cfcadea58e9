"""The coordinator's own host among the sites: its RPC server, and the parts that drive changes through the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.loop.quarantine import Remote
from meander.model.errors import InputError
from meander.model.ids import FragmentId, OperatorId
from meander.model.plain_json import to_plain
from meander.model.streams import SinkTarget, Stream
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.driver.fleet import ClientPool, Fleet
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.endpoint import AgentEndpoint, ListenOptions
from meander.reconfigure.replicas.replicas import Replicas
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME, key_of
from meander.run.reporting.inventory import Inventory
from meander.run.reporting.paused import pauses_from

AT_ONCE = 16
PROBE_S = 1.0


class Declared(Protocol):
    """The streams and sinks that sites have to know."""

    @property
    def streams(self) -> Mapping[str, Stream]: ...

    @property
    def sinks(self) -> Mapping[str, SinkTarget]: ...


class OwnSite:
    """Made before anything is taken up, opened with the host, closed with it."""

    def __init__(self, fleet: Fleet, secret: str, world: Declared, options: ListenOptions) -> None:
        """`secret` is known to the coordinator only: proofs for clients of this host are made with it."""
        self._key, self._options = key_of(f"{HOME} {secret}"), options
        self._world = {
            "streams": {name: to_plain(stream) for name, stream in world.streams.items()},
            "sinks": {name: to_plain(sink) for name, sink in world.sinks.items()},
        }
        self._clients = ClientPool(fleet, self._key, options.tls, options.broker)
        self._endpoint: AgentEndpoint | None = None
        self._driver: Driver | None = None
        self.outbox: Outbox | None = None
        self.replicas: Replicas | None = None
        self.facts: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        """The last facts about themselves of the sites that are there."""

    def join(self, loop: PlacementLoop) -> None:
        """Lets a loop's changes reach the sites; before it takes up what ran."""
        driver = self._driver = loop.driver
        endpoint = self._endpoint = AgentEndpoint(HOME, self._key, driver.agent, self._options)
        learn, participants = endpoint.peers.learn, driver.participants
        self.outbox = Outbox(
            self._clients, self._world, lambda: driver.under_way, learn, lambda: participants.concerned
        )
        driver.connect(self.outbox)
        loop.quarantine.remote = self._remote
        host = driver.host
        kept = host.options.directory.with_name("replicas")
        replicas = self.replicas = Replicas(HOME, host, kept, endpoint.peers.client_for, self._options, self._key)
        endpoint.open(serve_kept=replicas.serve)
        self._clients.home_address = endpoint.address

    @property
    def replication(self) -> Replication:
        """Of the coordinator's own store."""
        assert self._endpoint is not None, "the own site has not joined a loop"
        return self._endpoint.replication

    @property
    def clients(self) -> ClientPool:
        return self._clients

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

    def close(self) -> None:
        """After the core has stopped and before the host does."""
        if self._driver is not None:
            self._driver.close()
        if self.replicas is not None:
            self.replicas.stop()
        if self._endpoint is not None:
            self._endpoint.close()
        self._clients.close()

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

    def probe(self, sites: Sequence[str]) -> None:
        """Asks sites whether they still listen to this coordinator; one that does not says so to all orders."""
        if sites:
            with ThreadPoolExecutor(AT_ONCE, "probe") as pool:
                list(pool.map(self._probe, sites))

    def _probe(self, site: str) -> None:
        with suppress(AwayError, InputError):
            self._clients.order(site, "hello", {}, PROBE_S)

    def _inventory_of(self, site: str) -> Inventory | str:
        try:
            return Inventory.from_json(self._clients.order(site, "inventory", {}))
        except (AwayError, InputError) as error:
            return str(error)
        except (KeyError, TypeError, ValueError):
            return "its answer is not understood; update the site or the coordinator"

    def joined(self, site: str) -> None:
        """A site is there, for the first time or again: a handshake follows."""
        if self.outbox is not None:
            self.outbox.forget(site)
