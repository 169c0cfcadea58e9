"""The audit log: the actions and attempts of operators, sites and coordinators, the newest of them."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Any

KEPT = 100_000
PRUNE_EVERY = 1_000
COLUMNS = ("at_ms", "who", "did", "about", "outcome")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log: an action or an attempt."""

    at_ms: int
    who: str
    did: str
    about: str
    outcome: str = "done"


class AuditLog:
    """A table of the membership store, guarded by its lock."""

    def __init__(self, db: sqlite3.Connection, lock: AbstractContextManager[Any]) -> None:
        self._db, self._lock = db, lock
        self._written = 0

    def note(self, *entries: AuditEntry) -> None:
        """Adds entries, within a transaction if there is one."""
        with self._lock:
            self._db.executemany(
                f"INSERT INTO audit ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?)", map(astuple, entries)
            )
            self._written += len(entries)
            if self._written >= PRUNE_EVERY:
                self._written = 0
                self._db.execute("DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (KEPT,))

    def newest(self, limit: int, since: int = 0) -> list[dict[str, Any]]:
        """The newest entries after a number, oldest first."""
        names = ("number", *COLUMNS)
        query = f"SELECT {', '.join(names)} FROM audit WHERE number > ? ORDER BY number DESC LIMIT ?"
        with self._lock:
            rows = self._db.execute(query, (since, limit)).fetchall()
        return [dict(zip(names, row, strict=True)) for row in reversed(rows)]
