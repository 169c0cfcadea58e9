"""Nodes that can take in only so much: an exchange that shows a fragment no more than its node has had time for.

A node works through its waiting tuples at its capacity, without a pause while something waits and without saving up
time while nothing does. So a node that is given more than its capacity falls behind, and its queue grows, as a real
one's would; one that is given less is not slowed down at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meander.model.ids import ChannelId
from meander.run.channels.base import Int64s
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.store.store import Store


@dataclass(slots=True)
class FluidServer:
    """One node's fluid queue: `credit` tuples may be taken that have not been taken yet."""

    capacity_tps: float
    credit: float = 0.0
    counted_at: float = 0.0
    """Up to when capacity has been turned into credit."""
    consumed: int = 0
    """Tuples taken when it was last looked at."""
    drained: bool = True
    """Whether everything that waited was allowed to be taken then: time is not saved up."""

    def allowed(self, consumed: int, waiting: int, now: float) -> int:
        """The number of tuples that it has had time for by now."""
        taken = consumed - self.consumed
        if taken > 0:
            self.credit = 0.0 if self.drained else max(self.credit - taken, 0.0)
            self.consumed = consumed
        elif not waiting:
            self.credit = 0.0
        self.credit += self.capacity_tps * (now - self.counted_at)
        self.counted_at = now
        self.drained = waiting <= self.credit
        return waiting if self.drained else int(self.credit)


class PacedExchange(EmbeddedExchange):
    """The channels of a store, as nodes of limited capacity see them."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._clock = clock
        self._servers: dict[int, FluidServer] = {}
        self._node_of: dict[ChannelId, int] = {}
        self._into: dict[int, list[ChannelId]] = {}

    def pace(self, node_of: Mapping[ChannelId, int], capacity_tps: Mapping[int, float]) -> None:
        """From now on these channels lead into these nodes, which can take in so much; others are not slowed down."""
        with self._store.lock:
            now = self._clock()
            self._node_of = dict(node_of)
            self._into = {n: [c for c, node in node_of.items() if node == n] for n in capacity_tps}
            self._servers = {n: FluidServer(c, 0.0, now, self._consumed(n)) for n, c in capacity_tps.items()}

    def _consumed(self, node: int) -> int:
        return sum(self._channels[c].consumed_tuples for c in self._into[node])

    def _waiting(self, node: int) -> int:
        """Tuples that the node could read now; watermarks and markers are no work."""
        now, total = self._store.now_ms(), 0
        for channel in self._into[node]:
            view = self._channels[channel]
            end = view.end(now)
            total += sum(
                min(e.rows, end - e.first) - max(view.head - e.first, 0) for e in view.overlapping(view.head, end)
            )
        return total

    def bounds(self, channels: Sequence[ChannelId]) -> tuple[Int64s, Int64s]:
        starts, ends = super().bounds(channels)
        with self._store.lock:
            nodes = [self._node_of.get(c) for c in channels]
            for node in {n for n in nodes if n is not None and n in self._servers}:
                waiting = self._waiting(node)
                allowed = self._servers[node].allowed(self._consumed(node), waiting, self._clock())
                if allowed < waiting:
                    for i, owner in enumerate(nodes):
                        if owner == node:
                            ends[i] = starts[i] + int((ends[i] - starts[i]) * allowed / waiting)
        return starts, ends

    def is_passable(self, channel: ChannelId) -> bool:
        return channel not in self._node_of and super().is_passable(channel)
