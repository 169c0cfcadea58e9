"""The choice of operators that leave a node which holds too much.

An operator in the middle of a chain that leaves alone sends its data out and back again. So operators leave from the
ends of the chain: those whose readers are all elsewhere (they move on towards the sink), or those whose inputs all are,
on nodes with room (they move back towards the source). The first to go are those that add the least traffic to links
for the room they free. Operators that a user holds on the node leave last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush

from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import mbps
from meander.place.catalog import Catalog


class _Direction(Enum):
    """The direction in which operators of a connected part leave. A part that is left at both ends would send data
    to and fro."""

    ON = "towards the sink"
    BACK = "towards the source"


@dataclass(slots=True)
class _Excess:
    """By how much a node holds too much."""

    slots: int
    load_tps: float
    memory_mb: float

    def __bool__(self) -> bool:
        return self.slots > 0 or self.load_tps > 0 or self.memory_mb > 0

    def less(self, charge: tuple[int, float, float]) -> _Excess:
        return _Excess(self.slots - charge[0], self.load_tps - charge[1], self.memory_mb - charge[2])

    def relief(self, charge: tuple[int, float, float]) -> float:
        """The share of the excess that an operator takes with it, each resource between 0 and 1."""
        pairs = zip((self.slots, self.load_tps, self.memory_mb), charge, strict=True)
        return sum(min(own / over, 1.0) for over, own in pairs if over > 0)


def leaving(catalog: Catalog, node: NodeId) -> list[OperatorId]:
    """Operators that have to leave until the rest fits; those that leave anyway are counted, but not named."""
    ledger, limits, plan = catalog.ledger, catalog.topology.nodes, catalog.plan
    excess = _Excess(
        int(ledger.slots[node]) - int(limits.slots[node]),
        float(ledger.load_tps[node]) - float(limits.capacity_tps[node]),
        float(ledger.memory_mb[node]) - float(limits.memory_mb[node]),
    )
    if not excess:
        return []
    staying: dict[OperatorId, None] = {}
    for operator in sorted(catalog.on_node.get(node, ())):
        if plan[operator].state is OperatorState.PLACED:
            staying[operator] = None
        else:
            excess = excess.less(plan[operator].charge)
    return _Choice(catalog, staying).until_it_fits(excess) if excess else []


@dataclass(slots=True)
class _Choice:
    catalog: Catalog
    staying: dict[OperatorId, None]
    part: dict[OperatorId, OperatorId] = field(default_factory=dict)
    """The connected part of the node's operators that an operator belongs to, named by one of its operators."""
    members: dict[OperatorId, list[OperatorId]] = field(default_factory=dict)
    direction: dict[OperatorId, _Direction] = field(default_factory=dict)
    """By part, where its operators leave to, once the first has."""

    def __post_init__(self) -> None:
        for first in self.staying:
            if first in self.part:
                continue
            self.part[first] = first
            stack = [first]
            while stack:
                for other in self.catalog.plan.neighbours(stack.pop()):
                    if other in self.staying and other not in self.part:
                        self.part[other] = first
                        stack.append(other)
        for operator, part in self.part.items():
            self.members.setdefault(part, []).append(operator)

    def until_it_fits(self, excess: _Excess) -> list[OperatorId]:
        """Takes the first in rank until enough has left. Ranks change with neighbours; old ones are passed over."""
        plan, whole = self.catalog.plan, excess
        rank = {o: self._rank(o, whole) for o in self.staying if whole.relief(plan[o].charge) > 0}
        queue = [(r, o) for o, r in rank.items()]
        heapify(queue)
        left: list[OperatorId] = []
        while excess and queue:
            (first, operator) = heappop(queue)
            if operator not in self.staying or rank[operator] != first or not excess.relief(plan[operator].charge):
                continue
            changed = dict.fromkeys(plan.neighbours(operator))
            part, direction = self.part[operator], self._best(operator)[2]
            if direction is not None and part not in self.direction:
                self.direction[part] = direction
                changed.update(dict.fromkeys(self.members[part]))
            del self.staying[operator]
            left.append(operator)
            excess = excess.less(plan[operator].charge)
            for other in changed:
                if other in self.staying and other in rank:
                    rank[other] = self._rank(other, whole)
                    heappush(queue, (rank[other], other))
        return self._needed(left, excess)

    def _directions(self, operator: OperatorId) -> list[_Direction | None]:
        """Ends of its part at which the operator is; None for one in the middle."""
        plan, chosen = self.catalog.plan, self.direction.get(self.part[operator])
        found: list[_Direction | None] = []
        if chosen is not _Direction.BACK and not any(r in self.staying for r in plan[operator].readers):
            found.append(_Direction.ON)
        if chosen is not _Direction.ON and not any(i in self.staying for i in plan[operator].inputs):
            found.append(_Direction.BACK)
        return found or [None]

    def _room_below(self, operator: OperatorId) -> bool:
        """Whether the nodes of its inputs could take it: otherwise it would not go back, but past this node."""
        plan, placed, ledger = self.catalog.plan, self.catalog.placement.nodes, self.catalog.ledger
        below = [placed.get(i) for i in plan[operator].inputs]
        return all(node is not None and ledger.fits(node, *plan[operator].charge) for node in below)

    def _best(self, operator: OperatorId) -> tuple[int, float, _Direction | None]:
        """The cost of moving the operator (0: at an end, 2: in the middle), the traffic that it adds, and its
        direction."""
        options = [
            (self._badness(operator, direction), self._traffic(operator, direction), direction)
            for direction in self._directions(operator)
        ]
        return min(options, key=lambda option: option[:2])

    def _badness(self, operator: OperatorId, direction: _Direction | None) -> int:
        if direction is None:
            return 2
        return int(
            direction is _Direction.BACK
            and self.part[operator] not in self.direction
            and not self._room_below(operator)
        )

    def _rank(self, operator: OperatorId, whole: _Excess) -> tuple[bool, int, float, float, int]:
        """Smaller leaves earlier: held ones last, those in the middle late, then by traffic per freed resource."""
        record = self.catalog.plan[operator]
        relief = whole.relief(record.charge)
        badness, added, _ = self._best(operator)
        return record.pin is not None, badness, added / relief if added > 0 else added, -relief, operator

    def _traffic(self, operator: OperatorId, direction: _Direction | None) -> float:
        """Mbit/s that its leaving adds to links, as if it went to where its readers, or its inputs, are."""
        plan, record = self.catalog.plan, self.catalog.plan[operator]
        out, added = mbps(record), 0.0
        for below in dict.fromkeys(record.inputs):
            if below in self.staying:
                added += mbps(plan[below])
            elif direction is _Direction.BACK:
                added -= mbps(plan[below])
        for reader in record.readers:
            if reader in self.staying:
                added += out
            elif direction is _Direction.ON:
                added -= out
        return added

    def _needed(self, left: list[OperatorId], excess: _Excess) -> list[OperatorId]:
        """Without those that need not leave after all, because a larger one left later; never out of the middle."""
        plan, kept = self.catalog.plan, dict.fromkeys(left)
        for operator in left:
            slots, load, memory = plan[operator].charge
            back = excess.less((-slots, -load, -memory))
            if not back and not any(n in kept for n in plan.neighbours(operator)):
                del kept[operator]
                excess = back
        return list(kept)
