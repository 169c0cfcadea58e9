"""Events that can happen to a world as it is now: one function for each kind, drawing what to do to whom.

They look at the catalog's topology and plan to draw something that makes sense, and know the ground to bring back what
went. A kind that has nothing to do now gives no event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from meander.lang.demands import parse_demands
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.topology.elements import Link, Node
from meander.model.topology.graph import Topology
from tests.coordinator.loop.ground import BODIES, FOGS, INTO, MOVABLE, SENSORS, STREAMS, query, text
from tests.coordinator.loop.world import LoopWorld

Events = list[ChangeEvent]
MOST_QUERIES = 4
ALWAYS_THERE = ("cloud",)
"""Nodes that never go: with them everything would stand still too often."""


class Moves:
    """Draws events for one world."""

    def __init__(self, world: LoopWorld, rng: np.random.Generator, most_queries: int = MOST_QUERIES) -> None:
        self.world, self.rng, self.most_queries = world, rng, most_queries
        self._names = 0

    def drawn(self) -> Events:
        """Events of one kind; sometimes of two or three, which then happen at once."""
        count = 1 if self.rng.random() < 0.8 else int(self.rng.integers(2, 4))
        return [event for _ in range(count) for event in self._one_kind()]

    def _one_kind(self) -> Events:
        kinds = list(KINDS)
        weights = np.array([KINDS[k] for k in kinds], float)
        return kinds[int(self.rng.choice(len(kinds), p=weights / weights.sum()))](self)

    # ---------------------------------------------------------------- queries

    def add(self) -> Events:
        if len(self.world.catalog.plan.queries) >= self.most_queries:
            return self.remove()
        return [self.added(self.any_body(), self._any(INTO))]

    def any_body(self) -> str:
        """Every second query is a join where joins are what is looked at."""
        return "pairs" if self.world.setting.nova and self.rng.random() < 0.5 else self._any(list(BODIES))

    def added(self, body: str, into: str) -> QueryAdded:
        name = f"{body}{self._names}"
        self._names += 1
        found = query(name, body, into)
        self.world.texts[found.id] = text(body, into)
        by_nova = self.world.setting.nova and body == "pairs"
        return QueryAdded(0, found, "nova" if by_nova else "")

    def remove(self) -> Events:
        known = list(self.world.catalog.plan.queries)
        return [QueryRemoved(0, QueryId(self._any(known)))] if known else []

    def demand(self) -> Events:
        known = list(self.world.catalog.plan.queries)
        return [DemandChanged(0, QueryId(self._any(known)), parse_demands("latency < 100 ms"))] if known else []

    # ---------------------------------------------------------------- links

    def reconnect(self) -> Events:
        """A sensor leaves where it is and comes to some fog node, as a train does."""
        sensor, goal = self._any(SENSORS), self._any(FOGS)
        if not self._has(sensor) or not self._has(goal):
            return []
        here = [link for link in self._links() if sensor in (link.source, link.target)]
        others = {link.source if link.target == sensor else link.target for link in here}
        if goal in others:
            return []
        width = next(self.world.ground.links_of(sensor)).bandwidth_mbps
        return [*(LinkRemoved(0, sensor, o) for o in others), LinkAdded(0, Link(sensor, goal, 1, width))]

    def cut(self) -> Events:
        links = self._links()
        if not links:
            return []
        link = links[int(self.rng.integers(len(links)))]
        one_way = link.directed or self.rng.random() < 0.3
        return [LinkRemoved(0, link.source, link.target, directed=one_way)]

    def restore_link(self) -> Events:
        """Brings back what is missing of a link of the ground."""
        missing = [e for link in self.world.ground.links for e in self._missing(link)]
        return [missing[int(self.rng.integers(len(missing)))]] if missing else []

    def _missing(self, link: Link) -> Events:
        topology = self.world.catalog.topology
        ends = topology.find(link.source), topology.find(link.target)
        if ends[0] is None or ends[1] is None:
            return []
        there, back = (
            topology.adjacency.between(ends[0], ends[1]) is not None,
            topology.adjacency.between(ends[1], ends[0]) is not None,
        )
        if link.directed:
            return [] if there else [LinkAdded(0, link)]
        if not there and not back:
            return [LinkAdded(0, link)]
        found: Events = [] if there else [LinkAdded(0, replace(link, directed=True))]
        reverse = replace(link, source=link.target, target=link.source, directed=True)
        return found if back else [*found, LinkAdded(0, reverse)]

    # ---------------------------------------------------------------- nodes

    def node_goes(self) -> Events:
        here = [n.name for n in self.world.ground.nodes if self._has(n.name) and n.name not in ALWAYS_THERE]
        return [NodeRemoved(0, self._any(here))] if here else []

    def node_comes(self) -> Events:
        """With its links, or some of them; sometimes smaller than it was; sometimes it was gone for a moment only."""
        away = [n.name for n in self.world.ground.nodes if not self._has(n.name)]
        if away:
            return self.returned(self._any(away), whole=self.rng.random() < 0.6)
        here = self._any([*FOGS, "hub", *SENSORS])
        return [NodeRemoved(0, here), *self.returned(here, whole=self.rng.random() < 0.6)] if self._has(here) else []

    def returned(self, name: str, *, whole: bool = True) -> Events:
        node = self.world.ground.node(name)
        if not whole and self.rng.random() < 0.5:
            node = replace(node, slots=int(self.rng.integers(0, node.slots + 1)))
        links = [link for link in self.world.ground.links_of(name) if self._has_other_end(link, name)]
        if not whole:
            links = [link for link in links if self.rng.random() < 0.7]
        return [NodeAdded(0, node), *(LinkAdded(0, link) for link in links)]

    def capacity(self) -> Events:
        here = [n for n in self.world.ground.nodes if self._has(n.name)]
        node = here[int(self.rng.integers(len(here)))]
        match int(self.rng.integers(4)):
            case 0:
                return [CapacityChanged(0, node.name, slots=int(self.rng.integers(0, 3)))]
            case 1:
                if self.world.ground.has_little_memory and self.rng.random() < 0.5:
                    return [CapacityChanged(0, node.name, memory_mb=float(self.rng.choice([0.05, 0.1, 0.3])))]
                return [CapacityChanged(0, node.name, capacity_tps=float(self.rng.choice([0, 10, 25, 50])))]
            case _:
                return [self._as_it_was(node)]

    def again(self) -> ChangeEvent:
        """Changes nothing, but lets everything be tried again that waits."""
        topology = self.world.catalog.topology
        return CapacityChanged(0, "cloud", slots=int(topology.nodes.slots[topology.id("cloud")]))

    def rate(self) -> Events:
        stream = STREAMS[self._any(list(STREAMS))]
        producer = None if self.rng.random() < 0.5 else self._any(stream.nodes)
        return [RateChanged(0, stream.name, float(self.rng.choice([2, 10, 20, 40])), producer)]

    # ---------------------------------------------------------------- operators

    def pin(self) -> Events:
        operator, nodes = self._operator(), [n for n in MOVABLE if self._has(n)]
        return [] if operator is None else [PlacementChanged(0, operator, self._any(nodes))]

    def release(self) -> Events:
        held = [o for o, r in self.world.catalog.plan.operators.items() if r.is_held]
        return [PlacementChanged(0, held[int(self.rng.integers(len(held)))])] if held else []

    def _operator(self) -> OperatorId | None:
        free = [o for o, r in self.world.catalog.plan.operators.items() if r.slots]
        return free[int(self.rng.integers(len(free)))] if free else None

    def nothing(self) -> Events:
        return []

    # ---------------------------------------------------------------- mending

    def returning(self) -> Events:
        """Brings back the nodes that are away."""
        return [NodeAdded(0, n) for n in self.world.ground.nodes if not self._has(n.name)]

    def mending(self) -> Events:
        """Makes links, sizes and rates those of the ground again when all nodes are there; nobody is pinned then."""
        catalog, ground = self.world.catalog, self.world.ground
        known = [{g.source, g.target} for g in ground.links]
        strange = [link for link in self._links() if {link.source, link.target} not in known]
        return [
            *(LinkRemoved(0, link.source, link.target, directed=link.directed) for link in strange),
            *(e for link in ground.links for e in self._missing(link)),
            *(self._as_it_was(node) for node in ground.nodes),
            *(RateChanged(0, s.name, s.rate_tps) for s in STREAMS.values()),
            *(PlacementChanged(0, o) for o, r in catalog.plan.operators.items() if r.is_held),
        ]

    @staticmethod
    def _as_it_was(node: Node) -> CapacityChanged:
        tps = node.capacity_tps if np.isfinite(node.capacity_tps) else 1e6
        memory = node.memory_mb if np.isfinite(node.memory_mb) else 1e6
        return CapacityChanged(0, node.name, slots=node.slots, capacity_tps=tps, memory_mb=memory)

    # ---------------------------------------------------------------- looking

    def _any(self, values: Sequence[str]) -> str:
        return str(values[int(self.rng.integers(len(values)))])

    def _has(self, name: str) -> bool:
        return self.world.catalog.topology.find(name) is not None

    def _has_other_end(self, link: Link, name: str) -> bool:
        return self._has(link.source if link.target == name else link.target)

    def _links(self) -> list[Link]:
        topology: Topology = self.world.catalog.topology
        return list(topology.links())


KINDS: dict[Callable[[Moves], Events], float] = {
    Moves.add: 3,
    Moves.remove: 2,
    Moves.demand: 0.3,
    Moves.reconnect: 3,
    Moves.cut: 2,
    Moves.restore_link: 2,
    Moves.node_goes: 1.5,
    Moves.node_comes: 2,
    Moves.capacity: 2,
    Moves.rate: 1,
    Moves.pin: 2,
    Moves.release: 1,
    Moves.nothing: 0.5,
}
"""Every kind of event, and how often it comes."""
