"""The elements of a topology as people describe them: nodes and links."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from meander.model.errors import InputError

UNLIMITED = float("inf")


class NodeKind(IntEnum):
    """The layer a node belongs to."""

    SENSOR = 0
    EDGE = 1
    CLOUD = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A node as people describe it. Slots bound the operators it holds, `capacity_tps` the tuples it can take in."""

    name: str
    kind: NodeKind
    slots: int
    capacity_tps: float = UNLIMITED
    memory_mb: float = UNLIMITED
    lon: float | None = None
    lat: float | None = None
    mobile: bool = False
    power_w: float = 0.0
    """Watts that it draws while it runs something."""
    price_per_h: float = 0.0
    """The price of an hour in which it runs something."""

    def __post_init__(self) -> None:
        for what in ("slots", "capacity_tps", "memory_mb", "power_w", "price_per_h"):
            value = getattr(self, what)
            if not value >= 0:
                raise InputError(f"node {self.name!r}: {what} must not be negative, but is {value}")
        for what in ("power_w", "price_per_h"):
            if getattr(self, what) == UNLIMITED:
                raise InputError(f"node {self.name!r}: {what} must be finite; leave it out where it is not known")


@dataclass(frozen=True, slots=True)
class Link:
    """A connection as people describe it, one way or both ways."""

    source: str
    target: str
    latency_ms: float = 1.0
    bandwidth_mbps: float = UNLIMITED
    directed: bool = False

    def __post_init__(self) -> None:
        for what, value in (("latency_ms", self.latency_ms), ("bandwidth_mbps", self.bandwidth_mbps)):
            if not value >= 0:
                raise InputError(
                    f"link {self.source!r} to {self.target!r}: {what} must not be negative, but is {value}"
                )
        if self.source == self.target:
            raise InputError(f"link {self.source!r} to {self.target!r} leads nowhere; its two ends must differ")
