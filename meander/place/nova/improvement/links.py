"""The traffic of a placement on each link of a topology, and the links that are overloaded by it.

Every stream that arrives at a node is counted once on each link of the cheapest path from its source, and results on
their way to the sink, at the selectivity given. Traffic follows replicas that come and go, at the price of their paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.place.nova.running.joins import Joins

BITS = 8e-6
"""Megabits of a byte."""
CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """A link in one direction, and its traffic."""

    tail: NodeId
    tip: NodeId
    mbps: float
    bandwidth_mbps: float

    @property
    def exceeded(self) -> bool:
        return self.mbps > self.bandwidth_mbps * (1 + CLOSE)


class LinkTraffic:
    """The flows of placed joins, by arc of the topology. Node rows are the topology's node ids."""

    def __init__(self, joins: Joins, topology: Topology, tuple_bytes: float, selectivity: float = 1.0) -> None:
        self.joins, self.topology = joins, topology
        self._mbit, self._selectivity = tuple_bytes * BITS, selectivity
        self.mbps: dict[int, float] = {}
        self.excess_mbps = 0.0
        """By how much all links together carry too much."""
        self._ranges: dict[tuple[int, int], dict[tuple[int, int], tuple[float, float]]] = {}
        """The ranges of a source that a node takes in: for each replica and side, as shares of the stream."""
        for row in joins.rows().tolist():
            self.add(row)

    def add(self, row: int) -> None:
        """A replica has come."""
        for source, side, part in self._inputs(row):
            node = int(self.joins.board.replicas[row]["node"])
            held = self._ranges.setdefault((source, node), {})
            before = union(list(held.values()))
            held[row, side] = part
            self._flow(source, node, union(list(held.values())) - before)
        self._send(*self._results(row))

    def remove(self, row: int) -> None:
        """A replica is about to go."""
        for source, side, _ in self._inputs(row):
            node = int(self.joins.board.replicas[row]["node"])
            held = self._ranges[source, node]
            before = union(list(held.values()))
            del held[row, side]
            self._flow(source, node, union(list(held.values())) - before)
        start, goal, rate = self._results(row)
        self._send(start, goal, -rate)

    def exceeded(self) -> list[int]:
        """Arcs that carry too much, the worst first."""
        width = self.topology.arcs.bandwidth_mbps
        found = [a for a, mbps in self.mbps.items() if mbps > float(width[a]) * (1 + CLOSE)]
        return sorted(found, key=lambda a: float(width[a]) - self.mbps[a])

    def crossing(self, arc: int) -> list[int]:
        """Replicas whose inputs or results cross an arc, those with most of it first."""
        found: dict[int, float] = {}
        for row in self.joins.rows().tolist():
            node = int(self.joins.board.replicas[row]["node"])
            for source, _, (low, high) in self._inputs(row):
                if arc in self._arcs(int(self.joins.board.sources["node"][source]), node):
                    rate = float(self.joins.board.sources["rate"][source])
                    found[row] = found.get(row, 0.0) + (high - low) * rate
            start, goal, rate = self._results(row)
            if arc in self._arcs(start, goal):
                found[row] = found.get(row, 0.0) + rate
        return sorted(found, key=lambda row: -found[row])

    def loads(self) -> list[LinkLoad]:
        """Every link that carries something, the fullest first."""
        arcs = self.topology.arcs
        found = [
            LinkLoad(NodeId(int(arcs.tail[a])), NodeId(int(arcs.tip[a])), mbps, float(arcs.bandwidth_mbps[a]))
            for a, mbps in self.mbps.items()
            if mbps > CLOSE
        ]
        return sorted(found, key=lambda link: -link.mbps / max(link.bandwidth_mbps, 1e-12))

    def _inputs(self, row: int) -> Iterator[tuple[int, int, tuple[float, float]]]:
        board = self.joins.board
        join, cells = int(board.replicas[row]["join"]), board.replicas[row]["cells"]
        for side in range(2):
            parts = int(board.joins[join]["parts"][side])
            yield int(board.joins[join]["ends"][side]), side, (cells[2 * side] / parts, cells[2 * side + 1] / parts)

    def _results(self, row: int) -> tuple[int, int, float]:
        board = self.joins.board
        share, rate = 1.0, 0.0
        for source, _, (low, high) in self._inputs(row):
            share *= high - low
            rate += float(board.sources["rate"][source])
        sink = int(board.joins[int(board.replicas[row]["join"])]["sink"])
        return int(board.replicas[row]["node"]), sink, share * self._selectivity * rate

    def _flow(self, source: int, node: int, share: float) -> None:
        board = self.joins.board
        self._send(int(board.sources["node"][source]), node, share * float(board.sources["rate"][source]))

    def _send(self, start: int, goal: int, rate: float) -> None:
        width = self.topology.arcs.bandwidth_mbps
        for arc in self._arcs(start, goal) if rate else ():
            before = self.mbps.get(arc, 0.0)
            after = self.mbps[arc] = before + rate * self._mbit
            self.excess_mbps += max(after - float(width[arc]), 0.0) - max(before - float(width[arc]), 0.0)

    def _arcs(self, start: int, goal: int) -> tuple[int, ...]:
        path = self.topology.path(NodeId(start), NodeId(goal))
        return path.arcs if path is not None else ()


def link_loads(joins: Joins, topology: Topology, tuple_bytes: float, selectivity: float = 1.0) -> list[LinkLoad]:
    """Every link that carries something, the fullest first."""
    return LinkTraffic(joins, topology, tuple_bytes, selectivity).loads()


def union(ranges: list[tuple[float, float]]) -> float:
    """The share of a stream that some ranges cover together.

    >>> union([(0.0, 0.5), (0.25, 0.75)])
    0.75
    """
    total, reached = 0.0, 0.0
    for low, high in sorted(ranges):
        total += max(high - max(low, reached), 0.0)
        reached = max(reached, high)
    return total
