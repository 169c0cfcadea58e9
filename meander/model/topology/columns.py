"""Nodes and arcs as columns: one array per property, rows that grow by doubling."""

from __future__ import annotations

from typing import Any

import numpy as np

from meander.model.topology.elements import UNLIMITED
from meander.model.topology.kernels import NONE


class NodeColumns:
    """One array per property of a node. Grows by doubling."""

    def __init__(self, count: int) -> None:
        self.count = count
        room = max(count, 8)
        self.alive = np.zeros(room, dtype=bool)
        self.kind = np.zeros(room, dtype=np.uint8)
        self.slots = np.zeros(room, dtype=np.int32)
        self.capacity_tps = np.full(room, UNLIMITED, dtype=np.float32)
        self.memory_mb = np.full(room, UNLIMITED, dtype=np.float32)
        self.power_w = np.zeros(room, dtype=np.float32)
        self.price_per_h = np.zeros(room, dtype=np.float32)
        self.lon = np.full(room, np.nan, dtype=np.float32)
        self.lat = np.full(room, np.nan, dtype=np.float32)
        self.mobile = np.zeros(room, dtype=bool)
        self.out_head = np.full(room, NONE, dtype=np.int32)
        self.in_head = np.full(room, NONE, dtype=np.int32)
        self.out_degree = np.zeros(room, dtype=np.int32)
        self.in_degree = np.zeros(room, dtype=np.int32)

    def append(self) -> int:
        """A fresh row, all defaults."""
        _grow(self, self.count)
        self.count += 1
        return self.count - 1


class ArcColumns:
    """One array per property of an arc, with the four list pointers. Freed rows are used again."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free: list[int] = []
        room = max(count, 8)
        self.alive = np.zeros(room, dtype=bool)
        self.tail = np.zeros(room, dtype=np.int32)
        self.tip = np.zeros(room, dtype=np.int32)
        self.latency_ms = np.zeros(room, dtype=np.float32)
        self.bandwidth_mbps = np.full(room, UNLIMITED, dtype=np.float32)
        self.out_next = np.full(room, NONE, dtype=np.int32)
        self.out_prev = np.full(room, NONE, dtype=np.int32)
        self.in_next = np.full(room, NONE, dtype=np.int32)
        self.in_prev = np.full(room, NONE, dtype=np.int32)

    def append(self) -> int:
        if self.free:
            return self.free.pop()
        _grow(self, self.count)
        self.count += 1
        return self.count - 1


def _grow(columns: NodeColumns | ArcColumns, needed: int) -> None:
    room = len(columns.alive)
    if needed < room:
        return
    for name, column in vars(columns).items():
        if isinstance(column, np.ndarray):
            larger = np.empty(2 * room, dtype=column.dtype)
            larger[:room] = column
            larger[room:] = _default(name, column.dtype)
            setattr(columns, name, larger)


def _default(name: str, dtype: np.dtype[Any]) -> float | int | bool:
    if name in ("lon", "lat"):
        return float("nan")
    if name.endswith(("head", "next", "prev")):
        return NONE
    return UNLIMITED if name in ("capacity_tps", "memory_mb", "bandwidth_mbps") else 0
