"""Remembers cheapest paths until a change can have touched them, at O(1) per change.

A removed arc drops exactly the paths that use it. An added arc can only improve paths that cost more than the arc
itself; instead of searching for those, each remembered path notes how many arcs had been added when it was computed,
and is checked against the newer ones when it is asked for. Threads that place concurrently may ask at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meander.model.ids import NodeId
from meander.model.locks import lock

if TYPE_CHECKING:
    from meander.model.topology.graph import Topology

KEPT_ADDITIONS = 64
MOST_PATHS = 1_000_000


@dataclass(frozen=True, slots=True)
class Path:
    """A live path: its nodes from start to goal, its arcs, and its latency."""

    nodes: tuple[NodeId, ...]
    arcs: tuple[int, ...]
    latency_ms: float

    @property
    def hops(self) -> int:
        return len(self.arcs)


@dataclass(slots=True)
class _Entry:
    path: Path | None
    additions_seen: int


class PathCache:
    """Cheapest paths by (start, goal)."""

    def __init__(self) -> None:
        self._entries: dict[tuple[NodeId, NodeId], _Entry] = {}
        self._users: defaultdict[int, set[tuple[NodeId, NodeId]]] = defaultdict(set)
        self._of_node: defaultdict[NodeId, set[tuple[NodeId, NodeId]]] = defaultdict(set)
        self._additions: list[tuple[NodeId, NodeId, float]] = []
        self._forgotten = 0
        self._lock = lock("path cache")

    def __len__(self) -> int:
        return len(self._entries)

    def __deepcopy__(self, memo: dict[int, Any]) -> PathCache:
        """A copy of a topology finds its paths anew."""
        return PathCache()

    def path(self, start: NodeId, goal: NodeId, topology: Topology) -> Path | None:
        """The cheapest live path, remembered or found now."""
        known, path = self.get(start, goal, topology)
        if known:
            return path
        if topology.nodes.out_degree[start] == 1 and start != goal:
            return self.put(start, goal, self._path_of_leaf(start, goal, topology))
        return self.put(start, goal, topology.adjacency.search(start, goal))

    def _path_of_leaf(self, start: NodeId, goal: NodeId, topology: Topology) -> Path | None:
        """The cheapest path of a node with one outgoing arc, such as most devices: the arc, and the path from there."""
        nodes, arcs = topology.nodes, topology.arcs
        arc = int(nodes.out_head[start])
        tip, latency_ms = NodeId(int(arcs.tip[arc])), float(arcs.latency_ms[arc])
        if tip == goal:
            return Path((start, goal), (arc,), latency_ms)
        if nodes.out_degree[tip] == 1:  # leaves that may lead to each other
            return topology.adjacency.search(start, goal)
        onward = self.path(tip, goal, topology)
        if onward is None:
            return None
        return Path((start, *onward.nodes), (arc, *onward.arcs), latency_ms + onward.latency_ms)

    def get(self, start: NodeId, goal: NodeId, topology: Topology) -> tuple[bool, Path | None]:
        """Whether the answer is known, and the answer."""
        entry = self._entries.get((start, goal))
        if entry is None:
            return False, None
        if self._still_cheapest(entry, start, goal, topology):
            entry.additions_seen = self._forgotten + len(self._additions)
            return True, entry.path
        with self._lock:
            self._drop((start, goal))
        return False, None

    def put(self, start: NodeId, goal: NodeId, path: Path | None) -> Path | None:
        pair = (start, goal)
        with self._lock:
            if len(self._entries) >= MOST_PATHS:
                self._clear()
            self._drop(pair)
            self._entries[pair] = _Entry(path, self._forgotten + len(self._additions))
            self._of_node[start].add(pair)
            self._of_node[goal].add(pair)
            for arc in path.arcs if path else ():
                self._users[arc].add(pair)
        return path

    def added(self, tail: NodeId, tip: NodeId, latency_ms: float) -> None:
        self._additions.append((tail, tip, latency_ms))
        if len(self._additions) > 2 * KEPT_ADDITIONS:
            del self._additions[:KEPT_ADDITIONS]
            self._forgotten += KEPT_ADDITIONS

    def drop_arc(self, arc: int) -> None:
        if arc not in self._users:
            return
        with self._lock:
            for pair in tuple(self._users.get(arc, ())):
                self._drop(pair)

    def drop_node(self, node: NodeId) -> None:
        with self._lock:
            for pair in tuple(self._of_node.get(node, ())):
                self._drop(pair)

    def _clear(self) -> None:
        self._entries.clear()
        self._users.clear()
        self._of_node.clear()

    def _still_cheapest(self, entry: _Entry, start: NodeId, goal: NodeId, topology: Topology) -> bool:
        if entry.additions_seen < self._forgotten:
            return False
        latency = entry.path.latency_ms if entry.path else float("inf")
        for tail, tip, added_ms in self._additions[entry.additions_seen - self._forgotten :]:
            if added_ms < latency and not self._dead_end(tail, tip, start, goal, topology):
                return False
        return True

    @staticmethod
    def _dead_end(tail: NodeId, tip: NodeId, start: NodeId, goal: NodeId, topology: Topology) -> bool:
        """No path from start to goal crosses the arc: only the arc back leads to its tail or on from its tip."""
        nodes, arcs = topology.nodes, topology.arcs
        if tail != start and nodes.in_degree[tail] <= 1:
            arriving = nodes.in_head[tail]
            if arriving < 0 or arcs.tail[arriving] == tip:
                return True
        if tip != goal and nodes.out_degree[tip] <= 1:
            leaving = nodes.out_head[tip]
            return bool(leaving < 0 or arcs.tip[leaving] == tail)
        return False

    def _drop(self, pair: tuple[NodeId, NodeId]) -> None:
        entry = self._entries.pop(pair, None)
        if entry is None:
            return
        for arc in entry.path.arcs if entry.path else ():
            users = self._users[arc]
            users.discard(pair)
            if not users:
                del self._users[arc]
        for node in set(pair):
            pairs = self._of_node[node]
            pairs.discard(pair)
            if not pairs:
                del self._of_node[node]
