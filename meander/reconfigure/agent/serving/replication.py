"""Replication of a host's store: replicas at other sites follow its journal, and nothing leaves before they have it.

A replica is a mirror of the journal, pulled by the site that keeps it. A keeper that has had everything once is in
sync: from then on tuples go to readers at other sites and into sinks, senders elsewhere forget what was processed here,
and messages to the coordinator are answered, only up to what all keepers in sync have. So whatever anybody has seen of
this host is in each of its replicas, and a replica can go on in its place without any of its tuples coming twice. Steps
do not wait; what is taken in does, when replicas are further behind than they may be.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.locks import lock
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.mirror import checksum_of
from meander.run.store.records.replicas import ReplicationRecord
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
PIECE_BYTES = 1_000_000
NEAR_BYTES = 4_000_000
"""A keeper that lacks no more than this counts as having had everything."""
LOOK_S = 0.25
SILENT_S = 3.0
"""A keeper that does not ask for so long is named among the problems."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How far one keeper of a replica is."""

    is_in_sync: bool
    behind_bytes: int
    behind_ms: int
    term: int = 0

    def as_json(self) -> dict[str, Any]:
        lag = {"behind_bytes": self.behind_bytes, "behind_ms": self.behind_ms}
        return {"in_sync": self.is_in_sync, **lag, "term": self.term}


@dataclass(frozen=True, slots=True)
class ReplicaOffer:
    """The content of one answer to a keeper: all that there was at one moment."""

    number: int
    """Of the next record then."""
    extents: Mapping[int, int]
    ends: Mapping[ChannelId, int]
    heads: Mapping[ChannelId, int]
    at: float


@dataclass(slots=True)
class _Keeper:
    """One keeper as this host sees it; nothing of it outlives the process."""

    offered: dict[str, ReplicaOffer] = field(default_factory=dict)
    has: ReplicaOffer | None = None
    heard: float = 0.0


class Replication:
    """The keepers of one host's replicas. For several threads."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self._clock = store, clock
        self._incarnation = secrets.token_hex(8)
        """Of this opening of the store: what was lost with a power failure may be written otherwise now."""
        self._record = store.record(ReplicationRecord) or ReplicationRecord({})
        self._keepers = {site: _Keeper(heard=clock()) for site in self._record.keepers}
        self._lock = lock("replication")
        self._offers = 0
        self._ended = False
        store.throttle, store.released, store.processed = self.throttle, self.released, self.processed

    # ---------------------------------------------------------------- told by the coordinator

    def configure(self, told: Mapping[str, Any]) -> None:
        """Takes over which sites keep replicas. One that is not named any more is not waited for from here on."""
        keepers = {str(site): int(term) for site, term in told["keepers"].items()}
        bounds = [int(told[name]) for name in ("most_bytes", "most_ms", "every_ms")]
        with self._lock:
            before = self._record
            same = tuple(s for s in before.in_sync if keepers.get(s) == before.keepers[s])
            record = ReplicationRecord(keepers, same, *bounds)
            if record == before:
                return
            self._record = record
            now = self._clock()
            kept = {s for s in keepers if keepers[s] == before.keepers.get(s)}
            self._keepers = {s: self._keepers[s] if s in kept else _Keeper(heard=now) for s in keepers}
        self.store.commit(Commit(records=(record,)))
        self.store.wake_readers()

    def leave_out(self, keeper: str) -> None:
        """A keeper that runs this store itself keeps no replica of it any more."""
        record = self._record
        if keeper in record.keepers:
            kept = {site: term for site, term in record.keepers.items() if site != keeper}
            bounds = {name: getattr(record, name) for name in ("most_bytes", "most_ms", "every_ms")}
            self.configure({"keepers": kept, **bounds})

    def stop(self) -> None:
        self._ended = True
        self.store.wake_readers()

    @property
    def keepers(self) -> Mapping[str, int]:
        """The terms of the keepers, by name."""
        return self._record.keepers

    @property
    def in_sync(self) -> Collection[str]:
        """The keepers that are waited for."""
        return self._record.in_sync

    # ---------------------------------------------------------------- what may leave

    @property
    def _in_sync(self) -> list[_Keeper]:
        return [self._keepers[site] for site in self._record.in_sync]

    def released(self, channel: ChannelId, end: int) -> int:
        """How far a channel may be read by others; it does not end there."""
        if not self._record.in_sync:
            return end
        with self._lock:
            return min([end, *(0 if k.has is None else k.has.ends.get(channel, 0) for k in self._in_sync)])

    def processed(self, channel: ChannelId, head: int) -> int:
        """How far what was processed here needs not come again, if a replica goes on."""
        if not self._record.in_sync:
            return head
        with self._lock:
            return min([head, *(0 if k.has is None else k.has.heads.get(channel, 0) for k in self._in_sync)])

    def wait(self, timeout_s: float) -> None:
        """Returns when all replicas have what was committed until now; raises when that takes too long."""
        number, deadline = self.store.segments.extents()[0], self._clock() + timeout_s
        while not self._has(number):
            left = deadline - self._clock()
            if left <= 0 or self._ended:
                raise JournalError(f"replicas at {', '.join(self._record.in_sync)} do not have it yet")
            seen = self.store.changes
            if not self._has(number):
                self.store.wait(seen, min(LOOK_S, left))

    def _has(self, number: int) -> bool:
        with self._lock:
            return all(k.has is not None and k.has.number >= number for k in self._in_sync)

    def throttle(self, is_over: Callable[[], bool]) -> None:
        """Waits while replicas are further behind than they may be, unless it is over for the one who waits."""
        while self._is_too_far() and not self._ended and not is_over():
            seen = self.store.changes
            if self._is_too_far():
                self.store.wait(seen, LOOK_S)

    def _is_too_far(self) -> bool:
        record = self._record
        if not record.in_sync:
            return False
        behind = [status for site, status in self.status().items() if site in record.in_sync]
        return any(s.behind_bytes > record.most_bytes or s.behind_ms > record.most_ms for s in behind)

    # ---------------------------------------------------------------- what keepers get

    def serve(self, keeper: str, asked: Mapping[str, Any], left: int, wait_s: float) -> Iterator[tuple[Any, bytes]]:
        """The bytes that a keeper lacks, after a list of all segments. Its request says which it has."""
        found = self._admitted(keeper, int(asked["term"]))
        has = {int(s): max(0, int(size)) for s, size in asked["has"].items()}
        anew = self._diverging(asked, has)
        for segment in anew:
            has.pop(segment, None)
        with self._lock:
            found.heard = self._clock()
            if asked.get("incarnation") == self._incarnation:
                got = found.offered.get(str(asked.get("offer")))
                found.offered.clear()
                found.has = got or found.has
        if found.has is not None and keeper not in self._record.in_sync:
            self._may_be_in_sync(keeper, found)
        self.store.wake_readers()  # more may leave now
        offer = self._wait_for_more(has, wait_s)
        lacks = sum(size - min(size, has.get(segment, 0)) for segment, size in offer.extents.items())
        with self._lock:
            self._offers += 1
            name = str(self._offers)
            if lacks <= left:
                found.offered[name] = offer
        every_ms = self._record.every_ms
        told = {"incarnation": self._incarnation, "segments": dict(offer.extents), "anew": anew, "every_ms": every_ms}
        yield {**told, "offer": name if lacks <= left else None}, b""
        for segment, size in offer.extents.items():
            at = min(size, has.get(segment, 0))
            while at < size and left > 0:
                length = min(size - at, PIECE_BYTES)
                try:
                    yield {"segment": segment, "offset": at}, self.store.segments.read(segment, at, length).to_pybytes()
                except JournalError:  # deleted meanwhile: the next answer says what there is then
                    return
                at, left = at + length, left - length

    def _admitted(self, keeper: str, term: int) -> _Keeper:
        with self._lock:
            if self._record.keepers.get(keeper) != term:
                raise InputError(f"{keeper!r} keeps no replica of this site, or began anew to; ask the coordinator")
            return self._keepers[keeper]

    def _diverging(self, asked: Mapping[str, Any], has: Mapping[int, int]) -> list[int]:
        """Segments of a keeper that are not what they are here: after a power failure, which may cut off an end."""
        _, extents = self.store.segments.extents()
        longer = [s for s, size in has.items() if s in extents and size > extents[s]]
        if asked.get("incarnation") == self._incarnation or not has:
            return longer
        last = max(has)
        if last in longer or last not in extents:
            return longer
        found, at = 0, 0
        while at < has[last]:
            length = min(PIECE_BYTES, has[last] - at)
            found, at = checksum_of(self.store.segments.read(last, at, length), found), at + length
        return longer if found == asked.get("checksum") else [*longer, last]

    def _wait_for_more(self, has: Mapping[int, int], wait_s: float) -> ReplicaOffer:
        deadline = time.monotonic() + wait_s
        while True:
            seen = self.store.changes
            offer = self._offer()
            remaining = deadline - time.monotonic()
            if dict(offer.extents) != dict(has) or remaining <= 0 or self._ended:
                return offer
            self.store.wait(seen, min(LOOK_S, remaining))

    def _offer(self) -> ReplicaOffer:
        with self.store.lock:
            number, extents = self.store.segments.extents()
            views = self.store.views.channels.by_id
            ends = {ChannelId(c): view.tail for c, view in views.items()}
            heads = {ChannelId(c): view.head for c, view in views.items()}
            return ReplicaOffer(number, extents, ends, heads, self._clock())

    def _may_be_in_sync(self, site: str, keeper: _Keeper) -> None:
        """Notes that a keeper has had everything; that note is in its replica before anything counts on it."""
        if keeper.has is None or self._behind(keeper.has)[0] > NEAR_BYTES:
            return
        with self._lock:
            before = self._record
            if site in before.in_sync or site not in before.keepers:
                return
            self._record = replace(before, in_sync=(*before.in_sync, site))
        try:
            self.store.commit(Commit(records=(self._record,)))
        except JournalError as error:
            with self._lock:
                self._record = before
            _log.warning("the replica at %s is not counted on yet: %s", site, error)

    # ---------------------------------------------------------------- looking

    def _behind(self, has: ReplicaOffer) -> tuple[int, float]:
        """The bytes that a replica lacks, and since when it lacks some."""
        number, extents = self.store.segments.extents()
        if number <= has.number:
            return 0, 0.0
        return sum(max(0, size - has.extents.get(s, 0)) for s, size in extents.items()), self._clock() - has.at

    def status(self) -> dict[str, ReplicaStatus]:
        """How far each replica is."""
        with self.store.lock, self._lock:
            found: dict[str, ReplicaStatus] = {}
            for site, keeper in self._keepers.items():
                whole = sum(self.store.segments.extents()[1].values()), self._clock() - keeper.heard
                size, seconds = whole if keeper.has is None else self._behind(keeper.has)
                is_in_sync, late_ms, term = site in self._record.in_sync, round(seconds * 1000), self._record.keepers
                found[site] = ReplicaStatus(is_in_sync, size, late_ms, term.get(site, 0))
            return found

    def problems(self) -> list[str]:
        """Keepers that do not ask: what waits for them."""
        now = self._clock()
        with self._lock:
            silent = [s for s, k in self._keepers.items() if now - k.heard > SILENT_S and s in self._record.in_sync]
        wait = "results wait until it does, or until another site keeps one"
        return [f"the replica at {site} does not follow; {wait}" for site in silent]
