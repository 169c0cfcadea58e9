"""Answers to requests that may come twice, by their keys: the second one is answered as the first was."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from meander.coordinator.ledger.values import as_text


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """A request that was seen before, and its answer, once there is one."""

    fingerprint: str
    batch: int | None
    status: int | None
    body: Any


class Answers:
    """Written within the ledger's transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def find(self, key: str) -> KeyedAnswer | None:
        row = self._db.execute("SELECT fingerprint, batch, status, body FROM answers WHERE key = ?", (key,)).fetchone()
        return (
            None if row is None else KeyedAnswer(row[0], row[1], row[2], None if row[3] is None else json.loads(row[3]))
        )

    def expect(self, key: str, fingerprint: str, at_ms: int, batch: int | None, response: Any) -> None:
        """A request with this key was taken up; its answer follows in this form."""
        row = (key, fingerprint, at_ms, batch, as_text(response))
        self._db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, NULL, ?)", row)

    def give(self, key: str, status: int, body: Any) -> None:
        self._db.execute("UPDATE answers SET status = ?, body = ? WHERE key = ?", (status, as_text(body), key))

    def unanswered(self, batch: int) -> list[tuple[str, Any]]:
        """Requests that were part of a batch and have no answer: their keys, and the form of the answer."""
        rows = self._db.execute("SELECT key, body FROM answers WHERE batch = ? AND status IS NULL", (batch,))
        return [(key, json.loads(response)) for key, response in rows]
