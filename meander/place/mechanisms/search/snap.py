"""From a point of the cost space to real nodes: the nearest ones that have room and connect the operator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.place.costspace.space import CostSpace
from meander.place.free_capacity import Room
from meander.place.mechanisms.search.one_by_one import Spot
from meander.place.problem import Need, Problem

MOST_CHECKED = 4096
"""Nodes with room whose connection is checked before giving up: in a split network the nearest ones may be cut off."""


def space_of(problem: Problem, mechanism: str) -> CostSpace:
    """The problem's cost space, which this mechanism cannot do without."""
    if problem.space is None:
        raise InputError(f"mechanism {mechanism!r} needs a cost space; build one with meander.place.costspace.build")
    return problem.space


def nearest_with_room(spot: Spot, space: CostSpace, point: NDArray[np.float64]) -> Iterator[NodeId]:
    """Connected nodes with room by estimated latency from the point, nearest first."""
    room, need = spot.problem.room, spot.problem.free[spot.operator]
    checked = 0
    for chunk in space.near(point):
        for node in map(NodeId, chunk[_may_fit(room, need, chunk)].tolist()):
            if not room.fits(node, need.slots, need.load_tps, need.memory_mb):
                continue
            if spot.connects(node):
                yield node
            checked += 1
            if checked > MOST_CHECKED:
                return


def _may_fit(room: Room, need: Need, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Nodes with room by the shared ledger, and all that this view has touched."""
    table, ledger = room.topology.nodes, room.ledger
    fits: NDArray[np.bool_] = table.alive[nodes] & (ledger.slots[nodes] + need.slots <= table.slots[nodes])
    fits &= ledger.load_tps[nodes] + need.load_tps <= table.capacity_tps[nodes]
    fits &= ledger.memory_mb[nodes] + need.memory_mb <= table.memory_mb[nodes]
    touched = list(room.touched_nodes)
    if touched:
        fits |= np.isin(nodes, touched)
    return fits


def load_share(room: Room, node: NodeId) -> float:
    """The load of a node: the largest used share of its slots, tuples/s and memory."""
    slots, capacity = int(room.topology.nodes.slots[node]), float(room.topology.nodes.capacity_tps[node])
    memory = float(room.topology.nodes.memory_mb[node])
    used_slots = 1 - room.free_slots(node) / slots if slots else 1.0
    used_tps = 1 - room.free_tps(node) / capacity if 0 < capacity < float("inf") else 0.0
    used_mb = 1 - room.free_mb(node) / memory if 0 < memory < float("inf") else 0.0
    return max(used_slots, used_tps, used_mb)
