"""The fleet as the driver of changes sees it: which site has which nodes, and how each of them is reached."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from meander.coordinator.membership.members import Membership
from meander.membership.protocol import PROTOCOL, Epoch
from meander.model.locks import lock

FRESH_S = 5.0
"""The time for which entries of the membership store are used again, unless a site comes or goes."""


class MemberFleet:
    """Implements `Fleet` with the members of a coordinator."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._lock = lock("fleet addresses")
        self._until = 0.0
        self._addresses: dict[str, str] = {}
        self._promoted: dict[str, str] = {}
        self._brokers: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._revoked: list[str] = []
        self._protocols: dict[str, int] = {}

    @property
    def epoch(self) -> Epoch:
        return self._membership.leadership.epoch

    def owner(self, node: str) -> str | None:
        return self._membership.roster.owner(node)

    def addresses(self) -> Mapping[str, str]:
        self._refresh()
        return self._addresses

    def brokers(self) -> Mapping[str, str]:
        self._refresh()
        return self._brokers

    def revoked(self) -> Collection[str]:
        self._refresh()
        return self._revoked

    def key(self, site: str) -> str | None:
        self._refresh()
        token = self._keys.get(site)
        return None if token is None else self._membership.store.network_key(site, token)

    def former_key(self, site: str) -> str | None:
        self._refresh()
        return self._keys.get(site)

    def protocol(self, site: str) -> int:
        self._refresh()
        return self._protocols.get(site, PROTOCOL)

    def put(self, site: str, address: str | None) -> None:
        """A replica of a site is promoted at an address, or no longer is."""
        with self._lock:
            found = {name: at for name, at in self._promoted.items() if name != site}
            self._promoted = found if address is None else {**found, site: address}
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
            known = store.sites()
            rows = [row for row in known if row.name in self._keys]
            self._revoked = sorted(row.name for row in known if row.name not in self._keys)
            self._protocols = {row.name: row.protocol for row in rows}
            self._addresses = {row.name: row.address for row in rows if row.address} | self._promoted
            self._brokers = {row.name: row.broker for row in rows if row.broker}
            self._until = time.monotonic() + FRESH_S
