"""A single queue for all slots: an idle slot takes the next fragments that have something to read.

The fragment whose input is oldest (in event time) is taken first, as many as is fair among the idle slots. Fragments of
a slot that works are its own until it is done. Taking needs a lock and changes the routing table before every step:
that is the price of having no binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from meander.model.locks import lock
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.fragments.rebind_requests import Requests
from meander.run.fragments.routing import Group, Installed, Routing
from meander.run.step.barriers import Barriers
from meander.run.step.step_lock import StepLock


class SharedQueue(Requests):
    """Slots take fragments from each other before every step."""

    def __init__(self, routing: Routing, exchange: EmbeddedExchange, step_locks: Sequence[StepLock]) -> None:
        super().__init__(routing)
        self.exchange, self.step_locks = exchange, step_locks
        self._taking = lock("shared queue")

    def are_waiting(self, slot: int) -> bool:
        if super().are_waiting(slot):
            return True
        idle = {n for n, b in enumerate(self.step_locks) if n != slot and not b.locked()}
        return len(self._waiting(idle)) > 1

    def hand_over(self, slot: int) -> None:
        super().hand_over(slot)
        with self._taking, self._idle(slot) as idle:
            if not idle:
                return
            waiting = self._waiting({slot, *idle})
            if not waiting:
                return
            reached = np.array([int(self.exchange.watermarks(f.ports).min()) for f in waiting])
            order = np.argsort(reached, kind="stable").tolist()
            share = -(-len(waiting) // (1 + len(idle)))
            mine = {waiting[i].fragment: slot for i in order[:share]}
            others = {
                waiting[i].fragment: idle[n % len(idle)] for n, i in enumerate(order[share:]) if waiting[i].slot == slot
            }
            self.made += len(self.routing.rebind({**mine, **others}))

    @contextmanager
    def _idle(self, slot: int) -> Iterator[list[int]]:
        """Other slots that are between two steps, and stay so inside."""
        found = [n for n, b in enumerate(self.step_locks) if n != slot and b.try_enter()]
        try:
            yield found
        finally:
            for n in found:
                self.step_locks[n].leave()

    def _waiting(self, slots: set[int]) -> list[Installed]:
        routing = self.routing
        mine = [f for f in routing.fragments.values() if f.slot in slots and f.ports]
        mine = [f for f in mine if f.fragment not in routing.paused and f.fragment not in routing.drained]
        if not mine:
            return []
        starts, ends = self.exchange.bounds([c for f in mine for c in f.ports])
        owners = np.repeat(np.arange(len(mine)), [len(f.ports) for f in mine])
        found = [mine[i] for i in np.unique(owners[ends > starts]).tolist()]
        return [f for f in found if f.fragment not in routing.awaiting or self._can_go_on(f)]

    def _can_go_on(self, fragment: Installed) -> bool:
        """Whether a fragment that is to stop at a marker has something before it, or is there in every port."""
        marks = Barriers(Group(fragment.bound.template, (fragment,)), self.routing, self.exchange)
        ports = range(len(fragment.ports))
        bounds = {p: self.exchange.bounds([fragment.ports[p]]) for p in ports}
        marks.limit(bounds)
        starts = {p: int(bounds[p][0][0]) for p in ports}
        return any(bounds[p][1][0] > starts[p] for p in ports) or marks.are_reached(0, starts)
