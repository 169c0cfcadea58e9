"""The use of nodes and links by operators: the shared ledger, and private views for placing without locks.

All amounts are kept in steps of a power of two, so that sums are exact: amounts that were taken and given back cancel
to zero, whatever the order. The ledger does not lock; `control` decides which amender may touch it when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path

_T = TypeVar("_T", bound=np.generic)
RATE_STEP = 1 / 1024
MEMORY_STEP = 1 / 1024


def in_steps(rate_tps: float) -> float:
    """The rate rounded to a step that adds up exactly."""
    return round(rate_tps / RATE_STEP) * RATE_STEP


def in_memory_steps(memory_mb: float) -> float:
    """The memory rounded up to a step that adds up exactly."""
    return ceil(memory_mb / MEMORY_STEP) * MEMORY_STEP


class CapacityLedger:
    """Slots, tuples/s and memory used on every node, Mbit/s used on every arc."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.slots = np.zeros(len(topology.nodes.alive), dtype=np.int32)
        self.load_tps = np.zeros(len(topology.nodes.alive), dtype=np.float64)
        self.memory_mb = np.zeros(len(topology.nodes.alive), dtype=np.float64)
        self.mbps = np.zeros(len(topology.arcs.alive), dtype=np.float64)

    def grow(self) -> None:
        """Follows the topology's columns after nodes or links were added."""
        self.slots = _longer(self.slots, len(self.topology.nodes.alive))
        self.load_tps = _longer(self.load_tps, len(self.topology.nodes.alive))
        self.memory_mb = _longer(self.memory_mb, len(self.topology.nodes.alive))
        self.mbps = _longer(self.mbps, len(self.topology.arcs.alive))

    def fits(self, node: NodeId, slots: int, load_tps: float, memory_mb: float = 0.0) -> bool:
        nodes = self.topology.nodes
        return bool(
            nodes.alive[node]
            and self.slots[node] + slots <= nodes.slots[node]
            and self.load_tps[node] + load_tps <= nodes.capacity_tps[node]
            and self.memory_mb[node] + memory_mb <= nodes.memory_mb[node]
        )

    def carries(self, arc: int, mbps: float) -> bool:
        return bool(self.mbps[arc] + mbps <= self.topology.arcs.bandwidth_mbps[arc])

    def add(self, node: NodeId, slots: int, load_tps: float, memory_mb: float = 0.0) -> None:
        """Takes (or, with negative amounts, gives back). Going below zero is a bug, never input."""
        self.slots[node] += slots
        self.load_tps[node] += load_tps
        if memory_mb:
            self.memory_mb[node] += memory_mb
        if self.slots[node] < 0 or self.load_tps[node] < 0 or self.memory_mb[node] < 0:
            raise InputError(f"more was given back on node {self.topology.name(node)} than was taken")

    def add_traffic(self, arcs: tuple[int, ...], mbps: float) -> None:
        for arc in arcs:
            self.mbps[arc] += mbps


class Room:
    """A private view of the ledger: the amounts when a node was first asked about, plus the changes of this view.

    So a view does not change its mind about a node while others take from it; whether the amounts are really there is
    checked when they are charged.
    """

    def __init__(self, ledger: CapacityLedger) -> None:
        self.ledger = ledger
        self.topology = ledger.topology
        self._seen: dict[NodeId, tuple[int, float, float]] = {}
        self._slots: dict[NodeId, int] = {}
        self._load_tps: dict[NodeId, float] = {}
        self._memory_mb: dict[NodeId, float] = {}
        self._mbps: dict[int, float] = {}

    def copy(self) -> Room:
        """A view of this view, to try things out."""
        other = Room(self.ledger)
        other._seen = self._seen
        other._slots, other._load_tps, other._mbps = self._slots.copy(), self._load_tps.copy(), self._mbps.copy()
        other._memory_mb = self._memory_mb.copy()
        return other

    def _used(self, node: NodeId) -> tuple[int, float, float]:
        """Slots, tuples/s and memory that others use there."""
        seen = self._seen.get(node)
        if seen is None:
            ledger = self.ledger
            seen = int(ledger.slots[node]), float(ledger.load_tps[node]), float(ledger.memory_mb[node])
            self._seen[node] = seen
        return seen

    def fits(self, node: NodeId, slots: int, load_tps: float, memory_mb: float = 0.0) -> bool:
        """Whether the node still has this much room."""
        nodes = self.topology.nodes
        used_slots, used_tps, used_mb = self._used(node)
        return bool(
            nodes.alive[node]
            and used_slots + (slots + self._slots.get(node, 0)) <= nodes.slots[node]
            and used_tps + (load_tps + self._load_tps.get(node, 0.0)) <= nodes.capacity_tps[node]
            and used_mb + (memory_mb + self._memory_mb.get(node, 0.0)) <= nodes.memory_mb[node]
        )

    def free_slots(self, node: NodeId) -> int:
        nodes = self.topology.nodes
        if not nodes.alive[node]:
            return 0
        return int(nodes.slots[node]) - self._used(node)[0] - self._slots.get(node, 0)

    def free_tps(self, node: NodeId) -> float:
        return float(self.topology.nodes.capacity_tps[node]) - self._used(node)[1] - self._load_tps.get(node, 0.0)

    def free_mb(self, node: NodeId) -> float:
        return float(self.topology.nodes.memory_mb[node]) - self._used(node)[2] - self._memory_mb.get(node, 0.0)

    def free_mbps(self, arc: int) -> float:
        limit = float(self.topology.arcs.bandwidth_mbps[arc])
        return limit - float(self.ledger.mbps[arc]) - self._mbps.get(arc, 0.0)

    def carries(self, arcs: tuple[int, ...], mbps: float) -> bool:
        used, limit, own = self.ledger.mbps, self.topology.arcs.bandwidth_mbps, self._mbps
        return all(used[arc] + (mbps + own.get(arc, 0.0)) <= limit[arc] for arc in arcs)

    def path(self, start: NodeId, goal: NodeId, mbps: float) -> Path | None:
        """A cheapest path over links with this much bandwidth left."""
        found = self.topology.path(start, goal)
        if found is None or self.carries(found.arcs, mbps):
            return found
        return self.topology.adjacency.search(start, goal, mbps, self.ledger.mbps, self._mbps)

    def take(self, node: NodeId, slots: int, load_tps: float, memory_mb: float = 0.0) -> None:
        if slots or load_tps or memory_mb:
            self._slots[node] = self._slots.get(node, 0) + slots
            self._load_tps[node] = self._load_tps.get(node, 0.0) + load_tps
            self._memory_mb[node] = self._memory_mb.get(node, 0.0) + memory_mb

    def take_traffic(self, arcs: tuple[int, ...], mbps: float) -> None:
        for arc in arcs:
            self._mbps[arc] = self._mbps.get(arc, 0.0) + mbps

    @property
    def node_changes(self) -> list[tuple[NodeId, int, float, float]]:
        """The amounts that this view took on each node it touched: slots, tuples/s and memory."""
        load, memory = self._load_tps, self._memory_mb
        return [(n, slots, load[n], memory[n]) for n, slots in self._slots.items()]

    @property
    def touched_nodes(self) -> Iterable[NodeId]:
        return self._slots

    @property
    def arc_changes(self) -> Mapping[int, float]:
        return self._mbps


def _longer(column: NDArray[_T], length: int) -> NDArray[_T]:
    if len(column) >= length:
        return column
    larger = np.zeros(length, dtype=column.dtype)
    larger[: len(column)] = column
    return larger
