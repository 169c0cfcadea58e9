"""The history of events, read from the ledger for people: a connection of its own, so that listings hold up no
decision."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from meander.model.locks import lock

NEWEST = -1
"""Instead of a sequence number: the newest events."""


class EventHistory:
    """Read-only, from any thread."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False, timeout=5.0
        )
        self._lock = lock("event history")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def events(self, since: int, limit: int) -> list[dict[str, Any]]:
        """Events after a sequence number, oldest first, with the results of their batches."""
        query = """SELECT e.seq, e.at_ms, e.event, b.number, b.applied, b.outcome
                   FROM events e JOIN batches b ON b.number = e.batch WHERE e.seq > ? ORDER BY e.seq {} LIMIT ?"""
        newest = since == NEWEST
        rows = self._rows(query.format("DESC" if newest else ""), since, limit)
        return [
            {
                "seq": seq,
                "at_ms": at_ms,
                "event": json.loads(event),
                "outcome": {
                    "batch": batch,
                    "state": "applied" if applied else "accepted",
                    **(json.loads(outcome) if outcome else {}),
                },
            }
            for seq, at_ms, event, batch, applied, outcome in (reversed(rows) if newest else rows)
        ]

    def reconfigurations(self, limit: int) -> list[dict[str, Any]]:
        """The newest, oldest first."""
        rows = self._rows("SELECT record FROM reconfigurations ORDER BY number DESC LIMIT ?", limit)
        return [json.loads(record) for (record,) in reversed(rows)]

    def decisions(self, limit: int, query: str | None = None) -> list[dict[str, Any]]:
        """The newest, oldest first; of one query or of all."""
        rows = self._rows(
            "SELECT record FROM decisions WHERE ? IS NULL OR query = ? ORDER BY number DESC LIMIT ?",
            query,
            query,
            limit,
        )
        return [json.loads(record) for (record,) in reversed(rows)]
