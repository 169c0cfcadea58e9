"""The fleet as whoever drives changes sees it: which site runs a node, where it is, what sites know of each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from meander.membership.protocol import Epoch
from meander.model.locks import lock
from meander.reconfigure.agent.serving.request_handler import NEWEST
from meander.run.channels.flight.client import AwayError, ClientTls, FlightClient, PeerRefusedError
from meander.run.channels.flight.proof import (
    COORDINATOR,
    FORMER,
    HOME,
    PeerAddress,
    former_proof,
    proof,
    records_secret,
)


class Fleet(Protocol):
    """The members. Sites stay members while they are away."""

    @property
    def epoch(self) -> Epoch:
        """Which coordinator this is."""

    def owner(self, node: str) -> str | None:
        """The site that runs a node's fragments; None for the coordinator's own host."""

    def addresses(self) -> Mapping[str, str]:
        """Where each site was last reachable."""

    def brokers(self) -> Mapping[str, str]:
        """The brokers that sites use, of those that use one."""

    def revoked(self) -> Collection[str]:
        """Sites that have joined once and whose token is good no more: nobody is to answer them."""

    def key(self, site: str) -> str | None:
        """The key that proofs for a site are made with; None when it has no token any more, or was not heard of since
        this process began."""

    def former_key(self, site: str) -> str | None:
        """The key of a site as the protocol before makes it."""

    def protocol(self, site: str) -> int:
        """The version of the site protocol that was agreed on with a site."""


class ClientPool:
    """Asks sites, in the name of the coordinator or of its own host."""

    def __init__(self, fleet: Fleet, home_key: str, tls: ClientTls | None = None, home_broker: str = "") -> None:
        """`home_key` is for those who ask at the coordinator's own host."""
        self.fleet, self._home_key, self._tls = fleet, home_key, tls
        self._home_broker = home_broker
        self.home_address: str | None = None
        self.fenced: Callable[[Epoch], None] = lambda newest: None
        """Told when a site listens to another coordinator, by that one's epoch."""
        self._lock = lock("client pool")
        self._clients: dict[str, FlightClient] = {}

    def order(self, site: str, action: str, body: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """Gives an order in this coordinator's epoch."""
        told = {"protocol": self.fleet.protocol(site), **self.fleet.epoch.as_json(), **body}
        try:
            return self._client_for(site).order(action, told, timeout_s)
        except PeerRefusedError as error:
            if NEWEST in error.facts:
                self.fenced(Epoch.of_json(error.facts[NEWEST]))
            raise

    def peers_of(self, site: str) -> dict[str, dict[str, str]]:
        """Addresses and proofs with which a site asks all others."""
        found: dict[str, dict[str, str]] = {}
        brokers = {**self.fleet.brokers(), HOME: self._home_broker}
        for other, address in self.fleet.addresses().items():
            shown = self._proof(other, site)
            if other != site and shown is not None and address:
                found[other] = {"address": address, "proof": shown}
        if site != HOME and self.home_address is not None:
            found[HOME] = {"address": self.home_address, "proof": proof(self._home_key, site)}
        for other in self.fleet.revoked():
            found[other] = {"address": "", "proof": ""}
        for other in found:
            if (broker := brokers.get(other)) and self._is_former(other) == self._is_former(site):
                found[other]["broker"] = broker
                key = self._home_key if other == HOME else self.fleet.key(other)
                if key is not None and not self._is_former(other):
                    found[other]["records"] = records_secret(key, site)
        return found

    def _is_former(self, site: str) -> bool:
        return site != HOME and self.fleet.protocol(site) <= FORMER

    def _proof(self, site: str, peer: str) -> str | None:
        """The proof of a peer at a site; None as long as that site's key is not known."""
        if self._is_former(site):
            former = self.fleet.former_key(site)
            return None if former is None else former_proof(former, peer)
        key = self.fleet.key(site)
        return None if key is None else proof(key, peer)

    def _client_for(self, site: str) -> FlightClient:
        address, shown = self.fleet.addresses().get(site), self._proof(site, COORDINATOR)
        if not address or shown is None:
            raise AwayError(f"site {site} has not joined")
        contact = PeerAddress(address, shown)
        with self._lock:
            found = self._clients.get(site)
            if found is None or found.peer != contact:
                found = self._clients[site] = FlightClient(contact, COORDINATOR, self._tls)
            return found

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()
