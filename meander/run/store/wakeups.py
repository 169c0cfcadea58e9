"""Wake-ups: threads wait for changes of a store, each for the kinds of changes that it can do something about.

Ingest, steps and delivery commit hundreds of times a second together. A thread that is woken by every commit spends
more time on looking than on work, and takes the interpreter away from those that have some.

Changes are counted by kind. A thread reads the count before it looks for work, and waits for a higher one: what happens
in between ends the wait at once. Calls come with the store's lock held or without it; nothing is taken inside.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterable

from meander.model.locks import lock
from meander.run.store.commit import Commit
from meander.run.store.records.progress import DeliveryRecord, IngestNodesRecord, IngestRecord

PRIVATE_RECORDS = frozenset({DeliveryRecord.kind, IngestRecord.kind, IngestNodesRecord.kind})
"""Records that only their writer reads: nobody else waits for them."""


APPENDED, CONSUMED, OTHER = 1, 2, 4
"""Kinds of changes, as bits: channels have more; channels have been read; anything else, such as what runs, how it is
wired, or something outside of the store. A commit may be of several."""

ANY = APPENDED | CONSUMED | OTHER


def kinds_of(commit: Commit) -> int:
    """The kinds of changes that a commit makes."""
    kinds = (APPENDED if commit.appends else 0) | (CONSUMED if commit.consumed else 0)
    wiring = (commit.add, commit.rewire, commit.forks, commit.remove, commit.realign, commit.renumber, commit.renew)
    state = (commit.retire, commit.state_renames, commit.state_copies, commit.state_merges, commit.forget)
    if not kinds or any(wiring) or any(state) or any(r.kind not in PRIVATE_RECORDS for r in commit.records):
        kinds |= OTHER
    return kinds


class _Bell:
    """Wakes one thread. It stays rung until that thread has waited for it."""

    def __init__(self) -> None:
        self._silent = allocate_lock()  # held until it rings; of what one can wait for, the one that costs least
        self._silent.acquire()

    def ring(self) -> None:
        """Not from several threads at once."""
        if self._silent.locked():
            self._silent.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it rang in time."""
        return self._silent.acquire(timeout=max(0.0, timeout_s))


class ChannelWatch:
    """The channels that one thread reads: which of them got something since it looked last."""

    def __init__(self, wakeups: Wakeups) -> None:
        """Before it looks first, everything may have changed."""
        self._wakeups, self._bell = wakeups, _Bell()
        self._channels, self._touched, self._all = set[int](), set[int](), True

    def only(self, channels: Iterable[int]) -> None:
        """Watches these from now on; they may have got something before."""
        with self._wakeups.guard:
            self._channels = set(channels)
        self.touch_all()

    def take(self) -> set[int] | None:
        """The channels that got something; None if others may have, too. Whatever comes later is for the next time."""
        with self._wakeups.guard:
            found, self._touched = self._touched, set()
            everything, self._all = self._all, False
        return None if everything else found

    def wait(self, timeout_s: float) -> None:
        """Sleeps until there is something to take, or for the timeout."""
        self._bell.wait(timeout_s)

    def touch_all(self) -> None:
        """As if all channels had got something."""
        with self._wakeups.guard:
            self._all = True
            self._bell.ring()

    def noted(self, kinds: int, channels: Iterable[int]) -> None:
        """Takes note of a change, with the wake-ups' guard held."""
        if kinds & OTHER:
            self._all = True
        else:
            found = self._channels.intersection(channels)
            if not found:
                return
            self._touched |= found
        self._bell.ring()


class Wakeups:
    """The threads that wait for changes of one store."""

    def __init__(self) -> None:
        self.guard = lock("wake-ups")
        self._total = 0
        self._counts = dict.fromkeys((APPENDED, CONSUMED, OTHER), 0)
        self._waiting: dict[_Bell, int] = {}
        self._watches: list[ChannelWatch] = []

    def count(self, kinds: int = ANY) -> int:
        """The number of changes of these kinds so far."""
        return self._total if kinds == ANY else sum(n for kind, n in self._counts.items() if kind & kinds)

    def watch(self) -> ChannelWatch:
        """Of no channels at first. For as long as the store is open."""
        found = ChannelWatch(self)
        with self.guard:
            self._watches.append(found)
        return found

    def happened(self, kinds: int = ANY, channels: Iterable[int] = ()) -> None:
        """Counts a change and wakes those who wait for it; `channels` got something."""
        with self.guard:
            self._total += 1
            for kind in self._counts:
                self._counts[kind] += bool(kind & kinds)
            for bell in [bell for bell, wanted in self._waiting.items() if wanted & kinds]:
                del self._waiting[bell]
                bell.ring()
            if kinds & (APPENDED | OTHER):
                for watch in self._watches:
                    watch.noted(kinds, channels)

    def wait(self, seen: int, timeout_s: float, kinds: int = ANY) -> int:
        """Sleeps until more changes of these kinds are counted than were seen, or for the timeout; says how many."""
        with self.guard:
            if self.count(kinds) > seen or timeout_s <= 0:
                return self.count(kinds)
            bell = _Bell()
            self._waiting[bell] = kinds
        if not bell.wait(timeout_s):
            with self.guard:
                self._waiting.pop(bell, None)
        return self.count(kinds)
