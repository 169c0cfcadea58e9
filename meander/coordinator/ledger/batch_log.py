"""The log of batches: accepted with their events before anything happens, applied with their results."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from meander.coordinator.ledger.query_tables import QueryChange
from meander.coordinator.ledger.values import as_text
from meander.place.rewrites import RULES_NUMBER

KEPT_BATCHES = 20_000
KEPT_RECONFIGURATIONS = 2_000
KEPT_DECISIONS = 5_000
KEPT_ANSWERS_MS = 24 * 3600 * 1000
PRUNE_EVERY = 500


class BatchLog:
    """Written within the ledger's transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        (last,) = db.execute("SELECT max(number) FROM batches").fetchone()
        self.next = (last or 0) + 1
        """The number of the next batch."""

    def accept(
        self,
        at_ms: int,
        events: Iterable[Mapping[str, Any]],
        queries: Iterable[QueryChange | tuple[str, str | None]],
        first: int | None = None,
    ) -> int:
        """A batch that is about to be applied: its events as JSON values, and queries that come or go.

        Operators of the first query that comes are counted from `first`, or from where the last ones ended.
        """
        number = self.next
        self._db.execute("INSERT INTO batches VALUES (?, ?, 0, NULL)", (number, at_ms))
        rows = ((number, at_ms, as_text(event)) for event in events)
        self._db.executemany("INSERT INTO events (batch, at_ms, event) VALUES (?, ?, ?)", rows)
        for change in (QueryChange(*each) for each in queries):
            counts = change.text is not None and not change.parted
            counted = first if counts else None
            row = (number, at_ms, change.query, change.text, int(change.parted), counted, RULES_NUMBER)
            first = None if counts else first
            columns = "batch, at_ms, query, text, parted, first, rules"
            self._db.execute(f"INSERT INTO query_log ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self.next = number + 1
        if number % PRUNE_EVERY == 0:
            self._prune(at_ms)
        return number

    def applied(self, batch: int, outcome: Mapping[str, Any]) -> None:
        self._db.execute("UPDATE batches SET applied = 1, outcome = ? WHERE number = ?", (as_text(outcome), batch))

    def unfinished(self) -> list[tuple[int, list[dict[str, Any]]]]:
        """Batches that were accepted and not applied, with their events."""
        found = []
        for (number,) in self._db.execute("SELECT number FROM batches WHERE applied = 0 ORDER BY number").fetchall():
            rows = self._db.execute("SELECT event FROM events WHERE batch = ? ORDER BY seq", (number,))
            found.append((number, [json.loads(event) for (event,) in rows]))
        return found

    def _prune(self, now_ms: int) -> None:
        """Forgets what only people would look at, when it is old."""
        oldest = self.next - KEPT_BATCHES
        self._db.execute("DELETE FROM events WHERE batch < ?", (oldest,))
        self._db.execute("DELETE FROM batches WHERE number < ? AND applied = 1", (oldest,))
        self._db.execute("DELETE FROM answers WHERE at_ms < ?", (now_ms - KEPT_ANSWERS_MS,))
        for table, kept in (("reconfigurations", KEPT_RECONFIGURATIONS), ("decisions", KEPT_DECISIONS)):
            self._db.execute(f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?", (kept,))
