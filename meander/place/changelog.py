"""The change log: the parts of the global query plan that a change made invalid, and their grouping into deltas.

An entry names operators that are not placed (or no longer rightly placed) and edges whose path broke. Entries depend on
each other when they share, or border on, an operator that is not placed; dependent entries are merged by union-find
into deltas, which can then be amended in any order and at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from meander.model.global_plan import GlobalPlan, OperatorState
from meander.model.ids import OperatorId
from meander.model.placement import Edge

_PLACED = OperatorState.PLACED


@dataclass(frozen=True, slots=True)
class Entry:
    """A sub-graph that one change made invalid, and why."""

    operators: frozenset[OperatorId]
    edges: frozenset[Edge]
    cause: str
    optional: bool = False
    """The operators could also stay where they are, if moving gains nothing."""


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
    optional: bool = False
    """All operators could also stay where they are."""

    @property
    def touched(self) -> int:
        """Operators that amending looks at."""
        if not self.edges:
            return len(self.operators) + len(self.boundary)
        ends = {o for edge in self.edges for o in edge}
        return len(self.operators) + len(ends.union(self.boundary).difference(self.operators))


@dataclass(slots=True)
class ChangeLog:
    """Entries of the current batch, and those that failed before and wait for another try."""

    entries: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)

    def write(
        self, operators: Iterable[OperatorId], edges: Iterable[Edge], cause: str, *, optional: bool = False
    ) -> None:
        entry = Entry(frozenset(operators), frozenset(edges), cause, optional)
        if entry.operators or entry.edges:
            self.entries.append(entry)

    def tidy(self, plan: GlobalPlan) -> None:
        """Drops placed and removed operators from the waiting entries, and names every operator once."""
        seen: set[OperatorId] = set()
        kept: list[Entry] = []
        for entry in self.waiting:
            rest = {o for o in entry.operators - seen if (r := plan.operators.get(o)) and r.state is not _PLACED}
            seen |= rest
            if rest or entry.edges:
                kept.append(Entry(frozenset(rest), entry.edges, entry.cause))
        self.waiting = kept

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


def delta_of(plan: GlobalPlan, members: Iterable[OperatorId], causes: tuple[str, ...]) -> Delta:
    """A delta of exactly these operators."""
    found = sorted(members)
    return replace(_delta(plan, found, {o: [] for o in found}), causes=causes)


def deltas(plan: GlobalPlan, entries: Sequence[Entry]) -> list[Delta]:
    """Merges dependent entries. Near-linear in the size of the entries."""
    groups = _Groups()
    edges: dict[Edge, str] = {}
    causes: dict[OperatorId, list[str]] = {}
    firm: set[OperatorId] = set()
    operators, placed = plan.operators, OperatorState.PLACED
    some_optional = any(entry.optional for entry in entries)
    for entry in entries:
        first: OperatorId | None = None
        for operator in entry.operators:
            record = operators.get(operator)
            if record is None or record.state is placed:
                continue
            first = operator if first is None else first
            groups.join(first, operator)
            causes.setdefault(operator, []).append(entry.cause)
            if some_optional and not entry.optional:
                firm.add(operator)
            for upstream in record.inputs:
                if operators[upstream].state is not placed:
                    groups.join(operator, upstream)
            for reader in record.readers:
                if operators[reader].state is not placed:
                    groups.join(operator, reader)
        edges.update((e, entry.cause) for e in entry.edges if _exists(plan, e))
    found = [_delta(plan, members, causes) for members in groups.sets()]
    if some_optional:
        found = [d if firm.intersection(d.operators) else replace(d, optional=True) for d in found]
    loose = ((edge, cause) for edge, cause in edges.items() if edge[0] not in groups and edge[1] not in groups)
    return found + [Delta((), (edge,), edge, (cause,)) for edge, cause in loose]


def _exists(plan: GlobalPlan, edge: Edge) -> bool:
    return edge[1] in plan.operators and edge[0] in plan[edge[1]].inputs


def _delta(plan: GlobalPlan, members: list[OperatorId], causes: dict[OperatorId, list[str]]) -> Delta:
    """A delta of these operators. Those that no entry names were drawn in because they are not placed either."""
    if len(members) == 1:
        record = plan[members[0]]
        return Delta((record.id,), (), (*dict.fromkeys(record.inputs), *record.readers), tuple(causes[record.id]))
    inside = set(members)
    boundary: dict[OperatorId, None] = {}
    for operator in members:
        record = plan[operator]
        boundary.update([(n, None) for n in record.inputs if n not in inside])
        boundary.update([(n, None) for n in record.readers if n not in inside])
    why = dict.fromkeys([c for o in members for c in causes.get(o, ())])
    return Delta(tuple(_in_order(plan, inside)), (), tuple(boundary), tuple(why))


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
        above = parent.setdefault(item, item)
        while above != item:
            parent[item] = above = parent[above]
            item, above = above, parent[above]
        return item

    def join(self, a: OperatorId, b: OperatorId) -> None:
        root = self.find(a)
        if a != b:
            self._parent[root] = self.find(b)

    def sets(self) -> list[list[OperatorId]]:
        found: dict[OperatorId, list[OperatorId]] = {}
        for item in self._parent:
            found.setdefault(self.find(item), []).append(item)
        return list(found.values())
