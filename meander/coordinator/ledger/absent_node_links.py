"""The links of nodes that are away, and the names of nodes that are not wanted back (see `removed_nodes`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from meander.coordinator.ledger.values import full, limited
from meander.model.topology.elements import Link


class AwayLinks:
    """Written within a transaction of whose connection it is."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def keep_arcs(self, links: Iterable[Link]) -> None:
        rows = [(k.source, k.target, k.latency_ms, limited(k.bandwidth_mbps)) for k in links]
        self._db.executemany("INSERT OR REPLACE INTO away_links VALUES (?, ?, ?, ?)", rows)

    def drop_arcs(self, ends: Iterable[tuple[str, str]]) -> None:
        self._db.executemany("DELETE FROM away_links WHERE source = ? AND target = ?", list(ends))

    def arcs_of(self, node: str) -> list[Link]:
        """Arcs from and to a node, each a directed link."""
        query = "SELECT * FROM away_links WHERE source = ? UNION SELECT * FROM away_links WHERE target = ?"
        rows = self._db.execute(query, (node, node)).fetchall()
        return [Link(a, b, ms, full(mbps), directed=True) for a, b, ms, mbps in rows]

    def forget_nodes(self, nodes: Iterable[str]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO forgotten_nodes VALUES (?)", [(n,) for n in nodes])

    def recall_nodes(self, nodes: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM forgotten_nodes WHERE name = ?", [(n,) for n in nodes])

    def forgotten_nodes(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM forgotten_nodes")}
