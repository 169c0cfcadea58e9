"""The question a mechanism answers: on which nodes should these operators run, given those that stay where they are?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meander.model.ids import NodeId, OperatorId
from meander.model.topology import Topology
from meander.place.costspace.space import CostSpace
from meander.place.room import Room


@dataclass(frozen=True, slots=True)
class Flow:
    """Tuples from one operator to a reader of its output."""

    upstream: OperatorId
    reader: OperatorId
    rate_tps: float
    mbps: float


@dataclass(frozen=True, slots=True)
class Need:
    """What an operator takes on the node that runs it."""

    slots: int
    load_tps: float


@dataclass(frozen=True)
class Problem:
    """A delta as a mechanism sees it. `free` operators come in dataflow order; `pinned` ones border on them."""

    free: Mapping[OperatorId, Need]
    pinned: Mapping[OperatorId, NodeId]
    flows: tuple[Flow, ...]
    topology: Topology
    room: Room
    """What is left on nodes and links. A mechanism takes from it as it places; it is the mechanism's own copy."""
    seed: int = 0
    space: CostSpace | None = None
    former: Mapping[OperatorId, NodeId] = field(default_factory=dict)
    """Where operators ran before, if they did: a mechanism may prefer to stay."""

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
        return self.room.fits(node, need.slots, need.load_tps)

    def take(self, operator: OperatorId, node: NodeId) -> None:
        need = self.free[operator]
        self.room.take(node, need.slots, need.load_tps)


@dataclass(slots=True)
class Proposal:
    """A mechanism's answer, with what finding it would have cost on a real network."""

    nodes: dict[OperatorId, NodeId] = field(default_factory=dict)
    unplaced: dict[OperatorId, str] = field(default_factory=dict)
    """Operators without a node, each with the reason."""
    messages: int = 0
    bytes: int = 0
    note: str = ""
    """Anything else worth knowing, such as an optimality gap."""
