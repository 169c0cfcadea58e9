"""The supervisor of replicas: who keeps them, and what becomes of a site that dies.

It looks about twice a second. Sites that are there get as many keepers as the topology file says; a keeper that is
away is dropped, so that nobody waits for it. A site that is away for too long goes on as a replica, at one of its
keepers, under its own name; its operators leave it by the changes that its nodes' absence brings anyhow. When the site
comes back it gets its store from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from meander.coordinator.membership.records import MemberState
from meander.coordinator.membership.store import MemberRow
from meander.coordinator.replicas.assignment import Candidates, assigned
from meander.coordinator.replicas.keeper_records import ReplicaLedger
from meander.coordinator.replicas.orders import ReplicaOrders
from meander.model.errors import InputError
from meander.model.locks import reentrant_lock
from meander.model.resilience import ReplicationMode, Resilience
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME
from meander.run.store.journal import JournalError
from meander.run.store.records.replicas import KeepersRecord

_log = logging.getLogger(__name__)
LOOK_S = 0.5
PROMOTE_S = 60.0
RESTORE_S = 300.0
"""The time for which a site that fetches its store is waited for."""
REFUSED_S = 600.0
"""The time until a site that kept no replica of another one any more is asked again."""
BASE_MS = 1_000
"""How long a base rests, where there are no replicas but upstream backup."""


class PromotedAddress(Protocol):
    """Where sites are reached that do not run at their own address."""

    def put(self, site: str, address: str | None) -> None:
        """A replica of a site is promoted at an address, or no longer is."""


class CoordinatorFacts(Protocol):
    """The coordinator as the supervisor needs it."""

    def sites(self) -> Sequence[MemberRow]:
        """All sites that have joined once."""

    def key(self, site: str) -> str | None:
        """The key with which clients of a site sign their proofs."""

    def preferences(self, sites: Sequence[str], *, senders: bool) -> Mapping[str, Sequence[str]]:
        """For each site, those that should keep its replicas, best first."""

    def runs(self, site: str) -> bool:
        """Whether something runs at a site, or has to hear of the end of something."""

    def moved(self, site: str) -> None:
        """A site is reached elsewhere: it is greeted anew."""

    def play(self, site: str, keeper: str, nodes: Sequence[str]) -> None:
        """Nodes of a site are there beside the keeper's, which takes in and delivers for them."""

    def end_play(self, nodes: Sequence[str]) -> None:
        """They are gone again."""

    def refusal(self, site: str, keeper: str) -> str | None:
        """Why a keeper keeps no replica of a site any more, or must not be waited for."""


class ReplicaSupervisor:
    """A thread, and what it knows."""

    def __init__(
        self,
        ledger: ReplicaLedger,
        orders: ReplicaOrders,
        addresses: PromotedAddress,
        around: CoordinatorFacts,
        settings: Resilience,
        wall_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger, self.orders, self.addresses, self.around = ledger, orders, addresses, around
        self.settings, self._wall_ms, self._monotonic = settings, wall_ms, monotonic
        self.problems: dict[str, str] = {}
        """Why sites have too few replicas, or none that could go on for them."""
        self.promoted: dict[str, str] = {}
        """The addresses of sites whose replica runs in their place."""
        self.deciding = reentrant_lock("replica supervisor")
        """Held while something is decided about the replicas of a site."""
        self._began = monotonic()
        self._restoring: dict[tuple[str, str], float] = {}
        """Since when sites fetch their stores, with the directory that they are for."""
        self._refused: dict[tuple[str, str], tuple[str, float]] = {}
        """Sites with those that keep nothing of them: why, and until when they are not asked again."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)

    @property
    def count(self) -> int:
        """How many replicas a site has; a base with upstream backup is one that follows now and then."""
        return 0 if self.settings.replication is ReplicationMode.OFF else max(1, self.settings.replicas)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self.orders.close()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            try:
                with self.deciding:
                    self.look()
            except Exception:
                _log.exception("looking after replicas failed; it is tried again")

    # ---------------------------------------------------------------- a look

    def look(self) -> None:
        """Does what is due."""
        rows = {row.name: row for row in self.around.sites()}
        present = {name for name, row in rows.items() if MemberState(row.state).is_present}
        records = self.ledger.all()
        for site, record in records.items():
            self._note_refusals(record)
            if record.is_forgotten:
                self._end_forgotten(record)
            elif record.restoring:
                self._wait_for_restored(record)
            elif record.stands_in:
                self._keep_promoted(record, present)
            elif site not in present and self._is_lost(rows.get(site)):
                self.take_over(site, present)
        self._assign({*present, *self.promoted}, present)
        self._tell(present)

    def _is_lost(self, row: MemberRow | None) -> bool:
        """Whether a site is away for so long that a replica goes on."""
        if row is None or row.state != MemberState.AWAY.value:
            return False
        patience_ms = self.settings.takeover_ms
        awake_ms = (self._monotonic() - self._began) * 1000
        return self._wall_ms() - row.since_ms >= patience_ms and awake_ms >= patience_ms

    def _note_refusals(self, record: KeepersRecord) -> None:
        """Takes keepers that keep nothing more out: nobody waits for them."""
        for keeper in record.keepers:
            reason = self.around.refusal(record.site, keeper)
            if reason is not None:
                left = {k: term for k, term in record.keepers.items() if k != keeper}
                record = self.ledger.save(replace(self.ledger.of(record.site), keepers=left))
                self._refused[record.site, keeper] = reason, self._monotonic() + REFUSED_S
                _log.warning("%s keeps no replica of site %s any more: %s", keeper, record.site, reason)
        now = self._monotonic()
        self._refused = {pair: found for pair, found in self._refused.items() if found[1] > now}

    def _assign(self, sites: set[str], present: set[str]) -> None:
        """Gives every site that runs its keepers."""
        records = {site: self.ledger.of(site) for site in sites}
        if not self.count and not any(r.keepers for r in records.values()):
            return
        liked: Mapping[str, Sequence[str]] = {}
        lacking = [s for s, r in records.items() if len([k for k in r.keepers if _is_there(k, present)]) < self.count]
        if lacking:
            liked = self.around.preferences(lacking, senders=not self.settings.replicas)
        for site, record in records.items():
            if record.is_forgotten or record.restoring:
                continue
            refusing = {k: why for (s, k), (why, _) in self._refused.items() if s == site}
            candidates = Candidates(site, liked.get(site, ()), present, refusing)
            found = self.ledger.save(assigned(record, candidates, self.count))
            problems = [f"{keeper} keeps no replica of site {site}: {why}" for keeper, why in refusing.items()]
            if len(found.keepers) < self.count:
                problems.append(f"site {site} has {len(found.keepers)} of {self.count} replicas; add a site")
            self.problems[site] = "; ".join(problems)
            if not problems:
                del self.problems[site]

    def _tell(self, present: set[str]) -> None:
        records = self.ledger.all()
        is_sync = self.settings.replication is ReplicationMode.SYNC
        bounds = {
            "most_bytes": 0 if is_sync else self.settings.replication_lag_bytes,
            "most_ms": 0 if is_sync else self.settings.replication_lag_ms,
            "every_ms": 0 if self.settings.replicas else BASE_MS,
        }
        for site, record in records.items():
            if site in self.promoted or (site in present and not record.stands_in):
                self.orders.tell(site, "replicate", {"keepers": dict(record.keepers), **bounds})
        keeping = {k for r in records.values() for k in (*r.keepers, r.stands_in) if k}
        for keeper in {HOME, *present} if keeping or self.count else ():
            mine = {
                site: {"term": 0 if r.stands_in == keeper else r.keepers[keeper], "route": [site]}
                for site, r in records.items()
                if keeper in r.keepers or keeper == r.stands_in
            }
            self.orders.tell(keeper, "keep", {"replicas": mine, "most_bytes": self.settings.replica_bytes})

    # ---------------------------------------------------------------- a site that is gone

    def take_over(self, site: str, present: set[str]) -> bool:
        """Lets a replica of a site go on in its place; says whether one does."""
        for keeper in [k for k in self.ledger.of(site).keepers if _is_there(k, present)]:
            record = self.ledger.save(replace(self.ledger.of(site), stands_in=keeper, restoring=""))
            if self.promote(record):
                return True
        if self.ledger.of(site).keepers and site not in self.promoted:
            self.problems[site] = f"site {site} is gone, and no replica of it can go on: none is complete and there"
        return False

    def promote(self, record: KeepersRecord) -> bool:
        """Asks a keeper to run its replica; says whether it does.

        One that cannot is not asked again; one that does not answer may be, later.
        """
        site, keeper = record.site, record.stands_in
        key = self.around.key(site)
        if key is None:
            self.problems[site] = f"site {site} is gone and has no token any more, so that nothing can go on for it"
            return False
        body = {"site": site, "term": record.keepers.get(keeper, 0), "key": key}
        try:
            answer = self.orders.ask(keeper, "stand_in", body, PROMOTE_S)
            address, nodes = str(answer["address"]), tuple(str(n) for n in answer.get("nodes", ()))
        except AwayError as error:
            self.problems[site] = f"site {site} is gone; {keeper}, which has a replica, does not answer: {error}"
            return False
        except (InputError, JournalError) as error:
            _log.warning("the replica of %s at %s cannot go on for it: %s", site, keeper, error)
            left = {k: term for k, term in record.keepers.items() if k != keeper}
            self.ledger.save(replace(record, stands_in="", keepers=left))
            self.problems[site] = f"site {site} is gone, and its replica at {keeper} cannot go on: {error}"
            return False
        left = {k: term for k, term in record.keepers.items() if k != keeper}
        nodes = () if record.is_forgotten else nodes
        self.ledger.save(replace(record, keepers=left, nodes=nodes))
        self.problems.pop(site, None)
        self.promoted[site] = address
        self.addresses.put(site, address)
        self.orders.forget(site)
        self.around.moved(site)
        if nodes:
            self.around.play(site, keeper, nodes)
        _log.warning("site %s is gone; its replica at %s goes on", site, keeper)
        return True

    def _keep_promoted(self, record: KeepersRecord, present: set[str]) -> None:
        """A coordinator or a keeper that started again finds its promoted replicas; one that is gone is replaced."""
        site = record.site
        if not _is_there(record.stands_in, present):
            self._lose(site)
            record = self.ledger.of(site)
            others = [k for k in record.keepers if k != record.stands_in]
            if others:
                self.ledger.save(replace(record, stands_in="", keepers={k: record.keepers[k] for k in others}))
                self.take_over(site, present)
            return
        if site not in self.promoted:
            self.promote(record)

    def _wait_for_restored(self, record: KeepersRecord) -> None:
        """A site that fetches its store and does not come is not waited for: the replica goes on again."""
        since = self._restoring.setdefault((record.site, record.restoring), self._monotonic())
        if self._monotonic() - since > RESTORE_S:
            del self._restoring[record.site, record.restoring]
            self.ledger.save(replace(record, restoring=""))

    def _lose(self, site: str) -> None:
        self.promoted.pop(site, None)
        self.addresses.put(site, None)
        self.end_play(site)

    def end_play(self, site: str) -> None:
        """Nodes of a site that are there beside its keeper's go."""
        record = self.ledger.of(site)
        if record.nodes:
            self.around.end_play(record.nodes)
            self.ledger.save(replace(record, nodes=()))

    def joined(self, site: str) -> None:
        """A site has started, or started again: promoted replicas there are at another address."""
        self.orders.forget(site)
        for other, record in self.ledger.all().items():
            if record.stands_in == site:
                self.promoted.pop(other, None)

    def _end_forgotten(self, record: KeepersRecord) -> None:
        """A site that was given up ends when nothing runs there any more."""
        site = record.site
        if record.stands_in and site not in self.promoted:
            self.promote(record)
        elif record.stands_in and not self.around.runs(site):
            self._lose(site)
            self.ledger.save(replace(self.ledger.of(site), keepers={}, stands_in=""))
            _log.info("nothing of site %s runs any more; what was kept of it is dropped", site)

    # ---------------------------------------------------------------- looking

    def shown(self, site: str) -> dict[str, Any] | None:
        """The replicas of a site, if it has any or had to."""
        record = self.ledger.all().get(site)
        if record is None:
            return None
        return {
            "keepers": sorted(record.keepers),
            "stands_in": record.stands_in or None,
            "is_forgotten": record.is_forgotten,
            "problem": self.problems.get(site),
        }


def _is_there(keeper: str, present: set[str]) -> bool:
    return keeper == HOME or keeper in present
