"""The replicas of other sites that one process keeps: followed, run under the site's name, given back, dropped.

What is kept, and what of it runs here, is in the store of the process, so that a keeper that starts again goes on. A
replica that has once run here, or has been told to be given back, follows its site no more: nothing that the old
process of the site does after that reaches anybody, as it waits for its replicas.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from meander.model.errors import InputError
from meander.model.locks import reentrant_lock
from meander.reconfigure.endpoint import ListenOptions
from meander.reconfigure.replicas.lost_site import LostSite, positions_of
from meander.reconfigure.replicas.promoted_replica import PromotedReplica
from meander.reconfigure.replicas.pull import BUDGET_BYTES, ReplicaPull
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.proof import opened, sealed
from meander.run.execution.runner import Runner
from meander.run.host import Host, HostOptions
from meander.run.store.commit import Commit
from meander.run.store.mirror import Mirror
from meander.run.store.records.record import forget_all
from meander.run.store.records.replicas import ReplicaRecord, ReplicationRecord
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
PIECE_BYTES = 1_000_000


class Replicas:
    """All replicas of one keeper, from any thread."""

    def __init__(
        self,
        me: str,
        host: Host,
        directory: Path,
        client_of: Callable[[str], FlightClient],
        network: ListenOptions,
        key: str,
        runner: Runner | None = None,
    ) -> None:
        """`host` and `key` are the keeper's own: keys of sites that it goes on for are sealed with it."""
        self.me, self._store, self._directory, self._client_of = me, host.store, directory, client_of
        self._host, self._network, self._key, self._runner = host, network, key, runner
        host.troubles.append(self.problems)
        self._following: dict[str, ReplicaPull] = {}
        self._most_bytes = BUDGET_BYTES
        self.promoted: dict[str, PromotedReplica] = {}
        self._lock = reentrant_lock("replicas")
        self._stopped = False

    @property
    def orders(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """The coordinator's orders about replicas."""
        return {
            "keep": lambda told: self.keep(told["replicas"], int(told.get("most_bytes", BUDGET_BYTES))),
            "stand_in": lambda told: self.promote(str(told["site"]), int(told["term"]), str(told["key"])),
            "stand_down": lambda told: self.demote(str(told["site"])),
            "positions": lambda told: positions_of(self._store, told["channels"]),
        }

    def recover(self) -> None:
        """Goes on with what was kept and what ran here."""
        with self._lock:
            for record in self._store.records(ReplicaRecord).values():
                if not record.stands_in:
                    self._follow(record)
                elif record.key_of_site:
                    try:
                        self._run(record)
                    except Exception:
                        _log.exception("the replica of %s cannot be promoted", record.site)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            following, self._following = list(self._following.values()), {}
            running, self.promoted = list(self.promoted.values()), {}
        for each in following:
            each.stop()
        for promoted in running:
            promoted.stop()

    # ---------------------------------------------------------------- keeping

    def keep(self, wanted: Mapping[str, Mapping[str, Any]], most_bytes: int = BUDGET_BYTES) -> None:
        """Keeps replicas of these sites and of no others; what runs here or is given back stays.

        Of each site `most_bytes` are kept at most.
        """
        with self._lock:
            self._most_bytes = most_bytes
            for following in self._following.values():
                following.most_bytes = most_bytes
            known = self._store.records(ReplicaRecord)
            fresh: list[ReplicaRecord] = []
            for site, told in wanted.items():
                record = ReplicaRecord(site, int(told["term"]), tuple(told["route"]))
                before = known.get(site)
                if before == record or (before is not None and before.stands_in and before.term >= record.term):
                    continue
                fresh.append(record)
            gone = [site for site in known if site not in wanted]
            if not fresh and not gone:
                return
            for site in (*gone, *(record.site for record in fresh)):
                self._let_go(site)
            self._store.commit(Commit(records=(*fresh, *forget_all(ReplicaRecord, gone))))
            for site in gone:
                shutil.rmtree(self._directory / site, ignore_errors=True)
            for record in fresh:
                self._follow(record)

    def _follow(self, record: ReplicaRecord) -> None:
        directory = self._directory / record.site / "store"
        found = ReplicaPull(record.site, record.term, directory, record.route, self._client_of, self._most_bytes)
        self._following[record.site] = found
        found.start()

    def _let_go(self, site: str) -> None:
        if (following := self._following.pop(site, None)) is not None:
            following.stop()
        if (promoted := self.promoted.pop(site, None)) is not None:
            promoted.stop()

    # ---------------------------------------------------------------- promoted, given back

    def promote(self, site: str, term: int, key: str) -> dict[str, Any]:
        """Runs the replica of a site under its name; one that may lack something is refused.

        Gives the address, and the nodes whose sources and sinks are reached from here.
        """
        with self._lock:
            if site in self.promoted:
                return _told_of(self.promoted[site])
            record = self._store.record(ReplicaRecord, site)
            if record is None or (record.term != term and not record.stands_in):
                raise InputError(f"{self.me} keeps no such replica of {site}")
            self._let_go(site)
            try:
                self._check(site, term, was_here=record.stands_in)
            except InputError:
                self._follow(record)
                raise
            found = ReplicaRecord(site, term, record.route, stands_in=True, key_of_site=sealed(self._key, key))
            self._store.commit(Commit(records=(found,)))
            return _told_of(self._run(found))

    def begin_anew(self, site: str, key: str, empty: LostSite) -> None:
        """Runs a site of which nothing is left, as others know it."""
        with self._lock:
            self._let_go(site)
            directory = self._directory / site
            shutil.rmtree(directory, ignore_errors=True)
            host = Host(HostOptions(directory, label=site), self._host.spark, self._runner)
            try:
                empty.begin(host)
            finally:
                host.stop()
            record = ReplicaRecord(site, 0, (), stands_in=True, key_of_site=sealed(self._key, key))
            self._store.commit(Commit(records=(record,)))

    def _check(self, site: str, term: int, *, was_here: bool) -> None:
        """Raises unless the replica has everything that anybody has seen of the site."""
        directory = self._directory / site / "store"
        if not Mirror(directory).is_whole:
            raise InputError(f"the replica of {site} at {self.me} was not complete yet")
        if was_here:
            return
        store = Store.open(directory)
        try:
            record = store.record(ReplicationRecord)
        finally:
            store.close()
        if record is None or self.me not in record.in_sync or record.keepers.get(self.me) != term:
            raise InputError(f"the replica of {site} at {self.me} was not complete yet")

    def _run(self, record: ReplicaRecord) -> PromotedReplica:
        directory, key = self._directory / record.site, opened(self._key, record.key_of_site)
        if key is None:
            raise InputError(f"the token of {self.me} is a new one; let the coordinator promote the replica again")
        spark, is_replica = self._host.spark, bool(record.route)
        running = PromotedReplica(
            record.site, self.me, directory, key, self._network, spark, self._runner, has_positions=is_replica
        )
        self.promoted[record.site] = running
        return running

    def demote(self, site: str) -> None:
        """The replica runs no more and follows no more; it is there for its site to get it back."""
        with self._lock:
            record = self._store.record(ReplicaRecord, site)
            if record is None:
                raise InputError(f"{self.me} keeps no replica of {site}")
            self._let_go(site)
            if not record.stands_in:
                self._check(site, record.term, was_here=False)
            self._store.commit(Commit(records=(ReplicaRecord(site, record.term, record.route, stands_in=True),)))

    def serve(self, reader: str, asked: Mapping[str, Any], left: int, wait_s: float) -> Iterator[tuple[Any, bytes]]:
        """Gives a site its store back."""
        site = str(asked.get("site"))
        record = self._store.record(ReplicaRecord, site)
        if reader != site or record is None or not record.stands_in or site in self.promoted:
            raise InputError(f"{self.me} does not give the store of {site} back to {reader!r} now")
        mirror = Mirror(self._directory / site / "store")
        has = {int(s): int(size) for s, size in asked["has"].items()}
        extents = mirror.extents
        lacks = sum(size - min(size, has.get(segment, 0)) for segment, size in extents.items())
        is_whole = lacks <= left
        yield {"incarnation": "", "segments": extents, "anew": [], "offer": "whole" if is_whole else None}, b""
        for segment, size in extents.items():
            at = min(size, has.get(segment, 0))
            while at < size and left > 0:
                length = min(size - at, PIECE_BYTES)
                yield {"segment": segment, "offset": at}, mirror.read(segment, at, length)
                at, left = at + length, left - length

    # ---------------------------------------------------------------- looking

    def status(self, *, with_reports: bool = False) -> dict[str, dict[str, Any]]:
        """The replicas here, by site; with the reports of those that run here."""
        found: dict[str, dict[str, Any]] = {}
        for site, record in self._store.records(ReplicaRecord).items():
            following, promoted = self._following.get(site), self.promoted.get(site)
            found[site] = {
                "stands_in": None if promoted is None else promoted.address,
                "complete": record.stands_in or (following is not None and following.is_complete),
                "problem": None if following is None else following.problem,
                "refused": None if following is None else following.refused,
            }
            if with_reports and promoted is not None:
                found[site]["report"] = promoted.report()
        return found

    def problems(self) -> list[str]:
        return [problem for each in list(self.promoted.values()) for problem in each.problems()]


def _told_of(promoted: PromotedReplica) -> dict[str, Any]:
    return {"address": promoted.address, "nodes": promoted.nodes}
