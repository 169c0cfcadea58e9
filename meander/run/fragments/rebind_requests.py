"""Requests: bindings change without any slot waiting for another.

A request lies in the mailbox of the slot that has the fragment. The slot itself gives the fragment away, before its
next step; the new slot finds it in the routing table before a step of its own. Nothing is copied: tuples wait in the
fragment's channels, which number them, and its state is where it was. A request that comes late, when its fragment is
with another slot already, is sent on; one that has been overtaken by a newer one for the same fragment is dropped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.errors import InputError
from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.run.fragments.routing import Routing


@dataclass(frozen=True, slots=True)
class Request:
    """A fragment is to be bound to another slot; of several for one fragment the highest number counts."""

    fragment: FragmentId
    target: int
    number: int


class Requests:
    """The mailboxes of all slots. Appending and taking are atomic; no lock is held while a slot works."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self.made = self.forwarded = 0
        self._mail: tuple[deque[Request], ...] = tuple(deque() for _ in range(routing.slots))
        self._newest: dict[FragmentId, Request] = {}
        """Of each fragment for which a request is open."""
        self._asking = lock("rebind requests")
        self._numbers = itertools.count(1)

    def ask(self, slots: Mapping[FragmentId, int]) -> None:
        """Leaves requests and returns at once."""
        for fragment, target in slots.items():
            if not 0 <= target < self.routing.slots:
                raise InputError(
                    f"fragment {fragment}: there is no slot {target}; slots are 0 to {len(self._mail) - 1}"
                )
            installed = self.routing.fragments.get(fragment)
            if installed is not None:
                with self._asking:
                    request = self._newest[fragment] = Request(fragment, target, next(self._numbers))
                self._mail[installed.slot].append(request)

    def under_way(self) -> dict[FragmentId, int]:
        """Fragments that have been asked for and have not been handed over yet, and the slots they will go to."""
        with self._asking:
            return {fragment: request.target for fragment, request in self._newest.items()}

    def are_waiting(self, slot: int) -> bool:
        """Whether the slot should take a step because of its mailbox."""
        return bool(self._mail[slot])

    def hand_over(self, slot: int) -> None:
        """Reads the slot's mailbox. To be called by the slot itself, between two steps."""
        mail = self._mail[slot]
        due: dict[FragmentId, int] = {}
        answered: list[Request] = []
        while mail:
            request = mail.popleft()
            installed = self.routing.fragments.get(request.fragment)
            if self._newest.get(request.fragment) is not request:
                continue
            if installed is not None and installed.slot != slot:
                self.forwarded += 1
                self._mail[installed.slot].append(request)
                continue
            if installed is not None and request.target != slot:
                due[request.fragment] = request.target
            answered.append(request)
        if due:
            self.made += len(self.routing.rebind(due, owner=slot))
        with self._asking:
            for request in answered:
                if self._newest.get(request.fragment) is request:
                    del self._newest[request.fragment]
