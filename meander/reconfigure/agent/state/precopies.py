"""State that is here, or on its way here, before its operator is.

A change begins the pre-copies that it needs when it is prepared, and puts its markers in when they are ready. What was
sent for a change that was aborted stays for the next try for a while. State that was sent to another node than the
operator went to is of no use, and is dropped.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from meander.deploy.contexts import Handover
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.reconfigure.agent.in_flight import InFlightChange, keys_of
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.manifest import Manifest, missing_bytes
from meander.reconfigure.state.precopy import AHEAD, LocalRounds, Precopy, PrecopyRounds
from meander.reconfigure.state.remote_rounds import RemoteRounds
from meander.run.channels.flight.client import FlightClient
from meander.run.host import Host
from meander.run.store.commit import Commit, StateRename
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
LEAST_BYTES = 256_000
"""A smaller state moves after the marker, in one piece."""
LEAST_EXPECTED_BYTES = 1_000
REFRESH_MS = 2_000.0
"""How often what changed meanwhile is sent, for a change that is only expected."""
KEPT_MS = 30_000.0
"""How long what was sent for an aborted change is kept for the next try."""
Destination = tuple[OperatorId, NodeId]


@dataclass(slots=True)
class _Entry:
    copy: Precopy
    rounds: PrecopyRounds
    number: int
    """The change that it was begun for, or is for now."""
    since_ms: float
    """When it was last asked for."""


class Precopies:
    """The pre-copies of one host, by operator and the node where it will be. Guarded by the agent's lock."""

    def __init__(self, host: Host, clock_ms: Callable[[], float], *, background: bool) -> None:
        self.host, self.background = host, background
        self.least_bytes: float = LEAST_BYTES
        self.used_bytes = self.wasted_bytes = 0
        """Bytes that were sent ahead and were, or were not, the beginning of a state that moved."""
        self._clock_ms = clock_ms
        self._entries: dict[Destination, _Entry] = {}
        self._next = AHEAD

    # ---------------------------------------------------------------- for changes

    def least(self, *, is_expected: bool) -> float:
        """The least bytes that are worth sending ahead: before a change is decided there is time for less, too."""
        return min(self.least_bytes, LEAST_EXPECTED_BYTES) if is_expected else self.least_bytes

    def wants(self, change: InFlightChange, handover: Handover, *, is_expected: bool = False) -> bool:
        """Whether a state is worth sending ahead; that of another host is, as far as is known here."""
        if not change.part.is_here(handover.source):
            return True
        source = change.old[handover.source]
        keys = keys_of(handover.operator, source.bound)
        running = handover.source not in self.host.routing.pauses
        least = self.least(is_expected=is_expected)
        return running and missing_bytes(self.host.store, source.fragment, keys) >= least

    def begin(
        self,
        change: InFlightChange,
        handover: Handover,
        paths: Paths | None,
        client: Callable[[str], FlightClient],
        most_bytes: int | None = None,
    ) -> None:
        """Begins to send a state ahead, or goes on with what was begun before.

        With `most_bytes` the change is only expected: it goes on for as long as that is so, and no further than that.
        """
        where = handover.operator, handover.destination
        found = self._entries.get(where)
        if found is not None:
            found.number = change.number
            if isinstance(found.rounds, RemoteRounds):
                found.rounds.number, found.rounds.place = change.number, change.part.places[handover]
            if most_bytes is None:
                found.rounds.most_bytes = math.inf
                found.copy.hurry()
            return
        into = FragmentId(self._next)
        self._next += 1
        rounds = self._rounds(change, handover, into, paths, client)
        rounds.most_bytes = math.inf if most_bytes is None else most_bytes
        if isinstance(rounds, LocalRounds):
            rounds.least_bytes = self.least(is_expected=most_bytes is not None)
        refresh_ms = None if most_bytes is None else REFRESH_MS
        store, clock_ms = self.host.store, self._clock_ms
        copy = Precopy(into, store, rounds, clock_ms, background=self.background, refresh_ms=refresh_ms)
        self._entries[where] = _Entry(copy, rounds, change.number, self._clock_ms())

    def held_bytes(self, node: NodeId) -> int:
        """How much was sent ahead to a node, and waits there."""
        return sum(e.copy.bytes for (_, destination), e in self._entries.items() if destination == node)

    def status_of(self, number: int) -> tuple[bool, dict[OperatorId, int]]:
        """Whether all that is sent for a change is there, and the bytes by operator."""
        mine = {where[0]: e.copy for where, e in self._entries.items() if e.number == number}
        return all(copy.ready for copy in mine.values()), {o: copy.bytes for o, copy in mine.items()}

    def _rounds(
        self,
        change: InFlightChange,
        handover: Handover,
        into: FragmentId,
        paths: Paths | None,
        client: Callable[[str], FlightClient],
    ) -> PrecopyRounds:
        part, store = change.part, self.host.store
        tables = keys_of(handover.operator, change.new[handover.target].bound)
        if not part.is_here(handover.source):
            place = part.places[handover]
            return RemoteRounds(store, into, change.number, place, len(tables), part.routes.state[place], client)
        assert paths is not None
        source = change.old[handover.source]
        keys = keys_of(handover.operator, source.bound)

        def hops() -> Sequence[Hop] | None:
            return paths.hops(handover.origin, handover.destination)

        return LocalRounds(store, source.fragment, keys, into, hops, self._clock_ms, self.least_bytes)

    def is_ready(self, change: InFlightChange) -> bool:
        """Whether nothing is gained by letting the fragments of a change run on."""
        found = [e for h in change.moving if (e := self._entries.get((h.operator, h.destination))) is not None]
        waiting = [entry for entry in found if not entry.copy.poll()]
        return not waiting

    def take(self, change: InFlightChange, handover: Handover) -> Manifest | None:
        """Makes what was sent the beginning of the state that a change moves; None if nothing of use was sent."""
        entry = self._entries.pop((handover.operator, handover.destination), None)
        if entry is None:
            return None
        found, copy = entry.copy.take(), entry.copy
        new = keys_of(handover.operator, change.new[handover.target].bound)
        into = change.staging(handover)
        renames = [StateRename(copy.into, place, into, key) for place, key in enumerate(new)] if found else []
        self.host.store.commit(Commit(state_renames=tuple(renames), retire=(copy.into,)))
        change.sent_ahead[handover] = copy.bytes
        self.used_bytes += copy.bytes if found else 0
        self.wasted_bytes += 0 if found else copy.bytes
        return found

    # ---------------------------------------------------------------- ending

    def tidy(self, under_way: Collection[int]) -> None:
        """Drops what no change has asked for in a while."""
        now = self._clock_ms()
        for where, entry in list(self._entries.items()):
            if entry.number in under_way:
                entry.since_ms = now
            elif now - entry.since_ms > KEPT_MS:
                self._drop(where)

    def give_up(self, numbers: Collection[int]) -> None:
        """Changes are not expected any more."""
        for where in [where for where, entry in self._entries.items() if entry.number in numbers]:
            self._drop(where)

    def drop(self, operators: Collection[OperatorId]) -> None:
        """Operators have moved: what was sent elsewhere is of no use."""
        for where in [where for where in self._entries if where[0] in operators]:
            self._drop(where)

    def _drop(self, where: Destination) -> None:
        copy = self._entries[where].copy
        copy.drop()
        self.wasted_bytes += copy.bytes
        del self._entries[where]

    def stop(self) -> None:
        for entry in self._entries.values():
            entry.copy.take()


def forget_sent(store: Store) -> None:
    """Drops what an earlier process was sent: nobody knows any more what it lacks."""
    left = tuple(f for f in store.state.fragments() if f >= AHEAD)
    if left:
        store.commit(Commit(retire=left))
