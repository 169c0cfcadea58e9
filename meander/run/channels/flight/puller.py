"""Pulling: copies of channels whose logs are at other sites, kept ahead of processing.

The source of each channel is in the store (`CopyRecord`), so pulling goes on after a restart by itself. One thread for
each route; a request says how far each copy is and how far it has been processed, which is what lets the sender forget.
A copy that is far enough ahead is not asked for until it has been worked off.

Records that come over a broker which both sites share are requested and acknowledged with the same requests; only the
records themselves take another way, and arrive at `take`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.locks import lock
from meander.run.channels.flight.alignment import CopyState, follow
from meander.run.channels.flight.client import AwayError, FlightClient, PeerRefusedError, get_along
from meander.run.channels.flight.ranges import ChannelRange, DamagedError, from_batch, lineage_in
from meander.run.channels.flight.untrusted import UntrustedError
from meander.run.store.commit import Commit, CommitConflictError, Realign
from meander.run.store.incarnations import Lineage, newest
from meander.run.store.journal import JournalError
from meander.run.store.records.reconfigurations import PartRecord
from meander.run.store.records.record import Record
from meander.run.store.records.transport import CopyRecord
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
AHEAD_RECORDS = 200_000
"""The number of records by which a copy may be ahead of processing."""
WAIT_MS, FULL_WAIT_MS = 1_000, 50
TELL_MS = 200
"""The waiting time of a request that brings nothing, because the records come over a broker."""
MOST_BYTES = 8_000_000
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
Route = tuple[str, ...]
"""The sites on the route to a log, nearest first; the last one has it."""


class Brokered(Protocol):
    """The receiver of records over a broker."""

    def shares(self, site: str) -> bool:
        """Whether the records of a site do."""

    def reached(self, site: str) -> tuple[str, int] | None:
        """Up to where all that a site has sent was read: of which topic, and the next offset."""


@dataclass(slots=True)
class PullMetrics:
    """The totals of records that came over the network."""

    ranges: int = 0
    records: int = 0
    bytes: int = 0
    damaged: int = 0
    failures: int = 0
    let_go: int = 0
    """Records that a log lost after they had come, and that were not processed here: it writes them anew."""
    ahead: int = 0
    """Records that a log lost after they had been processed here."""
    missing: int = 0
    """Records that were lost here after the sender had let go of them."""


class Heads(NamedTuple):
    """How far copies are processed, with the number of the next record when they were."""

    number: int
    positions: Mapping[ChannelId, int]


class Pulling:
    """All copies of one site."""

    def __init__(
        self,
        store: Store,
        client_of: Callable[[str], FlightClient],
        ahead_records: int = AHEAD_RECORDS,
        broker: Brokered | None = None,
    ) -> None:
        """`client_of` gives the client of a site; it raises AwayError while its address is not known."""
        self.store, self._client_of, self._ahead, self._broker = store, client_of, ahead_records, broker
        self.metrics = PullMetrics()
        self.problems: dict[Route, str] = {}
        """Routes on which nothing comes now, with the reason."""
        self.refused: dict[ChannelId, str] = {}
        """Channels that were not given when they were last asked for, with the reason."""
        self.wanted_whole: Callable[[], Collection[ChannelId]] = frozenset
        """Channels that are processed here only once all of them is here, so that no bound may hold them up."""
        self._heads: dict[Route, tuple[Heads, Heads]] = {}
        """Positions of processing that are on the disk, and newer ones that will be."""
        self._damaged: dict[Route, str] = {}
        """Damaged ranges, reported to the sender with the next request."""
        self._threads: dict[Route, threading.Thread] = {}
        self._routes: dict[Route, tuple[ChannelId, ...]] = {}
        self._lock = lock("pulling")
        self._stopping = threading.Event()

    def refresh(self) -> None:
        """Looks again which channels come from where; call it after that has changed."""
        with self._lock:  # a later reading sees more: its result must not be replaced by less
            found: dict[Route, list[ChannelId]] = {}
            for copy in self.store.records(CopyRecord).values():
                if copy.route:
                    found.setdefault(copy.route, []).append(copy.channel)
            self._routes = {route: tuple(channels) for route, channels in found.items()}
            if self._stopping.is_set():
                return
            for route in self._routes:
                thread = self._threads.get(route)
                if thread is None or not thread.is_alive():
                    thread = threading.Thread(target=self._run, args=(route,), name=f"pull {route[-1]}", daemon=True)
                    self._threads[route] = thread
                    thread.start()
        self.store.wake_readers()

    @property
    def senders(self) -> set[str]:
        """The sites that have the logs."""
        with self._lock:
            return {route[-1] for route, channels in self._routes.items() if channels}

    def stop(self) -> None:
        self._stopping.set()
        self.store.wake_readers()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout=5.0)

    def _run(self, route: Route) -> None:
        failures = 0
        while not self._stopping.is_set():
            with self._lock:
                channels = self._routes.get(route, ())
                if not channels:
                    del self._threads[route]
                    self.problems.pop(route, None)
                    return
            try:
                self.pull(route, channels)
                failures = 0
                self.problems.pop(route, None)
            except (AwayError, PeerRefusedError, DamagedError, JournalError, UntrustedError) as error:
                self._failed(route, error, failures)
                self._stopping.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                failures += 1
            except Exception as error:  # nothing that goes wrong with one request may end the others
                _log.exception("pulling from %s failed; it is tried again", route[-1])
                self._failed(route, error, failures)
                self._stopping.wait(PAUSES_S[-1])

    def _failed(self, route: Route, error: Exception, failures: int) -> None:
        self.metrics.failures += 1
        if isinstance(error, DamagedError):
            self.metrics.damaged += 1
            self._damaged[route] = str(error)
        if not failures:
            _log.warning("nothing comes from %s: %s", route[-1], error)
        self.problems[route] = str(error)

    def pull(self, route: Route, channels: Iterable[ChannelId]) -> int:
        """One request; says how many records came."""
        broker = self._broker if self._broker is not None and self._broker.shares(route[-1]) else None
        reached = None if broker is None else broker.reached(route[-1])  # before the positions: these count on it
        asked = self._positions(channels)
        if not asked:
            self._stopping.wait(PAUSES_S[1])
            return 0
        heads = self._on_disk(route, {c: head for c, (_, head) in asked.items()})
        bounded = asked.keys() - set(self.wanted_whole())
        held = self.store.held()
        if held and self.store.records(PartRecord):
            held = frozenset()  # the markers of a change must come through, whatever waits
        full = {c for c in bounded if broker is not None or c in held or asked[c][0] - asked[c][1] >= self._ahead}
        done = {c: self.store.processed(c, heads.get(c, 0)) for c in asked}
        ticket: dict[str, Any] = {
            "pull": {str(c): [-1 if c in full else tail, done[c]] for c, (tail, _) in asked.items()},
            "wait_ms": TELL_MS if broker is not None else FULL_WAIT_MS if full else WAIT_MS,
            "most_bytes": MOST_BYTES,
        }
        if broker is not None:
            ticket["publish"] = {str(c): tail for c, (tail, _) in asked.items()}
            ticket["reached"] = reached
        if route in self._damaged:
            ticket["damaged"] = self._damaged.pop(route)
        ticket["incarnations"] = self._incarnations(asked)
        came = 0
        for piece in get_along(route, ticket, self._client_of):
            if self._stopping.is_set():
                break
            came += self.take(from_batch(piece.data), sender=route[-1])
        return came

    def _positions(self, channels: Iterable[ChannelId]) -> dict[ChannelId, tuple[int, int]]:
        """The end of each copy, and the position of its processing; not of those that are cut."""
        with self.store.lock:
            views = self.store.views.channels.by_id
            found = {c: view for c in channels if (view := views.get(c)) is not None and not view.is_cut}
            return {c: (view.tail, view.head) for c, view in found.items()}

    def _on_disk(self, route: Route, heads: Mapping[ChannelId, int]) -> Mapping[ChannelId, int]:
        """How far senders may forget: up to where is processed, as far as a power failure cannot take it back."""
        self.store.syncer.settle()
        known, waiting = self._heads.get(route, (Heads(-1, {}), Heads(-1, {})))
        if waiting.number <= self.store.syncer.settled:
            known, waiting = waiting, Heads(self.store.syncer.written, heads)
            if waiting.number <= self.store.syncer.settled:
                known = waiting
        self._heads[route] = known, waiting
        return known.positions

    def _incarnations(self, channels: Iterable[ChannelId]) -> dict[str, CopyState]:
        """Which records the copies have seen last, for logs that may have lost some of them."""
        with self.store.lock:
            views = self.store.views.channels.by_id
            copies = ((c, views[c]) for c in channels if c in views)
            return {str(c): CopyState(newest(view.lineage), view.tail, view.head) for c, view in copies}

    def take(self, ranges: Iterable[ChannelRange], *records: Record[Any], sender: str | None = None) -> int:
        """Appends the records that came, each once; returns the number of new ones. If there are any, `records` go into
        their commit. A sender's records go into copies of its own logs, and no others.

        While a channel changes its route two threads may bring the same records: no other thread appends between
        reading the end of a copy and the commit.
        """
        with self.store.lock:
            own = [r for r in ranges if sender is None or self._is_log_of(sender, r.channel)]
            fresh = [left for found in own if (left := self._fresh(found)) is not None]
            if not fresh:
                return 0
            schemas, views = self.store.views.schemas.by_number, self.store.views.channels.by_id
            try:
                appends = tuple(found.append(schemas[views[found.channel].schema]) for found in fresh)
                self.store.commit(Commit(appends=appends, records=records, settles=False))
            except UntrustedError:
                raise
            except (InputError, CommitConflictError) as error:
                raise PeerRefusedError(f"records that came do not fit: {error}") from error
        self.store.syncer.settle()
        self.store.throttle(self._stopping.is_set)
        came = sum(found.stop - found.start for found in fresh)
        self.metrics.records += came
        self.metrics.ranges += len(fresh)
        self.metrics.bytes += sum(found.size for found in fresh)
        return came

    def _is_log_of(self, sender: str, channel: ChannelId) -> bool:
        """Whether a copy is of a site's log; what comes for another one, or one that is not wanted any more, is not
        looked at."""
        copy = self.store.record(CopyRecord, channel)
        return copy is not None and copy.route[-1:] == (sender,)

    def _fresh(self, found: ChannelRange) -> ChannelRange | None:
        """The part of a range that continues its copy.

        Nothing when it came before, when something is missing in between, or when the channel is not wanted any more.
        """
        control = found.checked()
        if "problem" in control:
            self.refused[found.channel] = control["problem"]
            if "begins" in control:
                self._pass_over(found.channel, int(control["begins"]), was_dropped=bool(control.get("dropped")))
            return None
        view = self.store.views.channels.by_id.get(found.channel)
        if view is None:
            return None
        if (lineage := lineage_in(control)) and not self._follow(found.channel, lineage):
            return None
        if not found.start <= view.tail < found.stop:
            return None
        self.refused.pop(found.channel, None)
        if found.start == view.tail:
            return found
        return found.after(view.tail, self.store.views.schemas.by_number[view.schema])

    def _follow(self, channel: ChannelId, lineage: Lineage) -> bool:
        """Brings a copy in line with a log that is in another incarnation; says whether it goes on now."""
        found = follow(self.store, channel, lineage)
        if found is not None:
            self.store.commit(Commit(realign=(found.realign,)))
            if found.let_go or found.ahead:
                self.metrics.let_go += found.let_go
                self.metrics.ahead += found.ahead
                _log.warning(
                    "the log of channel %s has lost its end: %s records that were not processed yet are let go of "
                    "here, %s were processed and may come again from sources that can be read again",
                    channel,
                    found.let_go,
                    found.ahead,
                )
        return newest(self.store.views.channels[channel].lineage) == newest(lineage)

    def _pass_over(self, channel: ChannelId, begins: int, *, was_dropped: bool) -> None:
        """Goes on where a log begins that has let go of records which this copy has lost, or never had."""
        view = self.store.views.channels.by_id.get(channel)
        if view is not None and (0 if was_dropped else 1) <= view.tail < begins:
            missing = begins - view.tail
            self.metrics.missing += missing
            cause = "dropped by the sender" if was_dropped else "lost here, and the sender has let go of them"
            _log.warning("%s records of channel %s were %s", missing, channel, cause)
            self.store.commit(Commit(realign=(Realign(channel, view.lineage, view.tail, begins),)))
