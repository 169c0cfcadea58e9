"""The election of a standby: it asks all sites for their votes, first whether they would, then to give them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from meander.coordinator import epochs
from meander.coordinator.backup.capture import STORE
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.membership.records import MemberState
from meander.coordinator.membership.store import MemberRow, MembershipStore
from meander.membership.protocol import PROTOCOL, Epoch
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.reconfigure.agent.serving.request_handler import ELECT
from meander.run.channels.flight.client import AwayError, ClientTls, FlightClient
from meander.run.channels.flight.proof import COORDINATOR, FORMER, PeerAddress, former_proof, proof
from meander.run.store.commit import Commit
from meander.run.store.records.replicas import ReplicationRecord
from meander.run.store.store import Store

VOTE_S = 2.0


class Candidacy:
    """One try of a standby, in an epoch of its own."""

    def __init__(self, home: CoordinatorDirectory, term: int, authority: bytes | None) -> None:
        self._term, self._authority = term, authority
        with closing(sqlite3.connect(home.ledger, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            epochs.leap(db, wall_clock_ms())
            self.epoch: Epoch = epochs.begin(db, wall_clock_ms())
            db.execute("COMMIT")
        store = MembershipStore(home.ledger)
        try:
            present = [row for row in store.sites() if row.state != MemberState.LEFT.value]
            self._voters: Mapping[str, PeerAddress | None] = {row.name: _address(row, store) for row in present}
        finally:
            store.close()

    def refusal(self) -> str | None:
        """Asks for the votes; gives the reason why there are too few, or None."""
        if not self._voters:
            return "no site has joined that could vote; a standby needs at least one"
        return self._asked(would=True) or self._asked(would=False)

    def _asked(self, *, would: bool) -> str | None:
        with ThreadPoolExecutor(len(self._voters), "votes") as pool:
            asked = {site: pool.submit(self._vote, peer, would) for site, peer in self._voters.items()}
        refused = {site: reason for site, answer in asked.items() if (reason := answer.result()) is not None}
        if 2 * (len(asked) - len(refused)) > len(asked):
            return None
        told = "; ".join(f"{site}: {reason}" for site, reason in sorted(refused.items()))
        return f"{len(asked) - len(refused)} of {len(asked)} sites vote for it ({told})"

    def _vote(self, peer: PeerAddress | None, would: bool) -> str | None:
        if peer is None:
            return "it has no token any more, or its key was not known yet"
        client = FlightClient(peer, COORDINATOR, ClientTls(self._authority))
        body: dict[str, Any] = {"protocol": PROTOCOL, **self.epoch.as_json(), "term": self._term, "would": would}
        try:
            answer = client.order(ELECT, body, VOTE_S)
        except (AwayError, InputError) as error:
            return str(error)
        finally:
            client.close()
        return None if answer.get("granted") else str(answer.get("reason"))


def _address(row: MemberRow, store: MembershipStore) -> PeerAddress | None:
    token = store.keys().get(row.name)
    if token is None or not row.address:
        return None
    if row.protocol <= FORMER:
        return PeerAddress(row.address, former_proof(token, COORDINATOR))
    key = store.network_key(row.name, token)
    return None if key is None else PeerAddress(row.address, proof(key, COORDINATOR))


def promote(home: CoordinatorDirectory) -> None:
    """Makes a copy the coordinator's own directory: nobody is waited for as its standby any more."""
    store = Store.open(home.directory / STORE)
    try:
        if store.record(ReplicationRecord) is not None:
            store.commit(Commit(records=(ReplicationRecord({}),)))
        store.syncer.sync()
    finally:
        store.close()
