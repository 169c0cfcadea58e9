"""A running join that is cut into parts by its caller, and cut anew while it runs: from parts to reconfigurations.

A change of the cut is a change of the plan like any other: the loop places and deploys it, as a whole, when all of it
has a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from meander.coordinator.loop.applied import Applied
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.loop.retired_parts import RetiredParts
from meander.model.events import ChangeEvent, NodeAdded, NodeRemoved
from meander.model.ids import NodeId
from meander.place.nova.queries.join_parts import JoinPart
from meander.place.nova.queries.wiring import Wiring


class Repartitioning:
    """One query's parts on one loop."""

    def __init__(self, loop: PlacementLoop, wiring: Wiring) -> None:
        self.loop, self.wiring = loop, wiring
        self._retired = RetiredParts(loop.host, loop.deployer)
        self._retired.note(wiring.retired)

    def start(self, parts: Iterable[JoinPart]) -> Applied:
        """Adds the query, cut like this."""
        self.wiring.start(parts)
        return self.loop.apply([])

    def apply(self, events: Sequence[ChangeEvent], parts: Sequence[JoinPart], cause: str) -> Applied:
        """Applies events and cuts the join like this, at once: parts leave a node with which they would be gone."""
        gone = self._gone(events)
        parts = [replace(p, node=self.wiring.sink_node) if gone(p.node) else p for p in parts]
        self._leave(gone, parts)
        owner = self.loop.deployer.deployment.owner
        never_ran = [r for r in self.wiring.parts if r.operator is not None and r.operator not in owner]
        self.wiring.change(parts, cause, [*self._retired.spent(), *never_ran])
        applied = self.loop.apply(events)
        self._retired.note(self.wiring.retired, lambda: applied.ended is not None)
        return applied

    def poll(self) -> None:
        """Lets retired parts go that are of no use any more. The loop is polled by its owner."""
        if self._retired.look():
            self.apply([], self.wiring.active, "retired parts hold nothing any more")

    def _gone(self, events: Sequence[ChangeEvent]) -> Callable[[NodeId], bool]:
        """Whether a node is not there once the events have happened."""
        topology = self.loop.catalog.topology
        removed = {e.node for e in events if isinstance(e, NodeRemoved)}
        added = {e.node.name for e in events if isinstance(e, NodeAdded)}
        return lambda n: topology.name(n) in removed or not (topology.is_alive(n) or topology.name(n) in added)

    def _leave(self, gone: Callable[[NodeId], bool], parts: Sequence[JoinPart]) -> None:
        """Parts on nodes that are gone go where one of their successors is, or to the sink."""
        for running in self.wiring.parts:
            part = running.part
            if gone(part.node):
                heirs = (p.node for p in parts if (p.left, p.right) == (part.left, part.right))
                self.wiring.move(running, NodeId(next(heirs, self.wiring.sink_node)))
