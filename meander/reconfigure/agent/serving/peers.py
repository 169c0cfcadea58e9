"""The addresses of other sites, and the proofs to show there: told by the coordinator, remembered across restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meander.model.locks import lock
from meander.run.channels.flight.client import AwayError, ClientTls, FlightClient
from meander.run.channels.flight.proof import PeerAddress, opened, sealed
from meander.run.store.commit import Commit
from meander.run.store.records.transport import PeersRecord
from meander.run.store.store import Store


class PeerDirectory:
    """The other sites, as one site asks them."""

    def __init__(self, store: Store, me: str, key: str, tls: ClientTls | None = None) -> None:
        """`tls` is for addresses that have it. Proofs are kept so that only somebody with `key` can read them."""
        self._store, self._me, self._key, self._tls = store, me, key, tls
        self._lock = lock("peers")
        self._clients: dict[str, FlightClient] = {}
        saved = store.record(PeersRecord)
        self._known = {} if saved is None else self._opened(saved)

    def learn(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes over who is where, and who is no member any more; others that were known stay known."""
        told = {
            site: PeerAddress(str(p["address"]), str(p["proof"]), str(p.get("broker", "")), str(p.get("records", "")))
            for site, p in peers.items()
        }
        with self._lock:
            fresh = {site: contact for site, contact in told.items() if self._known.get(site) != contact}
            if not fresh:
                return
            self._known = {**self._known, **fresh}
            saved = PeersRecord({site: (c.address, self._sealed(c), c.broker) for site, c in self._known.items()})
            stale = [self._clients.pop(site) for site in fresh if site in self._clients]
        self._store.commit(Commit(records=(saved,)))
        for client in stale:
            client.close()

    def _sealed(self, contact: PeerAddress) -> str:
        return sealed(self._key, json.dumps([contact.proof, contact.records])) if contact.proof else ""

    def _opened(self, saved: PeersRecord) -> dict[str, PeerAddress]:
        """Those that were kept; without those of a former token, which the coordinator tells anew."""
        found: dict[str, PeerAddress] = {}
        for site, (address, hidden, broker) in saved.contacts.items():
            text = opened(self._key, hidden)
            if text is not None:
                proof, records = json.loads(text) if text.startswith("[") else (text, "")
                found[site] = PeerAddress(address, proof, broker, records)
        return found

    def is_revoked(self, site: str) -> bool:
        """Whether a site's token is good no more: what it shows is not looked at."""
        found = self._known.get(site)
        return found is not None and not found.address

    def client_for(self, site: str) -> FlightClient:
        """A way to ask a site; raises AwayError while nobody has said where it is."""
        with self._lock:
            found = self._clients.get(site)
            if found is None:
                if site not in self._known or self.is_revoked(site):
                    raise AwayError(f"nobody has said yet where {site} is")
                found = self._clients[site] = FlightClient(self._known[site], self._me, self._tls)
            return found

    def contact(self, site: str) -> PeerAddress | None:
        """The address of a site; None while it is unknown."""
        with self._lock:
            return self._known.get(site)

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()
