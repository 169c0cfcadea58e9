"""The topology's paths for a host that plays many nodes: the delay of tuples, and the hops of state."""

from __future__ import annotations

from dataclasses import dataclass, field

from meander.deploy.fragments import Channel
from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.reconfigure.state import Hop


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths as they are now. Without `emulated` there is no delay, and state moves as fast as it can."""

    topology: Topology
    emulated: bool = False
    copies: dict[NodeId, tuple[NodeId, ...]] = field(default_factory=dict)
    """Nodes that are gone, with the nodes that have a copy of their last commit."""

    def delay_ms(self, channel: Channel) -> int:
        return round(channel.path.latency_ms) if self.emulated and channel.path is not None else 0

    def hops(self, origin: NodeId, destination: NodeId) -> list[Hop] | None:
        """The links that state crosses; None while there is no way. The state of a node that is gone is elsewhere."""
        if not self.topology.is_alive(origin):
            alive = [n for n in self.copies.get(origin, ()) if self.topology.is_alive(n)]
            if not alive:
                return None
            origin = alive[0]
        path = self.topology.path(origin, destination) if self.topology.is_alive(destination) else None
        if path is None:
            return None
        arcs = self.topology.arcs
        if not self.emulated:
            return [Hop() for _ in path.arcs]
        return [Hop(float(arcs.latency_ms[a]), _mbps(float(arcs.bandwidth_mbps[a]))) for a in path.arcs]


def _mbps(value: float) -> float | None:
    return None if value == float("inf") else value
