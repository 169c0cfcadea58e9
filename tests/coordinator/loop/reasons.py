"""Whether the reason is true for which an operator waits, found out without the code that gave it.

Paths and room are searched anew, breadth first, on what the topology and the catalog say now. A reason may speak of
what its operator would have taken: "no path with so much left" is true as well when a path is there, but the operator's
other edges need it. While neighbours of the operator wait as well, a path may be one from where they would have been.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, permutations

from meander.model.global_plan import PlanOperator
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Sink
from meander.place.catalog import Catalog
from tests.coordinator.loop.catalog_checks import mbps_of

Flow = tuple[NodeId, NodeId, float]
"""From where, where to, Mbit/s."""
MOST_ORDERS = 24


def reason_faults(catalog: Catalog) -> list[str]:
    """Operators that wait for a reason that does not hold."""
    found = []
    for operator, record in catalog.plan.operators.items():
        if operator not in catalog.placement.nodes:
            problem = _Waiting(catalog, record).problem()
            if problem is not None:
                found.append(f"operator {operator} waits because '{record.reason}', but {problem}")
    return found


def stuck_faults(catalog: Catalog, *, only_ends: bool = False) -> list[str]:
    """Operators that wait although they could be placed as they are, with everything else where it is.

    With `only_ends`, as for `producer_consumer`, no nodes count but those of producers and consumers.
    """
    found = []
    for operator, record in catalog.plan.operators.items():
        if operator not in catalog.placement.nodes:
            ends = _ends(catalog, operator) if only_ends else None
            places = _Waiting(catalog, record).places()
            node = next((n for n in places if ends is None or n in ends), None)
            if node is not None:
                name = catalog.topology.name(node)
                found.append(f"operator {operator} waits because '{record.reason}', but could be on {name}")
    return found


def _ends(catalog: Catalog, operator: OperatorId) -> set[NodeId]:
    """Nodes of the nearest pinned operators that lead to this one or that it leads to."""
    plan, found = catalog.plan, set[NodeId]()
    for towards in (lambda o: plan[o].inputs, lambda o: plan[o].readers):
        stack, seen = [operator], set[OperatorId]()
        while stack:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            pin = plan[top].pin
            if pin is not None and top != operator:
                found.add(pin)
            else:
                stack.extend(towards(top))
    return found


class _Waiting:
    """One operator that waits."""

    def __init__(self, catalog: Catalog, record: PlanOperator) -> None:
        self.catalog, self.record, self.topology = catalog, record, catalog.topology
        self.nodes = catalog.placement.nodes

    def problem(self) -> str | None:
        """What contradicts the reason."""
        reason = self.record.reason or ""
        for pattern, check in self._checks():
            found = re.fullmatch(pattern, reason)
            if found:
                return check(*found.groups())
        return "nobody knows this reason"

    def _checks(self) -> Sequence[tuple[str, Callable[..., str | None]]]:
        return (
            (r"its node (\S+) is gone", self._pin_gone),
            (r"its node (\S+) has no room for it", self._pin_full),
            (r"its input,? operator (\d+),? is not placed", self._input_waits),
            (r"its reader, operator (\d+), is not placed", self._reader_waits),
            (r"nothing that reads its output is placed", self._no_reader),
            (r"node (\S+), which it (?:reads from|leads to), is gone", self._node_gone),
            (r"no path leads from (\S+) to (\S+)", self._no_path),
            (r"no path with (\S+) Mbit/s left leads from (\S+) to (\S+)", self._no_bandwidth),
            (r"no room for (\d+) slots(?:, (\S+) MB)? and (\S+) tuples/s(.*)", self._no_room),
        )

    def _pin_gone(self, name: str) -> str | None:
        if self.record.pin is None or self.topology.name(self.record.pin) != name:
            return "it is not pinned there"
        return f"{name} is there" if self.topology.is_alive(self.record.pin) else None

    def _pin_full(self, name: str) -> str | None:
        if self.record.pin is None or self.topology.name(self.record.pin) != name:
            return "it is not pinned there"
        return f"{name} has room" if self._fits(self.record.pin) else None

    def _input_waits(self, number: str) -> str | None:
        operator = OperatorId(int(number))
        if operator not in self.record.inputs:
            return f"it does not read operator {number}"
        return f"operator {number} is placed" if operator in self.nodes else None

    def _reader_waits(self, number: str) -> str | None:
        if OperatorId(int(number)) not in self.record.readers:
            return f"operator {number} does not read it"
        return self._no_reader()

    def _no_reader(self) -> str | None:
        placed = [r for r in self.record.readers if r in self.nodes]
        return f"operators {placed} read it" if placed else None

    def _node_gone(self, name: str) -> str | None:
        return f"{name} is there" if self.topology.find(name) is not None else None

    def _no_path(self, start: str, goal: str) -> str | None:
        ends = self.topology.find(start), self.topology.find(goal)
        path = None if ends[0] is None or ends[1] is None else self._search(ends[0], ends[1], 0.0, {})
        return None if path is None or not self._is_alone() else f"there is a path: {self._names(path)}"

    def _no_bandwidth(self, mbps: str, start: str, goal: str) -> str | None:
        """Also true if the path is there, but not beside what the operator's other edges take."""
        ends = self.topology.find(start), self.topology.find(goal)
        if ends[0] is None or ends[1] is None or not self._is_alone():
            return None
        path = self._search(ends[0], ends[1], float(mbps), {})
        here = {ends[1]: [self.nodes[i] for i in self.record.inputs], ends[0]: self._ends()}
        places = [node for node, others in here.items() if (ends[0] if node == ends[1] else ends[1]) in others]
        if path is None or not places or any(not self._always_routed(node) for node in places):
            return None
        return f"there is a path: {self._names(path)}"

    def _no_room(self, slots: str, memory: str | None, tps: str, where: str) -> str | None:
        if (int(slots), float(tps)) != (self.record.slots, float(f"{self.record.load_tps:g}")):
            return f"it needs {self.record.slots} slots and {self.record.load_tps:g} tuples/s"
        if memory is not None and float(memory) != float(f"{self.record.memory_mb:g}"):
            return f"it needs {self.record.memory_mb:g} MB"
        named = re.match(r" on ([^ ]+(?:, [^ ]+)*)", where)
        nodes = [self.topology.find(name) for name in named[1].split(", ")] if named else []
        free = [n for n in nodes if n is not None and self._fits(n)]
        if "connected node" in where and not free and not self._inputs_wait():
            free = list(self.places())
        return f"{self._names(free)} has room" if free else None

    # ---------------------------------------------------------------- what there is

    def places(self) -> Iterator[NodeId]:
        """Nodes with room on which all its edges find their paths at the same time."""
        if not self._inputs_wait() and (self._ends() or isinstance(self.record.spec, Sink)):
            wanted = self.topology.ids() if self.record.pin is None else [self.record.pin]
            yield from (n for n in wanted if self._fits(n) and self._may_be_routed(n))

    def _inputs_wait(self) -> bool:
        return any(i not in self.nodes for i in self.record.inputs)

    def _is_alone(self) -> bool:
        """Whether all its neighbours are placed."""
        return not self._inputs_wait() and all(r in self.nodes for r in self.record.readers)

    def _ends(self) -> list[NodeId]:
        return [self.nodes[r] for r in self.record.readers if r in self.nodes]

    def _may_be_routed(self, node: NodeId) -> bool:
        return any(self._routed(order) for order in self._orders(node))

    def _always_routed(self, node: NodeId) -> bool:
        return all(self._routed(order) for order in self._orders(node))

    def _orders(self, node: NodeId) -> Iterator[tuple[Flow, ...]]:
        own = mbps_of(self.record)
        flows = [(self.nodes[i], node, mbps_of(self.catalog.plan[i])) for i in dict.fromkeys(self.record.inputs)]
        flows += [(node, end, own) for end in self._ends()]
        return islice(permutations(flows), MOST_ORDERS)

    def _routed(self, flows: tuple[Flow, ...]) -> bool:
        """Whether each finds a path beside those before it."""
        taken: dict[int, float] = {}
        for start, goal, need in flows:
            path = self._search(start, goal, need, taken)
            if path is None:
                return False
            for arc in path:
                taken[arc] = taken.get(arc, 0.0) + need
        return True

    def _names(self, found: Sequence[int]) -> str:
        return ", ".join(str(n) for n in found)

    def _fits(self, node: NodeId) -> bool:
        nodes, ledger = self.topology.nodes, self.catalog.ledger
        load, memory = (self.record.load_tps, self.record.memory_mb) if self.record.slots else (0.0, 0.0)
        enough = ledger.slots[node] + self.record.slots <= nodes.slots[node]
        enough &= ledger.load_tps[node] + load <= nodes.capacity_tps[node]
        enough &= ledger.memory_mb[node] + memory <= nodes.memory_mb[node]
        return bool(nodes.alive[node] and enough)

    def _search(self, start: NodeId, goal: NodeId, mbps: float, taken: dict[int, float]) -> list[int] | None:
        """The arcs of a path that have so much left beside what is taken."""
        if not (self.topology.is_alive(start) and self.topology.is_alive(goal)):
            return None
        arcs, used = self.topology.arcs, self.catalog.ledger.mbps
        before: dict[NodeId, int] = {}
        queue = deque([start])
        while queue and goal not in before and goal != start:
            for arc in self.topology.adjacency.leaving(queue.popleft()):
                tip = NodeId(int(arcs.tip[arc]))
                enough = used[arc] + taken.get(arc, 0.0) + mbps <= arcs.bandwidth_mbps[arc]
                if enough and tip not in before and tip != start:
                    before[tip] = arc
                    queue.append(tip)
        if goal != start and goal not in before:
            return None
        path: list[int] = []
        while goal != start:
            path.append(before[goal])
            goal = NodeId(int(arcs.tail[before[goal]]))
        return path[::-1]
