"""Durable bindings: the slot of each fragment, as the store keeps it.

A note for each fragment; notes end with their fragments. Code that changes the routing table need not know: the next
step, of any slot, sees that the table has changed and writes down the difference before it works. A host with another
number of slots than before deals its fragments out anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from meander.model.ids import FragmentId
from meander.run.fragments.routing import Installed, Routing
from meander.run.store.commit import Commit, slot_note
from meander.run.store.store import Store

SLOTS = "slots"
"""The note that says how many slots there were."""


def first_slot(fragment: FragmentId, slots: int) -> int:
    """The initial slot of a fragment: fragments are dealt out in the order of their numbers."""
    return fragment % slots


class Bindings:
    """The stored bindings of one routing table."""

    def __init__(self, store: Store, routing: Routing) -> None:
        self.store, self.routing = store, routing
        self.is_kept = routing.slots > 1
        """Whether anything is written down: not where slots take fragments from each other before every step."""
        self._lock = threading.Lock()
        self._seen = 0
        self._fits = store.note(SLOTS) == routing.slots

    def of(self, fragment: FragmentId) -> int | None:
        """The slot that a fragment was in when that was last written down; None if it is not known."""
        slot = self.store.note(slot_note(fragment)) if self.is_kept and self._fits else None
        return int(slot) if slot is not None and slot < self.routing.slots else None

    def applied(self, fragments: Iterable[Installed]) -> list[Installed]:
        """Fragments in the slots that they had before."""
        found = []
        for each in fragments:
            slot = self.of(each.fragment)
            found.append(each if slot is None else replace(each, slot=slot))
        return found

    def keep(self) -> None:
        """Writes down changes since the last time; costs a comparison of two numbers if nothing has."""
        if not self.is_kept or self.routing.version == self._seen:
            return
        with self._lock:
            version, fragments = self.routing.version, self.routing.fragments
            slots = {slot_note(f): each.slot for f, each in fragments.items()}
            with self.store.lock:
                known = self.store.views.notes
                changed = {key: slot for key, slot in slots.items() if known.get(key) != slot}
            if changed or not self._fits:
                self.store.commit(Commit(notes={**changed, SLOTS: self.routing.slots}))
            self._seen, self._fits = version, True
