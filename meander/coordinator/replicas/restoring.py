"""Sites that come back: with their directory, without it, or with one that their replica has overtaken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from meander.coordinator.membership.records import MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.membership.protocol import Code
from meander.model.errors import InputError
from meander.run.channels.flight.client import AwayError
from meander.run.store.journal import JournalError
from meander.run.store.records.replicas import KeepersRecord

EMPTY = {"empty": True}
"""The answer to a site whose directory was given up."""
WAIT = {"wait_ms": 500}
"""The answer to a site with another directory than the one that is taken for there, until that is not heard of."""


class SiteRestore:
    """From any thread; `contact` gives the address of a keeper and the proof that a site shows there."""

    def __init__(self, supervisor: ReplicaSupervisor, contact: Callable[[str, str], Mapping[str, str] | None]) -> None:
        self._supervisor, self._contact = supervisor, contact

    def restore(self, site: str, instance: str) -> Mapping[str, Any] | None:
        """Where a site that starts gets its store from; None if it has it. The replica that ran in its place stops."""
        with self._supervisor.deciding:
            return self._restored(site, instance)

    def _restored(self, site: str, instance: str) -> Mapping[str, Any] | None:
        supervisor = self._supervisor
        ledger, record = supervisor.ledger, supervisor.ledger.of(site)
        row = next((r for r in supervisor.around.sites() if r.name == site), None)
        if row is None:
            return None
        if record.is_forgotten:
            return EMPTY if record.restoring == instance else None
        has_it = row.instance == instance and not record.stands_in
        if has_it:
            return None
        if MemberState(row.state).is_present and row.instance != instance:
            return WAIT if record.keepers else None
        for keeper in [record.stands_in] if record.stands_in else list(record.keepers):
            supervisor.promoted.pop(site, None)
            ledger.save(replace(record, stands_in=keeper, restoring=instance))
            try:
                supervisor.orders.ask(keeper, "stand_down", {"site": site})
            except (AwayError, InputError, JournalError) as error:
                ledger.save(record)
                supervisor.problems[site] = f"site {site} cannot get its store back from {keeper}: {error}"
                continue
            supervisor.addresses.put(site, None)
            supervisor.end_play(site)
            contact = self._contact(keeper, site)
            if contact is not None:
                return {"keeper": keeper, "site": site, **contact}
        if record.stands_in or record.keepers:
            raise SiteRefusedError(Code.UNAVAILABLE, supervisor.problems.get(site, "no keeper of the store answers"))
        return None

    def check(self, site: str, instance: str) -> None:
        """Raises for a directory that is not what the site is now."""
        supervisor = self._supervisor
        record = supervisor.ledger.of(site)
        if record.is_forgotten:
            if record.restoring == instance:
                raise SiteRefusedError(
                    Code.INPUT, f"the directory of site {site!r} was given up; start the site again, and it begins anew"
                )
            if record.stands_in:
                raise SiteRefusedError(
                    Code.UNAVAILABLE, f"site {site!r} was given up, and something of it runs still; stop it, or wait"
                )
            return
        row = next((r for r in supervisor.around.sites() if r.name == site), None)
        if row is None:
            return
        if record.stands_in and record.restoring != instance:
            raise SiteRefusedError(
                Code.INPUT,
                f"a replica at {record.stands_in} goes on for site {site!r}, so that this directory is out of date; "
                "start the site again, and it gets its store from there",
            )
        if row.instance == instance or record.restoring == instance:
            return
        if record.keepers:
            raise SiteRefusedError(
                Code.INPUT,
                f"this is not the directory of site {site!r}; start it again, and it gets that from a replica",
            )
        if supervisor.around.runs(site):
            raise SiteRefusedError(
                Code.INPUT,
                f"this is not the directory with what runs at site {site!r}; start the site with that one, or give it "
                f"up with `meander site forget {site}`",
            )

    def joined(self, site: str, instance: str) -> None:
        """A site is there: what kept its store for it keeps a replica again, or drops it."""
        with self._supervisor.deciding:
            self._entered(site, instance)

    def _entered(self, site: str, instance: str) -> None:
        supervisor = self._supervisor
        record = supervisor.ledger.all().get(site)
        if record is not None and record.is_forgotten and not record.stands_in:
            supervisor.ledger.drop(site)
        elif record is not None and record.restoring == instance:
            supervisor.ledger.save(KeepersRecord(site, {}, record.term))
        supervisor.joined(site)


def home_or_peer(peers: Mapping[str, Mapping[str, str]], keeper: str) -> Mapping[str, str] | None:
    """The contact of a keeper among those that a site knows.

    >>> home_or_peer({"home": {"address": "grpc://hub:1", "proof": "p", "broker": "b"}}, "home")
    {'address': 'grpc://hub:1', 'proof': 'p'}
    """
    found = peers.get(keeper)
    return None if found is None else {"address": found["address"], "proof": found["proof"]}
