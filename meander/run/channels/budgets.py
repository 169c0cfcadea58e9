"""Budgets of channels: how much may wait in one of them, and what happens when it is more.

A site that never comes back, or a sink that takes nothing, fills one channel. Only the streams whose tuples end up
there may feel that, not those of everybody else, long before the whole store is full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId, FragmentId
from meander.model.units import size_bytes
from meander.run.store.channel_log import WIDTH, ChannelLog
from meander.run.store.commit import REFUSED, Commit
from meander.run.store.journal import JournalError
from meander.run.store.payloads import NO_PAYLOAD
from meander.run.store.store import Store

LOOK_S = 0.2
SHARED_ABOVE = 0.75
"""Pressure of the store from which on no channel may hold more than its share, whatever its budget is."""
FREE_AGAIN = 0.75
"""A channel is within its budget again when it has fallen to this share of it."""
DROPPED = "dropped"
"""The counter of tuples of a fragment's channels that were dropped."""


class Overflow(StrEnum):
    """The policy for a channel that is beyond its budget."""

    BLOCK = "block"
    """The streams that feed it wait, and nothing that leads to it is pulled from other sites."""
    SPILL = "spill"
    """It may have the disk until three quarters of the store's budget are used; then as `block`."""
    DROP_OLDEST = "drop_oldest"
    """Its oldest tuples are dropped and counted, if its reader is at another site; otherwise as `block`."""


@dataclass(frozen=True, slots=True)
class ChannelBudget:
    """The budget of each channel of a host."""

    bytes: int = 500_000_000
    overflow: Overflow = Overflow.BLOCK

    @staticmethod
    def of(size: str | None, overflow: str | None) -> ChannelBudget:
        """From settings; raises for values that are not allowed."""
        usual = ChannelBudget()
        found = usual.bytes if size is None else size_bytes(size)
        if found < 1:
            raise InputError(f"a channel needs room; channel_budget {size!r} gives it none")
        if overflow is not None and overflow not in tuple(Overflow):
            raise unknown("overflow", overflow, list(Overflow))
        return ChannelBudget(found, usual.overflow if overflow is None else Overflow(overflow))


class ChannelBudgets:
    """The channels of one host that are beyond their budget, and all that leads to them. For several threads."""

    def __init__(
        self,
        store: Store,
        budget: ChannelBudget,
        runs_here: Callable[[FragmentId], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self.budget, self._runs_here, self._clock = store, budget, runs_here, clock
        self._looked_s = -LOOK_S
        self._over: Mapping[ChannelId, int] = {}
        self._held: Set[ChannelId] = frozenset()
        self.dropped = 0
        """Tuples that were dropped since the process began."""

    def held(self) -> Set[ChannelId]:
        """Channels into which nothing more is to be taken in: those beyond their budget, and what leads to them."""
        now = self._clock()
        if now - self._looked_s >= LOOK_S:
            self._looked_s = now
            self._look()
        return self._held

    def problems(self) -> list[str]:
        """The channels because of which others wait, in words."""
        return [
            f"channel {channel} holds {size / 1e6:,.1f} MB that its reader does not take; the streams that feed it wait"
            for channel, size in sorted(self._over.items())
        ]

    def _look(self) -> None:
        with self._store.lock:
            views = list(self._store.views.channels.by_id.values())
            sizes = {ChannelId(v.channel): self._waiting(v) for v in views if v.appended_tuples > v.consumed_tuples}
            limit = self._limit(len(sizes))
            over = {c: size for c, size in sizes.items() if size > limit * (FREE_AGAIN if c in self._over else 1)}
            if over and self.budget.overflow is Overflow.DROP_OLDEST:
                over = {c: size for c, size in over.items() if not self._dropped(c, size, limit)}
            self._over, self._held = over, self._leading_to(over, views) if over else frozenset()

    def _limit(self, channels: int) -> float:
        limit = float("inf") if self.budget.overflow is Overflow.SPILL else self.budget.bytes
        if self._store.pressure() >= SHARED_ABOVE:
            limit = min(limit, SHARED_ABOVE * self._store.options.disk_budget_bytes / max(1, channels))
        return limit

    def _waiting(self, view: ChannelLog) -> int:
        """The bytes that wait, about: as many as if all rows were like its newest ones."""
        entries = view.entries
        for at in range(len(entries) - WIDTH, -1, -WIDTH):
            if entries[at + 2] != NO_PAYLOAD:
                row_bytes = self._store.payloads.by_number[entries[at + 2]].row_bytes
                return round((view.appended_tuples - view.consumed_tuples) * row_bytes)
        return 0

    def _dropped(self, channel: ChannelId, size: int, limit: float) -> bool:
        """Drops the oldest tuples of a channel, if nobody here reads them; says whether it is within its budget then.

        A marker stays, and what lies behind it, as both ends have to see it.
        """
        view = self._store.views.channels.by_id[channel]
        if view.receiver is None or view.sender is None or view.keeps or self._runs_here(FragmentId(view.receiver)):
            return False
        last = view.markers[0][0] if view.markers else view.tail
        excess = size - limit * FREE_AGAIN
        left = round((view.appended_tuples - view.consumed_tuples) * excess / size)
        position, count = view.head, 0
        for entry in view.overlapping(view.head, last):
            rows = min(left - count, entry.first + entry.rows - position, last - position)
            count, position = count + max(0, rows), position + max(0, rows)
            if count >= left:
                break
            position = min(last, entry.stop)
        if not count:
            return False
        sender = FragmentId(view.sender)
        try:
            self._store.commit(Commit(consumed={channel: position}, counters={(sender, DROPPED): count}))
        except (*REFUSED, JournalError):
            return False
        self.dropped += count
        return count >= left

    @staticmethod
    def _leading_to(over: Iterable[ChannelId], views: Iterable[ChannelLog]) -> frozenset[ChannelId]:
        """These channels, and those whose tuples get there by fragments of this host."""
        inputs: dict[int, list[ChannelLog]] = {}
        senders: dict[int, int | None] = {}
        for view in views:
            senders[view.channel] = view.sender
            if view.receiver is not None:
                inputs.setdefault(view.receiver, []).append(view)
        found, waiting = set[int](), list[int](over)
        while waiting:
            channel = waiting.pop()
            if channel not in found:
                found.add(channel)
                sender = senders.get(channel)
                waiting += [v.channel for v in inputs.get(sender, ())] if sender is not None else []
        return frozenset(ChannelId(c) for c in found)
