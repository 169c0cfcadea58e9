"""A running join that is cut into parts, and cut anew while it runs: from parts to reconfigurations of a running loop.

A change of the cut is a change of the plan like any other: the loop places and deploys it, as a whole, when all of it
has a place. Retired parts are let go when nothing is left in their memory that arrived before they retired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from meander.coordinator.loop import Applied, PlacementLoop
from meander.model.events import ChangeEvent, NodeAdded, NodeRemoved
from meander.model.ids import NodeId
from meander.place.nova.queries.wiring import JoinPart, Running, Wiring
from meander.run.step.stage_scheduler import STATES_PER_STAGE

NEVER, EVER = -(1 << 62), 1 << 62


@dataclass(slots=True)
class _Retired:
    """A retired part on its way out."""

    running: Running
    since: Applied | None
    """The change with which it retired; None if that was before this process."""
    horizon: int | None = None
    """The newest bucket of its memory when it had retired."""


class Repartitioning:
    """One query's parts on one loop."""

    def __init__(self, loop: PlacementLoop, wiring: Wiring) -> None:
        self.loop, self.wiring = loop, wiring
        self._retired = [_Retired(r, None) for r in wiring.retired]

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
        self.wiring.change(parts, cause, [*self._spent(), *never_ran])
        applied = self.loop.apply(events)
        known = {id(r.running): r for r in self._retired}
        self._retired = [known.get(id(r)) or _Retired(r, applied) for r in self.wiring.retired]
        return applied

    def poll(self) -> None:
        """Lets retired parts go that are of no use any more. The loop is polled by its owner."""
        for retired in self._retired:
            if retired.horizon is None and self._has_retired(retired):
                buckets = self._buckets(retired.running)
                retired.horizon = None if buckets is None else max(buckets, default=NEVER)
        if not self.loop.deployer.has_open_changes and self._spent():
            self.apply([], self.wiring.active, "retired parts hold nothing any more")

    def _has_retired(self, retired: _Retired) -> bool:
        """Whether it has seen the last tuple that is not marked."""
        return retired.since.ended is not None if retired.since else not self.loop.deployer.has_open_changes

    def _spent(self) -> list[Running]:
        """Retired parts whose memory holds nothing that arrived before they retired."""
        found: list[Running] = []
        for retired in self._retired:
            buckets = None if retired.horizon is None else self._buckets(retired.running)
            if retired.horizon is not None and buckets is not None and min(buckets, default=EVER) > retired.horizon:
                found.append(retired.running)
        return found

    def _buckets(self, running: Running) -> list[int] | None:
        """The times that a part's memory is about; None while it is on its way from one fragment to another."""
        assert running.operator is not None
        host = self.loop.host
        for fragment, installed in host.routing.fragments.items():
            for stage, operator in installed.bound.stateful.items():
                if operator == running.operator and fragment == self.loop.deployer.deployment.owner.get(operator):
                    tables = range(len(installed.bound.template.stages[stage].states))
                    keys = [stage * STATES_PER_STAGE + t for t in tables]
                    return [b for key in keys for b in host.store.state.buckets(fragment, key)]
        return None

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
