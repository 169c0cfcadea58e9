"""Durable bindings: the slot of each fragment, as the store keeps it.

A record for each fragment, which ends with it. Code that changes the routing table need not know: the next
step, of any slot, sees that the table has changed and writes down the difference before it works. A host with another
number of slots than before deals its fragments out anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.run.fragments.routing import Installed, Routing
from meander.run.store.commit import Commit
from meander.run.store.records.deployment import SlotCountRecord, SlotRecord
from meander.run.store.store import Store


def first_slot(fragment: FragmentId, slots: int) -> int:
    """The initial slot of a fragment: fragments are dealt out in the order of their numbers."""
    return fragment % slots


class Bindings:
    """The stored bindings of one routing table."""

    def __init__(self, store: Store, routing: Routing) -> None:
        self.store, self.routing = store, routing
        self.is_kept = routing.slots > 1
        """Whether anything is written down: not where slots take fragments from each other before every step."""
        self._lock = lock("bindings")
        self._seen = 0
        self._fits = _slot_count(store) == routing.slots

    def of(self, fragment: FragmentId) -> int | None:
        """The slot that a fragment was in when that was last written down; None if it is not known."""
        found = self.store.record(SlotRecord, fragment) if self.is_kept and self._fits else None
        return found.slot if found is not None and found.slot < self.routing.slots else None

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
            known = self.store.records(SlotRecord)
            slots = [SlotRecord(f, each.slot) for f, each in fragments.items()]
            changed = [slot for slot in slots if known.get(slot.fragment) != slot]
            if changed or not self._fits:
                self.store.commit(Commit(records=(*changed, SlotCountRecord(self.routing.slots))))
            self._seen, self._fits = version, True


def _slot_count(store: Store) -> int | None:
    found = store.record(SlotCountRecord)
    return None if found is None else found.slots
