"""The catalog: the present state of the world. One owner; amenders only read it.

It keeps three views of the same placement: operator to node and edge to path (the placement), node to operators and arc
to edges (so that a change finds broken routes without a scan), and how much of everything is used (the ledger).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from meander.model.global_plan import GlobalPlan
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, Placement, mbps
from meander.model.resilience import Resilience
from meander.model.signature import Signature
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path
from meander.place.costspace.space import CostSpace
from meander.place.difference import Difference, Recorder
from meander.place.free_capacity import CapacityLedger
from meander.place.rewrites import RULES_NUMBER

DETOUR = Resilience().detour


class SharingPolicy(Enum):
    """The extent to which a new query may reuse a running one."""

    PARTIAL = "partial"
    """Any common sub-plan."""
    COMPLETE = "complete"
    """Only everything: the new query adds nothing but its sink. What the published evaluation uses."""


@dataclass
class Catalog:
    """Topology, streams, sinks, the global query plan, and where it runs."""

    topology: Topology
    streams: dict[str, Stream] = field(default_factory=dict)
    sinks: dict[str, SinkTarget] = field(default_factory=dict)
    plan: GlobalPlan = field(default_factory=GlobalPlan)
    placement: Placement = field(default_factory=Placement)
    space: CostSpace | None = None
    sharing: SharingPolicy = SharingPolicy.PARTIAL
    rules: int = RULES_NUMBER
    """The rewrite rules of queries that come; 0 places them as they are written, as published query sets want it."""
    detour: float = DETOUR
    """Latency of data, as a multiple of that after a fresh placement, beyond which operators move after their data."""
    ledger: CapacityLedger = field(init=False)
    running: dict[Signature, OperatorId] = field(default_factory=dict, init=False)
    """The index that sharing looks up: which operator computes this already?"""
    on_node: dict[NodeId, set[OperatorId]] = field(default_factory=dict, init=False)
    on_arc: dict[int, set[Edge]] = field(default_factory=dict, init=False)
    rates_tps: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    """Rates of single producers that differ from their stream's."""
    recorder: Recorder = field(default_factory=Recorder, init=False)
    """The first state of all that was touched since the last difference was taken."""

    def __post_init__(self) -> None:
        self.ledger = CapacityLedger(self.topology)

    def source_rate_tps(self, stream: str, node: str) -> float:
        """The rate of one producer."""
        own = self.rates_tps.get((stream, node))
        if own is not None:
            return own
        return self.streams[stream].rate_tps

    def put(self, operator: OperatorId, node: NodeId) -> None:
        """Notes that the operator runs there. The ledger was charged by the amender."""
        self.recorder.operator(operator, self.placement.nodes.get(operator))
        self.placement.nodes[operator] = node
        self.on_node.setdefault(node, set()).add(operator)

    def lift(self, operator: OperatorId) -> NodeId | None:
        """Notes that the operator runs nowhere; returns where it ran."""
        node = self.placement.nodes.pop(operator, None)
        self.recorder.operator(operator, node)
        if node is not None:
            there = self.on_node[node]
            there.discard(operator)
            if not there:
                del self.on_node[node]
        return node

    def wait(self, operator: OperatorId) -> None:
        """Notes that the operator was looked at and found no place."""
        self.recorder.operator(operator, self.placement.nodes.get(operator))

    def put_route(self, edge: Edge, path: Path) -> None:
        self.recorder.route(edge, self.placement.routes.get(edge))
        self.placement.routes[edge] = path
        for arc in path.arcs:
            self.on_arc.setdefault(arc, set()).add(edge)

    def lift_route(self, edge: Edge) -> Path | None:
        path = self.placement.routes.pop(edge, None)
        self.recorder.route(edge, path)
        for arc in path.arcs if path else ():
            users = self.on_arc[arc]
            users.discard(edge)
            if not users:
                del self.on_arc[arc]
        return path

    def release_route(self, edge: Edge) -> Path | None:
        """Takes a route down and gives its bandwidth back at once: its arcs may be about to disappear."""
        path = self.lift_route(edge)
        if path is not None:
            self.ledger.add_traffic(path.arcs, -mbps(self.plan[edge[0]]))
        return path

    def difference(self) -> Difference:
        """The difference between the catalog now and at the last call."""
        return self.recorder.take(self.plan, self.placement)

    def names(self, nodes: Mapping[OperatorId, NodeId]) -> dict[OperatorId, str]:
        return {operator: self.topology.name(node) for operator, node in nodes.items()}
