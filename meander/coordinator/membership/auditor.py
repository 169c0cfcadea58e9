"""The auditor writes requests into the audit log, a moment later and many at a time, so that no request waits for
it."""

from __future__ import annotations

from collections import deque

from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.store import MembershipStore
from meander.model.locks import lock
from meander.run.periodic import PeriodicThread

EVERY_S = 0.2
MOST_WAITING = 10_000


class Auditor(PeriodicThread):
    """Entries from any thread; a thread of its own writes them."""

    def __init__(self, store: MembershipStore) -> None:
        super().__init__("audit", EVERY_S, self.flush)
        self._store = store
        self._waiting: deque[AuditEntry] = deque()
        self._dropped = 0
        self._writing = lock("audit")

    def stop(self) -> None:
        super().stop()
        self.flush()

    def note(self, entry: AuditEntry) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)
        else:
            self._dropped += 1

    def flush(self) -> None:
        """Writes all waiting entries, now."""
        with self._writing:
            found = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._dropped and found:
                last = found[-1]
                found.append(
                    AuditEntry(last.at_ms, "coordinator", "audit", f"{self._dropped} entries", "too many at once")
                )
                self._dropped = 0
            if found:
                with self._store.transaction():
                    self._store.audit.note(*found)
