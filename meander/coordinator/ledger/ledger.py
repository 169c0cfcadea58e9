"""The ledger: the durable facts of a coordinator, in one SQLite file in WAL mode.

A change is written twice: accepted before anything happens, and applied with its result. So a process that ends in
between finds its unfinished work when it starts again. The host's store holds the running fragments; the ledger holds
the decisions, and their reasons. One thread writes and reads here; all other readers ask `history`.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meander.coordinator.epochs import check as check_epoch
from meander.coordinator.ledger.migrations import migrate
from meander.membership.protocol import Epoch
from meander.model.errors import InputError
from meander.model.ids import ChannelId, NodeId, OperatorId
from meander.model.topology.graph import Link, Node, NodeKind, Topology

KEPT_BATCHES = 20_000
KEPT_RECONFIGURATIONS = 2_000
KEPT_DECISIONS = 5_000
KEPT_ANSWERS_MS = 24 * 3600 * 1000
PRUNE_EVERY = 500


@dataclass(frozen=True, slots=True)
class Placing:
    """The node on which an operator is to run, and the reason."""

    node: NodeId
    pinned: bool
    why: str


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


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """A request that was seen before, and its answer, once there is one."""

    fingerprint: str
    batch: int | None
    status: int | None
    body: Any


class Ledger:
    """One file. All calls come from one thread at a time."""

    def __init__(self, path: Path, epoch: Epoch | None = None) -> None:
        """With an epoch, nothing can be written any more once another coordinator has begun a newer one."""
        self.path, self.epoch = path, epoch
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # survives the end of the process, as the host's store does
            self._db.execute("PRAGMA foreign_keys = ON")
            migrate(self._db)
        except sqlite3.DatabaseError as error:
            raise InputError(f"this is no ledger: {error}; restore a backup", str(path)) from None
        (last,) = self._db.execute("SELECT max(number) FROM batches").fetchone()
        self.next_batch = (last or 0) + 1

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if self.epoch is not None:
                check_epoch(self._db, self.epoch)
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # ---------------------------------------------------------------- topology

    def has_topology(self) -> bool:
        return self._db.execute("SELECT 1 FROM nodes LIMIT 1").fetchone() is not None

    def save_topology(self, topology: Topology) -> None:
        """All of it, once at the beginning."""
        self.save_nodes(topology, (NodeId(n) for n in range(topology.nodes.count)))
        arcs = topology.arcs
        live = [int(a) for a in np.flatnonzero(arcs.alive[: arcs.count])]
        self._db.executemany(
            "INSERT INTO arcs VALUES (?, ?, ?, ?)",
            (
                (
                    int(arcs.tail[a]),
                    int(arcs.tip[a]),
                    float(arcs.latency_ms[a]),
                    _limited(float(arcs.bandwidth_mbps[a])),
                )
                for a in live
            ),
        )

    def save_nodes(self, topology: Topology, nodes: Iterable[NodeId]) -> None:
        """The present rows of some nodes; the links of one that is gone go with it."""
        gone: list[tuple[int, int]] = []
        rows = []
        for number in nodes:
            node, alive = topology.node(number), topology.is_alive(number)
            memory, capacity = _limited(node.memory_mb), _limited(node.capacity_tps)
            head = (int(number), node.name, int(node.kind), node.slots, capacity, memory)
            rows.append((*head, node.lon, node.lat, int(node.mobile), int(alive)))
            if not alive:
                gone.append((int(number), int(number)))
        self._db.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("DELETE FROM arcs WHERE tail = ? OR tip = ?", gone)

    def save_links(self, topology: Topology, ends: Iterable[tuple[NodeId, NodeId]]) -> None:
        """The present arcs between pairs of nodes, in both directions."""
        for a, b in ends:
            for tail, tip in ((a, b), (b, a)):
                self._db.execute("DELETE FROM arcs WHERE tail = ? AND tip = ?", (int(tail), int(tip)))
                alive = topology.is_alive(tail) and topology.is_alive(tip)
                arc = topology.arc(tail, tip) if alive else None
                if arc is not None:
                    latency, bandwidth = float(topology.arcs.latency_ms[arc]), float(topology.arcs.bandwidth_mbps[arc])
                    row = (int(tail), int(tip), latency, _limited(bandwidth))
                    self._db.execute("INSERT INTO arcs VALUES (?, ?, ?, ?)", row)

    def topology(self) -> Topology:
        """The topology as it was saved: every node has the number it had."""
        topology = Topology()
        gone: list[NodeId] = []
        names: dict[int, str] = {}
        for number, name, kind, slots, capacity, memory, lon, lat, mobile, alive in self._db.execute(
            "SELECT * FROM nodes ORDER BY id"
        ):
            node = Node(name, NodeKind(kind), slots, _full(capacity), _full(memory), lon, lat, bool(mobile))
            found = topology.add_node(node)
            if found != number:
                raise InputError(f"node {name!r} has number {number}, but {found} was expected", str(self.path))
            names[number] = name
            if not alive:
                gone.append(found)
        for tail, tip, latency, bandwidth in self._db.execute("SELECT * FROM arcs"):
            topology.add_link(Link(names[tail], names[tip], latency, _full(bandwidth), directed=True))
        for dead in gone:
            topology.remove_node(dead)
        return topology

    # ---------------------------------------------------------------- what removed nodes had (see `departed`)

    def keep_arcs(self, links: Iterable[Link]) -> None:
        rows = [(k.source, k.target, k.latency_ms, _limited(k.bandwidth_mbps)) for k in links]
        self._db.executemany("INSERT OR REPLACE INTO away_links VALUES (?, ?, ?, ?)", rows)

    def drop_arcs(self, ends: Iterable[tuple[str, str]]) -> None:
        self._db.executemany("DELETE FROM away_links WHERE source = ? AND target = ?", list(ends))

    def arcs_of(self, node: str) -> list[Link]:
        """Arcs from and to a node, each a directed link."""
        query = "SELECT * FROM away_links WHERE source = ? UNION SELECT * FROM away_links WHERE target = ?"
        rows = self._db.execute(query, (node, node)).fetchall()
        return [Link(a, b, ms, _full(mbps), directed=True) for a, b, ms, mbps in rows]

    def forget_nodes(self, nodes: Iterable[str]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO forgotten_nodes VALUES (?)", [(n,) for n in nodes])

    def recall_nodes(self, nodes: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM forgotten_nodes WHERE name = ?", [(n,) for n in nodes])

    def forgotten_nodes(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM forgotten_nodes")}

    # ---------------------------------------------------------------- rates

    def save_rates(self, rates: Mapping[tuple[str, str], float]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO rates VALUES (?, ?, ?)", ((s, n, rate) for (s, n), rate in rates.items())
        )

    def rates(self) -> dict[tuple[str, str], float]:
        return {(s, n): rate for s, n, rate in self._db.execute("SELECT * FROM rates")}

    # ---------------------------------------------------------------- batches of changes

    def accept(self, at_ms: int, events: Iterable[Mapping[str, Any]], queries: Iterable[tuple[str, str | None]]) -> int:
        """A batch that is about to be applied: its events as JSON values, and queries that come (text) or go (None)."""
        number = self.next_batch
        self._db.execute("INSERT INTO batches VALUES (?, ?, 0, NULL)", (number, at_ms))
        rows = ((number, at_ms, _text(event)) for event in events)
        self._db.executemany("INSERT INTO events (batch, at_ms, event) VALUES (?, ?, ?)", rows)
        self._db.executemany(
            "INSERT INTO query_log (batch, at_ms, query, text) VALUES (?, ?, ?, ?)",
            ((number, at_ms, query, text) for query, text in queries),
        )
        self.next_batch = number + 1
        if number % PRUNE_EVERY == 0:
            self._prune(at_ms)
        return number

    def applied(self, batch: int, outcome: Mapping[str, Any]) -> None:
        self._db.execute("UPDATE batches SET applied = 1, outcome = ? WHERE number = ?", (_text(outcome), batch))

    def unfinished(self) -> list[tuple[int, list[dict[str, Any]]]]:
        """Batches that were accepted and not applied, with their events."""
        found = []
        for (number,) in self._db.execute("SELECT number FROM batches WHERE applied = 0 ORDER BY number").fetchall():
            rows = self._db.execute("SELECT event FROM events WHERE batch = ? ORDER BY seq", (number,))
            found.append((number, [json.loads(event) for (event,) in rows]))
        return found

    def totals(self) -> tuple[int, int]:
        """Batches and events so far."""
        (events,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        return self.next_batch - 1, int(events)

    def _prune(self, now_ms: int) -> None:
        """Forgets what only people would look at, when it is old."""
        oldest = self.next_batch - KEPT_BATCHES
        self._db.execute("DELETE FROM events WHERE batch < ?", (oldest,))
        self._db.execute("DELETE FROM batches WHERE number < ? AND applied = 1", (oldest,))
        self._db.execute("DELETE FROM answers WHERE at_ms < ?", (now_ms - KEPT_ANSWERS_MS,))
        for table, kept in (("reconfigurations", KEPT_RECONFIGURATIONS), ("decisions", KEPT_DECISIONS)):
            self._db.execute(f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?", (kept,))

    # ---------------------------------------------------------------- queries

    def query_log(self) -> list[QueryStep]:
        rows = self._db.execute("SELECT position, batch, at_ms, query, text, first FROM query_log ORDER BY position")
        return [QueryStep(*row) for row in rows]

    def keep_queries(self, needed: Mapping[int, int | None], next_operator: int) -> None:
        """Forgets all steps but these (position to first number); operators are counted on from `next_operator`."""
        (batch, at_ms) = self._db.execute("SELECT max(batch), max(at_ms) FROM query_log").fetchone()
        gone = [(s.position,) for s in self.query_log() if s.position not in needed]
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
            self._db.execute("INSERT OR REPLACE INTO demands VALUES (?, ?)", (query, _text(list(demands))))

    def demands(self) -> dict[str, list[str]]:
        return {query: json.loads(found) for query, found in self._db.execute("SELECT * FROM demands")}

    def save_mechanisms(self, mechanisms: Mapping[str, str]) -> None:
        self._db.execute("DELETE FROM mechanisms")
        self._db.executemany("INSERT INTO mechanisms VALUES (?, ?)", mechanisms.items())

    def mechanisms(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT * FROM mechanisms").fetchall())

    def save_sink_binding(self, channel: ChannelId, query: str, sink: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO sink_bindings VALUES (?, ?, ?)", (int(channel), query, sink))

    def forget_sink_binding(self, channel: ChannelId) -> None:
        self._db.execute("DELETE FROM sink_bindings WHERE channel = ?", (int(channel),))

    def sink_bindings(self) -> list[tuple[ChannelId, str, str]]:
        rows = self._db.execute("SELECT channel, query, sink FROM sink_bindings ORDER BY channel")
        return [(ChannelId(channel), query, sink) for channel, query, sink in rows]

    # ---------------------------------------------------------------- placements and what was done

    def save_placements(self, changed: Mapping[OperatorId, Placing | None]) -> None:
        gone = [(int(o),) for o, placing in changed.items() if placing is None]
        self._db.executemany("DELETE FROM placements WHERE operator = ?", gone)
        self._db.executemany(
            "INSERT OR REPLACE INTO placements VALUES (?, ?, ?, ?)",
            ((int(o), int(p.node), int(p.pinned), p.why) for o, p in changed.items() if p is not None),
        )

    def placements(self) -> dict[OperatorId, Placing]:
        rows = self._db.execute("SELECT * FROM placements")
        return {OperatorId(o): Placing(NodeId(node), bool(pinned), why) for o, node, pinned, why in rows}

    def save_reconfiguration(self, record: Mapping[str, Any]) -> None:
        row = (record["number"], record["status"], _text(record))
        self._db.execute("INSERT OR REPLACE INTO reconfigurations VALUES (?, ?, ?)", row)

    def add_decisions(self, decisions: Iterable[Mapping[str, Any]]) -> None:
        self._db.executemany(
            "INSERT INTO decisions (query, record) VALUES (?, ?)", ((d["query"], _text(d)) for d in decisions)
        )

    # ---------------------------------------------------------------- requests that may come twice

    def answer_to(self, key: str) -> KeyedAnswer | None:
        row = self._db.execute("SELECT fingerprint, batch, status, body FROM answers WHERE key = ?", (key,)).fetchone()
        return (
            None if row is None else KeyedAnswer(row[0], row[1], row[2], None if row[3] is None else json.loads(row[3]))
        )

    def expect(self, key: str, fingerprint: str, at_ms: int, batch: int | None, response: Any) -> None:
        """A request with this key was taken up; its answer follows in this form."""
        row = (key, fingerprint, at_ms, batch, _text(response))
        self._db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, NULL, ?)", row)

    def answered(self, key: str, status: int, body: Any) -> None:
        self._db.execute("UPDATE answers SET status = ?, body = ? WHERE key = ?", (status, _text(body), key))

    def unanswered(self, batch: int) -> list[tuple[str, Any]]:
        """Requests that were part of a batch and have no answer: their keys, and the form of the answer."""
        rows = self._db.execute("SELECT key, body FROM answers WHERE batch = ? AND status IS NULL", (batch,))
        return [(key, json.loads(response)) for key, response in rows]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _limited(value: float) -> float | None:
    return None if math.isinf(value) else value


def _full(value: float | None) -> float:
    return math.inf if value is None else value
