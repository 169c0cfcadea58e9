"""Queries in the ledger: their comings and goings, demands, mechanisms and sink bindings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from meander.coordinator.ledger.values import as_text
from meander.model.ids import ChannelId


@dataclass(frozen=True, slots=True)
class QueryStep:
    """A query came (with its text) or went; steps of one batch happened at once.

    Without a query, it only says from where on operators are counted: earlier steps have been forgotten.
    """

    position: int
    batch: int
    at_ms: int
    query: str
    text: str | None
    first: int | None
    """The number of the first operator that came with it; None: counted on from the step before."""
    parted: bool = False
    """Whether its operators are those of a cut, which has a record of its own."""
    rules: int = 0
    """The rewrite rules by which its plan was made: it gets the same plan when it is recovered."""


class QueryChange(NamedTuple):
    """A query that comes, with its text, or goes."""

    query: str
    text: str | None = None
    parted: bool = False


class QueryTables:
    """Written within the ledger's transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def log(self) -> list[QueryStep]:
        wanted = "position, batch, at_ms, query, text, first, parted, rules"
        rows = self._db.execute(f"SELECT {wanted} FROM query_log ORDER BY position")
        return [
            QueryStep(position, batch, at_ms, query, text, first, bool(parted), rules)
            for position, batch, at_ms, query, text, first, parted, rules in rows
        ]

    def keep(self, needed: Mapping[int, int | None], next_operator: int) -> None:
        """Forgets all steps but these (position to first number); operators are counted on from `next_operator`."""
        (batch, at_ms) = self._db.execute("SELECT max(batch), max(at_ms) FROM query_log").fetchone()
        gone = [(s.position,) for s in self.log() if s.position not in needed]
        self._db.executemany("DELETE FROM query_log WHERE position = ?", gone)
        numbered = [(first, position) for position, first in needed.items() if first is not None]
        self._db.executemany("UPDATE query_log SET first = ? WHERE position = ?", numbered)
        self._db.execute(
            "INSERT INTO query_log (batch, at_ms, query, text, first) VALUES (?, ?, '', NULL, ?)",
            (batch, at_ms, next_operator),
        )

    def save_demands(self, query: str, demands: Sequence[str] | None) -> None:
        if demands is None:
            self._db.execute("DELETE FROM demands WHERE query = ?", (query,))
        else:
            self._db.execute("INSERT OR REPLACE INTO demands VALUES (?, ?)", (query, as_text(list(demands))))

    def demands(self) -> dict[str, list[str]]:
        return {query: json.loads(found) for query, found in self._db.execute("SELECT * FROM demands")}

    def save_mechanisms(self, mechanisms: Mapping[str, tuple[str, str]]) -> None:
        """The mechanism of each query, and why it has it."""
        self._db.execute("DELETE FROM mechanisms")
        rows = ((query, mechanism, reason) for query, (mechanism, reason) in mechanisms.items())
        self._db.executemany("INSERT INTO mechanisms VALUES (?, ?, ?)", rows)

    def mechanisms(self) -> dict[str, tuple[str, str]]:
        rows = self._db.execute("SELECT query, mechanism, reason FROM mechanisms")
        return {query: (mechanism, reason) for query, mechanism, reason in rows}

    def save_adaptation(self, query: str, values: Mapping[str, Any]) -> None:
        """Replaces the settings made at run time for a query, or under an empty name for all."""
        self._db.execute("DELETE FROM adaptation_settings WHERE query = ?", (query,))
        rows = ((query, name, as_text(value)) for name, value in values.items())
        self._db.executemany("INSERT INTO adaptation_settings VALUES (?, ?, ?)", rows)

    def adaptation(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for query, name, value in self._db.execute("SELECT query, name, value FROM adaptation_settings"):
            found.setdefault(query, {})[name] = json.loads(value)
        return found

    def save_cut(self, query: str, record: Mapping[str, Any] | None) -> None:
        """Writes down the cut of a query; None when it has none any more."""
        if record is None:
            self._db.execute("DELETE FROM cuts WHERE query = ?", (query,))
        else:
            self._db.execute("INSERT OR REPLACE INTO cuts VALUES (?, ?)", (query, as_text(record)))

    def cuts(self) -> dict[str, dict[str, Any]]:
        return {query: json.loads(found) for query, found in self._db.execute("SELECT * FROM cuts")}

    def save_sink_binding(self, channel: ChannelId, query: str, sink: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO sink_bindings VALUES (?, ?, ?)", (int(channel), query, sink))

    def forget_sink_binding(self, channel: ChannelId) -> None:
        self._db.execute("DELETE FROM sink_bindings WHERE channel = ?", (int(channel),))

    def sink_bindings(self) -> list[tuple[ChannelId, str, str]]:
        rows = self._db.execute("SELECT channel, query, sink FROM sink_bindings ORDER BY channel")
        return [(ChannelId(channel), query, sink) for channel, query, sink in rows]
