"""The topology in the ledger: its nodes, which keep their numbers, and its arcs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import numpy as np

from meander.coordinator.ledger.values import full, limited
from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology


class TopologyTables:
    """Written within the ledger's transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def exists(self) -> bool:
        return self._db.execute("SELECT 1 FROM nodes LIMIT 1").fetchone() is not None

    def save(self, topology: Topology) -> None:
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
                    limited(float(arcs.bandwidth_mbps[a])),
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
            memory, capacity = limited(node.memory_mb), limited(node.capacity_tps)
            head = (int(number), node.name, int(node.kind), node.slots, capacity, memory)
            rows.append((*head, node.lon, node.lat, int(node.mobile), int(alive), node.power_w, node.price_per_h))
            if not alive:
                gone.append((int(number), int(number)))
        self._db.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("DELETE FROM arcs WHERE tail = ? OR tip = ?", gone)

    def save_links(self, topology: Topology, ends: Iterable[tuple[NodeId, NodeId]]) -> None:
        """The present arcs between pairs of nodes, in both directions."""
        for a, b in ends:
            for tail, tip in ((a, b), (b, a)):
                self._db.execute("DELETE FROM arcs WHERE tail = ? AND tip = ?", (int(tail), int(tip)))
                alive = topology.is_alive(tail) and topology.is_alive(tip)
                arc = topology.adjacency.between(tail, tip) if alive else None
                if arc is not None:
                    latency, bandwidth = float(topology.arcs.latency_ms[arc]), float(topology.arcs.bandwidth_mbps[arc])
                    row = (int(tail), int(tip), latency, limited(bandwidth))
                    self._db.execute("INSERT INTO arcs VALUES (?, ?, ?, ?)", row)

    def load(self) -> Topology:
        """The topology as it was saved: every node has the number it had."""
        topology = Topology()
        gone: list[NodeId] = []
        names: dict[int, str] = {}
        for number, name, kind, slots, capacity, memory, lon, lat, mobile, alive, power, price in self._db.execute(
            "SELECT * FROM nodes ORDER BY id"
        ):
            sizes = slots, full(capacity), full(memory)
            node = Node(name, NodeKind(kind), *sizes, lon, lat, bool(mobile), power, price)
            found = topology.add_node(node)
            if found != number:
                raise InputError(f"node {name!r} has number {number}, but {found} was expected")
            names[number] = name
            if not alive:
                gone.append(found)
        for tail, tip, latency, bandwidth in self._db.execute("SELECT * FROM arcs"):
            topology.add_link(Link(names[tail], names[tip], latency, full(bandwidth), directed=True))
        for dead in gone:
            topology.remove_node(dead)
        return topology
