"""The change log: which parts of the global query plan a change made invalid, and how they group into deltas.

An entry names operators that are not placed (or no longer rightly placed) and edges whose path broke. Entries depend on
each other when they share, or border on, an operator that is not placed; dependent entries are merged by union-find
into deltas, which can then be amended in any order and at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from meander.model.global_plan import GlobalPlan, OperatorState
from meander.model.ids import OperatorId
from meander.model.placement import Edge


@dataclass(frozen=True, slots=True)
class Entry:
    """A sub-graph that one change made invalid, and why."""

    operators: frozenset[OperatorId]
    edges: frozenset[Edge]
    cause: str


@dataclass(slots=True)
class Delta:
    """Merged entries: the smallest sub-plan to amend. Everything that borders on it stays where it is."""

    operators: tuple[OperatorId, ...]
    """Operators to place, re-place or remove, in dataflow order."""
    edges: tuple[Edge, ...]
    """Edges between operators that stay, whose path broke."""
    boundary: tuple[OperatorId, ...]
    """Operators that border on it and stay put."""
    causes: tuple[str, ...]

    @property
    def touched(self) -> int:
        """Operators that amending looks at."""
        ends = {o for edge in self.edges for o in edge}
        return len(self.operators) + len(ends.union(self.boundary).difference(self.operators))


@dataclass(slots=True)
class ChangeLog:
    """Entries of the current batch, and those that failed before and wait for another try."""

    entries: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)

    def write(self, operators: Iterable[OperatorId], edges: Iterable[Edge], cause: str) -> None:
        entry = Entry(frozenset(operators), frozenset(edges), cause)
        if entry.operators or entry.edges:
            self.entries.append(entry)

    def take(self, plan: GlobalPlan, *, retry: bool) -> list[Entry]:
        """All entries to work on now; with `retry` the waiting ones as well, otherwise only those they border on."""
        fresh, self.entries = self.entries, []
        waiting, self.waiting = self.waiting, []
        if retry or not waiting:
            return waiting + fresh
        near = {n for e in fresh for o in e.operators if o in plan.operators for n in (o, *plan.neighbours(o))}
        for entry in waiting:
            (fresh if entry.operators & near else self.waiting).append(entry)
        return fresh


def deltas(plan: GlobalPlan, entries: Iterable[Entry]) -> list[Delta]:
    """Merges dependent entries. Near-linear in the size of the entries."""
    groups = _Groups()
    edges: dict[Edge, str] = {}
    causes: dict[OperatorId, list[str]] = {}
    for entry in entries:
        invalid = [o for o in entry.operators if o in plan.operators and _is_invalid(plan, o)]
        for operator in invalid:
            groups.join(invalid[0], operator)
            causes.setdefault(operator, []).append(entry.cause)
            for neighbour in plan.neighbours(operator):
                if _is_invalid(plan, neighbour):
                    groups.join(operator, neighbour)
        edges.update((e, entry.cause) for e in entry.edges if _exists(plan, e))
    loose: list[tuple[Edge, str]] = []
    for edge, cause in edges.items():
        ends = [o for o in edge if o in groups]
        if not ends:
            loose.append((edge, cause))
    found = [_delta(plan, members, causes) for members in groups.sets()]
    return found + [Delta((), (edge,), edge, (cause,)) for edge, cause in loose]


def _is_invalid(plan: GlobalPlan, operator: OperatorId) -> bool:
    return plan[operator].state is not OperatorState.PLACED


def _exists(plan: GlobalPlan, edge: Edge) -> bool:
    return edge[1] in plan.operators and edge[0] in plan[edge[1]].inputs


def _delta(plan: GlobalPlan, members: set[OperatorId], causes: dict[OperatorId, list[str]]) -> Delta:
    boundary = {n: None for o in members for n in plan.neighbours(o) if n not in members}
    why = dict.fromkeys(c for o in members for c in causes.get(o, ()))
    return Delta(tuple(_in_order(plan, members)), (), tuple(boundary), tuple(why))


def _in_order(plan: GlobalPlan, members: set[OperatorId]) -> Iterator[OperatorId]:
    """Members such that inputs come before readers."""
    done: set[OperatorId] = set()
    for start in sorted(members):
        stack = [(start, False)]
        while stack:
            operator, ready = stack.pop()
            if ready:
                yield operator
            elif operator not in done:
                done.add(operator)
                stack.append((operator, True))
                stack.extend((i, False) for i in reversed(plan[operator].inputs) if i in members and i not in done)


class _Groups:
    """Disjoint sets with path halving."""

    def __init__(self) -> None:
        self._parent: dict[OperatorId, OperatorId] = {}

    def __contains__(self, item: OperatorId) -> bool:
        return item in self._parent

    def find(self, item: OperatorId) -> OperatorId:
        parent = self._parent
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, a: OperatorId, b: OperatorId) -> None:
        self._parent[self.find(a)] = self.find(b)

    def sets(self) -> list[set[OperatorId]]:
        found: dict[OperatorId, set[OperatorId]] = {}
        for item in self._parent:
            found.setdefault(self.find(item), set()).add(item)
        return list(found.values())
