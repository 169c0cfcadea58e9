"""Latencies between the candidates of a delta, learnt from the few cheapest paths that were looked up.

A cheapest path also tells the latencies between all nodes on it. Other pairs are looked up one by one while candidates
are few. On long paths that would be thousands of searches; there, latencies are those within the network that the
followed paths form, which is exact along each path and at most too long between different ones.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path

Floats = NDArray[np.float64]

FEW = 16
"""Up to this many candidates, every pair has its true latency."""


class Latencies:
    """The known latencies while one delta is placed."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.links = 0
        """Links that were looked at."""
        self._known: dict[tuple[NodeId, NodeId], float] = {}
        self._paths: list[Path] = []
        self._learnt = 0

    def follow(self, path: Path) -> None:
        """Takes note of a cheapest path."""
        self._paths.append(path)
        self.links += len(path.arcs)

    def between(self, start: NodeId, goal: NodeId) -> float:
        """The true latency of one pair."""
        if start == goal:
            return 0.0
        if self._learnt < len(self._paths):
            self._learn()
        found = self._known.get((start, goal))
        if found is None:
            found = self._known[start, goal] = self.topology.latency_ms(start, goal)
        return found

    def _learn(self) -> None:
        known = self._known
        for path in self._paths[self._learnt :]:
            nodes = path.nodes
            latency = self.topology.arcs.latency_ms[list(path.arcs)].tolist() if path.arcs else []
            for i, start in enumerate(nodes):
                reached = 0.0
                for j in range(i, len(latency)):
                    reached += latency[j]
                    known[start, nodes[j + 1]] = reached
        self._learnt = len(self._paths)

    def matrix(self, nodes: Sequence[NodeId]) -> Floats:
        """Latencies between all of these nodes."""
        if len(nodes) <= FEW:
            return np.array([[self.between(a, b) for b in nodes] for a in nodes])
        index = {n: i for i, n in enumerate(nodes)}
        for path in self._paths:
            for node in path.nodes:
                index.setdefault(node, len(index))
        latency = np.full((len(index), len(index)), np.inf)
        np.fill_diagonal(latency, 0.0)
        for path in self._paths:
            at = np.array([index[n] for n in path.nodes])
            latency[at[:-1], at[1:]] = self.topology.arcs.latency_ms[list(path.arcs)]
        _close(latency)
        return latency[: len(nodes), : len(nodes)]


@njit(cache=True, nogil=True)
def _close(latency: Floats) -> None:
    """All shortest ways through the network (Floyd and Warshall), in place."""
    count = len(latency)
    for via in range(count):
        for a in range(count):
            first = latency[a, via]
            if first == np.inf:
                continue
            for b in range(count):
                through = first + latency[via, b]
                if through < latency[a, b]:
                    latency[a, b] = through
