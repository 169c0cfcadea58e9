"""The question a mechanism answers: on which nodes should these operators run, given those that stay where they are?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meander.model.ids import NodeId, OperatorId
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path
from meander.place.costspace.space import CostSpace
from meander.place.free_capacity import Room


@dataclass(frozen=True, slots=True)
class Flow:
    """Tuples from one operator to a reader of its output."""

    upstream: OperatorId
    reader: OperatorId
    rate_tps: float
    mbps: float


@dataclass(frozen=True, slots=True)
class Need:
    """The resources that an operator takes on its node."""

    slots: int
    load_tps: float
    memory_mb: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A delta as a mechanism sees it. `free` operators come in dataflow order; `pinned` ones border on them."""

    free: Mapping[OperatorId, Need]
    pinned: Mapping[OperatorId, NodeId]
    flows: tuple[Flow, ...]
    topology: Topology
    room: Room
    """The remaining room on nodes and links. A mechanism takes from it as it places; it is the mechanism's own copy."""
    seed: int = 0
    space: CostSpace | None = None
    former: Mapping[OperatorId, NodeId] = field(default_factory=dict)
    """The former nodes of operators, where there were any: a mechanism may prefer to stay."""
    waiting: frozenset[OperatorId] = frozenset()
    """Operators, free or pinned, that run nowhere yet: leaving one of them out costs nothing that runs."""
    routes: dict[tuple[OperatorId, OperatorId], Path] = field(default_factory=dict)
    """Paths of the flows that were connected so far. Their bandwidth is taken from the room."""

    @cached_property
    def inputs(self) -> dict[OperatorId, list[Flow]]:
        """Flows into each operator."""
        return self._grouped("reader")

    @cached_property
    def outputs(self) -> dict[OperatorId, list[Flow]]:
        """Flows out of each operator."""
        return self._grouped("upstream")

    def _grouped(self, end: str) -> dict[OperatorId, list[Flow]]:
        grouped: dict[OperatorId, list[Flow]] = {o: [] for o in (*self.free, *self.pinned)}
        for flow in self.flows:
            grouped[getattr(flow, end)].append(flow)
        return grouped

    def fits(self, operator: OperatorId, node: NodeId) -> bool:
        need = self.free[operator]
        return self.room.fits(node, need.slots, need.load_tps, need.memory_mb)

    def connect(
        self, operator: OperatorId, node: NodeId, placed: Mapping[OperatorId, NodeId], *, every: bool = True
    ) -> bool:
        """Routes all flows between the operator on this node and neighbours that have one; takes nothing if it cannot.

        Without `every`, one of the readers is enough: a reader that cannot be reached does not stop the others.
        """
        if not self.topology.has_narrow_links:
            return True  # any path will do, and candidates have one
        cut = served = 0
        for flow in self.inputs[operator]:
            start = placed.get(flow.upstream)
            if start is not None and start != node and not self._route(flow, start, node):
                self.disconnect((operator,))
                return False
        for flow in self.outputs[operator]:
            goal = placed.get(flow.reader)
            if goal is None:
                continue
            if goal == node or self._route(flow, node, goal):
                served += 1
            else:
                cut += 1
        if cut and (every or not served):
            self.disconnect((operator,))
            return False
        return True

    def connect_all(self, nodes: Mapping[OperatorId, NodeId]) -> bool:
        """Routes all flows of operators that were placed together; takes nothing if it cannot."""
        placed = dict(self.pinned)
        for operator, node in nodes.items():
            if not self.connect(operator, node, placed):
                self.disconnect(nodes)
                return False
            placed[operator] = node
        return True

    def disconnect(self, operators: Iterable[OperatorId]) -> None:
        """Gives back resources that were taken for flows of these operators."""
        for operator in operators:
            for flow in (*self.inputs[operator], *self.outputs[operator]):
                path = self.routes.pop((flow.upstream, flow.reader), None)
                if path is not None:
                    self.room.take_traffic(path.arcs, -flow.mbps)

    def _route(self, flow: Flow, start: NodeId, goal: NodeId) -> bool:
        path = self.room.path(start, goal, flow.mbps)
        if path is None:
            return False
        self.routes[flow.upstream, flow.reader] = path
        self.room.take_traffic(path.arcs, flow.mbps)
        return True

    def take(self, operator: OperatorId, node: NodeId) -> None:
        need = self.free[operator]
        self.room.take(node, need.slots, need.load_tps, need.memory_mb)


@dataclass(slots=True)
class Proposal:
    """A mechanism's answer, with the messages that finding it would have taken on a real network."""

    nodes: dict[OperatorId, NodeId] = field(default_factory=dict)
    unplaced: dict[OperatorId, str] = field(default_factory=dict)
    """Operators without a node, each with the reason."""
    messages: int = 0
    bytes: int = 0
    note: str = ""
    """Anything else worth knowing, such as an optimality gap."""
