"""The difference between two catalogs: the one contract between placing and deploying.

The catalog records where an operator was, and which route an edge had, when either is first touched in a batch. At the
end of the batch the record is compared with the catalog. So the difference is whole, whichever code changed the catalog
and however often, and its cost grows with the changes only. The deployer makes what the difference names like the
catalog again; everything else is like it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meander.model.global_plan import GlobalPlan
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge, Placement
from meander.model.topology.path_cache import Path


@dataclass(frozen=True)
class Difference:
    """Operators and edges that changed; `waiting` has the reasons why some have no place."""

    gained: Mapping[OperatorId, NodeId] = field(default_factory=dict)
    """Operators that had no place, or did not exist, and where they are now."""
    lost: Mapping[OperatorId, NodeId] = field(default_factory=dict)
    """Operators that have no place any more, and where they were."""
    moved: Mapping[OperatorId, tuple[NodeId, NodeId]] = field(default_factory=dict)
    """Operators on another node: from, to."""
    removed: Mapping[OperatorId, NodeId | None] = field(default_factory=dict)
    """Operators that left the plan, and where they were; None for those that waited for a place."""
    waiting: Mapping[OperatorId, str] = field(default_factory=dict)
    """Operators that were looked at and have no place now, with the reason: those that lost it among them."""
    rerouted: Mapping[Edge, Path | None] = field(default_factory=dict)
    """Edges whose route is another one now: the new one, None when there is none any more."""

    @property
    def operators(self) -> list[OperatorId]:
        """Operators that came, went or moved, or lost their place."""
        return [*self.gained, *self.lost, *self.moved, *self.removed]

    def __bool__(self) -> bool:
        return bool(self.operators or self.rerouted)


class Recorder:
    """The places of operators and edges when they were first touched since the last difference was taken."""

    def __init__(self) -> None:
        self._nodes: dict[OperatorId, NodeId | None] = {}
        self._routes: dict[Edge, Path | None] = {}

    def operator(self, operator: OperatorId, node: NodeId | None) -> None:
        """An operator is about to be put elsewhere, lifted or dropped; `node` is where it is."""
        self._nodes.setdefault(operator, node)

    def route(self, edge: Edge, path: Path | None) -> None:
        """An edge is about to get another route, or to lose the one that it has."""
        self._routes.setdefault(edge, path)

    @property
    def touched(self) -> tuple[Iterable[OperatorId], Iterable[Edge]]:
        """Operators and edges that were touched since the last difference was taken."""
        return self._nodes, self._routes

    def take(self, plan: GlobalPlan, placement: Placement) -> Difference:
        """The difference to the present state; the next one begins here."""
        nodes, self._nodes = self._nodes, {}
        routes, self._routes = self._routes, {}
        gained: dict[OperatorId, NodeId] = {}
        lost: dict[OperatorId, NodeId] = {}
        moved: dict[OperatorId, tuple[NodeId, NodeId]] = {}
        removed: dict[OperatorId, NodeId | None] = {}
        waiting: dict[OperatorId, str] = {}
        for operator, before in nodes.items():
            record, now = plan.operators.get(operator), placement.nodes.get(operator)
            if record is None:
                removed[operator] = before
                continue
            if now is None:
                waiting[operator] = record.reason or "no reason known"
            if before is None and now is not None:
                gained[operator] = now
            elif before is not None and now is None:
                lost[operator] = before
            elif before is not None and now is not None and before != now:
                moved[operator] = before, now
        rerouted = {edge: placement.routes.get(edge) for edge, path in routes.items()}
        rerouted = {edge: path for edge, path in rerouted.items() if path != routes[edge]}
        return Difference(gained, lost, moved, removed, waiting, rerouted)
