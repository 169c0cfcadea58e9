"""Escalation: what finds no place is tried again with more of its surroundings, until it fits or nothing is left.

A delta may fail only because something beside it stays where it is. So it is widened in steps: to its neighbours above
and below, further, to its whole shared plan, and to other plans that use the same nodes and links. A wider try is taken
only if it places more and no running operator loses its place; operators that are drawn in may move, which is why steps
are small.

Each step is tried by the mechanism and by `packing`, which finds what fits where a mechanism is greedy. Tries are kept
in mind until a change could help, and tries are paid from a credit that grows with every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    LinkAdded,
    NodeAdded,
    PlacementChanged,
    QueryRemoved,
    RateChanged,
)
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.place.catalog import Catalog
from meander.place.changelog import Delta, delta_of

WIDEST = 1_024
"""Operators in the widest try."""
MOST_CONTENDERS = 160
"""Operators in the widest try that includes other shared plans."""
MOST_CREDIT, EARNED = 40_000, 2_000
"""Operators that may be tried anew: at first, and how many more in each batch."""
SOLVER_PRICE = 4
"""The price of a try by the solver, in ordinary tries."""
ROUNDS = 4
"""Times that the rest of a delta starts over after a part of it was placed."""

HELPFUL = (NodeAdded, LinkAdded, CapacityChanged, RateChanged, PlacementChanged, QueryRemoved)
"""Events after which something may fit that did not before."""

Trial = Callable[[Delta, bool], bool]
"""Tries a delta with the mechanism or, if so told, with the solver; says whether it was better and has been taken."""


@dataclass(frozen=True, slots=True)
class WideningStep:
    """The reach of a try, and the algorithm that makes it."""

    reach: str
    solver: bool


STEPS = (
    WideningStep("itself", True),
    WideningStep("its neighbours", False),
    WideningStep("its neighbours", True),
    WideningStep("operators up to three steps away", False),
    WideningStep("operators up to three steps away", True),
    WideningStep("its shared plan", True),
    WideningStep("its shared plan", False),
    WideningStep("plans that use the same nodes and links", True),
)


@dataclass(slots=True)
class _Memory:
    """The progress of a set of waiting operators, and the count of helpful changes at that time."""

    changes: int
    step: int


@dataclass
class Escalation:
    """Widens deltas that fail. One per engine."""

    catalog: Catalog
    credit: int = MOST_CREDIT
    changes: int = 0
    mistrusted: set[OperatorId] = field(default_factory=set)
    """Operators whose mechanism broke or chose wrongly: that is to be mended, not to be worked around."""
    _tried: dict[frozenset[OperatorId], _Memory] = field(default_factory=dict)
    _failed: set[tuple[frozenset[OperatorId], bool]] = field(default_factory=set)
    """Tries since the last change or success that placed no more operators, of any delta."""

    def heed(self, events: Iterable[ChangeEvent]) -> None:
        """A batch begins: credit grows, and changes that may help make earlier tries worth repeating."""
        self.credit = min(self.credit + EARNED, MOST_CREDIT)
        if any(isinstance(event, HELPFUL) for event in events):
            self.changes += 1
            self._failed.clear()

    def trust(self, operators: Iterable[OperatorId], honest: bool) -> None:
        """Notes whether their mechanism gave these operators an honest answer."""
        if not honest:
            self.mistrusted.update(operators)
        elif self.mistrusted:
            self.mistrusted.difference_update(operators)

    def pursue(self, failed: list[Delta], trial: Trial) -> None:
        """Tries wider and wider for everything that waits, as far as that may help and can be paid."""
        met: set[frozenset[OperatorId]] = set()
        for delta in failed:
            for _ in range(ROUNDS):
                waiting = self._waiting(delta)
                key = frozenset(waiting)
                met.add(key)
                if not waiting or not self._climb(key, waiting, delta.causes, trial):
                    break
        self._tried = {key: memory for key, memory in self._tried.items() if key in met}
        if not self._tried:
            self._failed.clear()

    def _waiting(self, delta: Delta) -> list[OperatorId]:
        plan = self.catalog.plan.operators
        found = [o for o in delta.operators if o in plan and plan[o].state is not OperatorState.PLACED]
        return [] if self.mistrusted.intersection(found) else found

    def _climb(
        self, key: frozenset[OperatorId], waiting: list[OperatorId], causes: tuple[str, ...], trial: Trial
    ) -> bool:
        """Goes through the steps; whether one of them placed something."""
        memory = self._tried.get(key)
        if memory is None or memory.changes != self.changes:
            memory = self._tried[key] = _Memory(self.changes, 0)
            if not (has_room(self.catalog, waiting) and may_run(self.catalog, waiting)):
                memory.step = len(STEPS)
        while memory.step < len(STEPS):
            step = STEPS[memory.step]
            members = self._reach(memory.step, waiting)
            price = len(members) * (SOLVER_PRICE if step.solver else 1)
            if price > self.credit:
                return False
            memory.step += 1
            if not members or (members, step.solver) in self._failed or (not step.solver and members == key):
                continue
            self.credit -= price
            why = (*causes, f"placed anew with {step.reach}, so that operator {waiting[0]} can run")
            if trial(delta_of(self.catalog.plan, members, why if step.reach != "itself" else causes), step.solver):
                self._failed.clear()
                return True
            self._failed.add((members, step.solver))
        return False

    def _reach(self, step: int, waiting: list[OperatorId]) -> frozenset[OperatorId]:
        """The operators of a step; empty when there are too many."""
        match STEPS[step].reach:
            case "itself":
                found = set(waiting)
            case "its neighbours":
                found = self._near(waiting, 1)
            case "operators up to three steps away":
                found = self._near(waiting, 3)
            case "its shared plan":
                found = self._near(waiting, None)
            case _:
                found = self._contenders(waiting)
        return frozenset(found) if len(found) <= WIDEST else frozenset()

    def _near(self, waiting: list[OperatorId], steps: int | None) -> set[OperatorId]:
        """Operators at most so many steps away; without a number all of the shared plan, or the nearest of a large one.

        Sources and sinks stay where they are: only the whole shared plan includes them, so that their edges can take
        other routes, and steps do not lead through them.
        """
        plan = self.catalog.plan
        found, ring, taken = set(waiting), list(waiting), 0
        while ring and (steps is None or taken < steps) and len(found) < WIDEST:
            following: list[OperatorId] = []
            for operator in ring:
                for other in plan.neighbours(operator):
                    waits = plan[other].state is not OperatorState.PLACED
                    if other not in found and (steps is None or waits or plan[other].pin is None):
                        found.add(other)
                        following.append(other)
                        if len(found) == WIDEST:
                            return found
            ring, taken = following, taken + 1
        return found

    def _contenders(self, waiting: list[OperatorId]) -> set[OperatorId]:
        """The shared plan and operators of others that use the same nodes and links, nearest first, up to a number."""
        catalog = self.catalog
        if len(catalog.plan.operators) <= MOST_CONTENDERS:
            return set(catalog.plan.operators)
        found = self._near(waiting, None)
        if len(found) > MOST_CONTENDERS:
            return set()
        for node in self._crossed(found):
            for operator in self._users(node):
                found.add(operator)
                if len(found) == MOST_CONTENDERS:
                    return found
        return found

    def _crossed(self, operators: set[OperatorId]) -> list[NodeId]:
        """Nodes that the operators are on, and those on paths between their pinned ones."""
        placed, plan, topology = self.catalog.placement.nodes, self.catalog.plan, self.catalog.topology
        nodes = dict.fromkeys(placed[o] for o in sorted(operators) if o in placed)
        pins = list(dict.fromkeys(pin for o in sorted(operators) if (pin := plan[o].pin) is not None))[:16]
        for start in pins:
            for goal in pins:
                path = topology.path(start, goal)
                nodes.update(dict.fromkeys(path.nodes if path else ()))
        return [n for n in nodes if topology.is_alive(n)]

    def _users(self, node: NodeId) -> Iterator[OperatorId]:
        catalog = self.catalog
        yield from sorted(catalog.on_node.get(node, ()))
        for arc in catalog.topology.adjacency.leaving(node):
            for edge in sorted(catalog.on_arc.get(arc, ())):
                yield from edge


def has_room(catalog: Catalog, waiting: Iterable[OperatorId]) -> bool:
    """Whether all nodes together have as much left as it takes to run one more of these and all that it reads."""
    plan, ledger, nodes = catalog.plan, catalog.ledger, catalog.topology.nodes
    alive, count = nodes.alive, len(nodes.alive)
    left = [
        float(np.maximum(limit[alive] - used[:count][alive], 0).sum())
        for limit, used in (
            (nodes.slots, ledger.slots),
            (nodes.capacity_tps, ledger.load_tps),
            (nodes.memory_mb, ledger.memory_mb),
        )
    ]
    lacking = set(waiting)
    for last in lacking:
        if any(reader in lacking for reader in plan[last].readers):
            continue
        needed, stack, total = {last}, [last], [0.0, 0.0, 0.0]
        while stack:
            record = plan[stack.pop()]
            total = [have + more for have, more in zip(total, record.charge, strict=True)]
            for below in record.inputs:
                if below not in needed and plan[below].state is not OperatorState.PLACED:
                    needed.add(below)
                    stack.append(below)
        if all(need <= have for need, have in zip(total, left, strict=True)):
            return True
    return False


def may_run(catalog: Catalog, waiting: Iterable[OperatorId]) -> bool:
    """Whether one of these operators leads to a sink, or to an operator that runs, where it could be of use.

    That is so if everything that it needs could reach it, and it could reach that one, if only there were room.
    """
    plan, topology = catalog.plan, catalog.topology
    fed: dict[OperatorId, frozenset[NodeId] | None] = {}

    def feeding(operator: OperatorId) -> frozenset[NodeId] | None:
        """Nodes from which data must reach the operator's readers; None when it cannot even reach the operator."""
        stack = [operator]
        while stack:
            top = stack[-1]
            missing = [i for i in plan[top].inputs if i not in fed]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            runs = plan[top].state is OperatorState.PLACED  # also if something that it read from is gone
            fed[top] = _from(top, [fed[i] for i in plan[top].inputs if not (runs and fed[i] is None)])
        return fed[operator]

    def _from(operator: OperatorId, below: list[frozenset[NodeId] | None]) -> frozenset[NodeId] | None:
        starts: set[NodeId] = set()
        for nodes in below:
            if nodes is None:
                return None
            starts |= nodes
        pin = plan[operator].pin
        if pin is None:
            return frozenset(starts)
        if not topology.is_alive(pin) or not all(topology.reachable(s, pin) for s in starts):
            return None
        return frozenset({pin})

    seen: set[OperatorId] = set()
    stack = list(waiting)
    while stack:
        operator = stack.pop()
        if operator in seen:
            continue
        seen.add(operator)
        readers = plan[operator].readers
        starts = feeding(operator)
        if starts is not None and (not readers or any(_waited_for(catalog, r, starts) for r in readers)):
            return True
        stack.extend(readers)
    return False


def _waited_for(catalog: Catalog, reader: OperatorId, starts: Iterable[NodeId]) -> bool:
    """Whether a reader runs, beside sources that are gone, say, and could be reached."""
    record = catalog.plan[reader]
    if record.state is not OperatorState.PLACED or not record.readers:
        return False
    pin = record.pin
    return pin is None or all(catalog.topology.reachable(start, pin) for start in starts)
