"""Sets of operators that run together: maximal, connected, at one place, and never in a cycle.

No tuple goes in a cycle, but sets can: data leaves a node and comes back beside what stayed there, so that two sets
read from each other. As fragments they would wait for each other's watermarks and markers for ever. Such a component of
sets is cut: its operators stay together only where equally many steps from place to place lie before them. Every
channel inside it then leads from fewer steps to more, and no cycle is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId

Group = frozenset[OperatorId]
T = TypeVar("T", bound=Hashable)


class FragmentGrouping:
    """The sets of a plan whose operators have places; looks no further than it is asked to."""

    def __init__(self, plan: GlobalPlan, place_of: Callable[[OperatorId], Hashable | None]) -> None:
        """`place_of` says None for operators that do not run."""
        self.plan, self.place_of = plan, place_of
        self._groups: dict[OperatorId, Group] = {}

    def at(self, operator: OperatorId) -> Group:
        """All operators at its place to which it is connected there."""
        found = self._groups.get(operator)
        if found is None:
            place = self.place_of(operator)
            found = self._connected(operator, lambda o: self.place_of(o) == place)
            self._groups.update((o, found) for o in found)
        return found

    def _connected(self, start: OperatorId, belongs: Callable[[OperatorId], bool]) -> Group:
        members, stack = {start}, [start]
        while stack:
            for neighbour in self.plan.neighbours(stack.pop()):
                if neighbour not in members and belongs(neighbour):
                    members.add(neighbour)
                    stack.append(neighbour)
        return frozenset(members)

    def around(self, starts: Iterable[OperatorId]) -> list[Group]:
        """The sets of some operators, and of all that are in a component with them."""
        found = dict.fromkeys(map(self.at, starts))
        between = [g for g in found if self._is_read_from(g)]
        for component in strongly_connected(between, self._ahead) if between else ():
            if not component.isdisjoint(found):
                for group in component:
                    found.pop(group, None)
                found.update(dict.fromkeys(self._cut(frozenset().union(*component))))
        return list(found)

    def _is_read_from(self, group: Group) -> bool:
        """Whether it reads from others: one that does not is in no component."""
        plan, place_of = self.plan, self.place_of
        return any(i not in group and place_of(i) is not None for o in group for i in plan[o].inputs)

    def _ahead(self, group: Group) -> Iterator[Group]:
        for operator in group:
            for reader in self.plan[operator].readers:
                if reader not in group and self.place_of(reader) is not None:
                    yield self.at(reader)

    def _cut(self, operators: Group) -> Iterator[Group]:
        """Connected operators at one place with equally many steps from place to place before them."""
        steps = self._steps(operators)
        key = {o: (self.place_of(o), steps[o]) for o in operators}
        left = dict.fromkeys(sorted(operators))
        while left:
            first = next(iter(left))
            found = self._connected(first, lambda o, mine=key[first]: key.get(o) == mine)  # type: ignore[misc]
            for operator in found:
                del left[operator]
            yield found

    def _steps(self, operators: Group) -> dict[OperatorId, int]:
        """The number of changes of place on the longest path to each operator, inside of these."""
        steps: dict[OperatorId, int] = {}
        stack = sorted(operators, reverse=True)
        while stack:
            operator = stack[-1]
            inputs = [i for i in self.plan[operator].inputs if i in operators]
            waiting = [i for i in inputs if i not in steps]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            here = self.place_of(operator)
            steps[operator] = max((steps[i] + (self.place_of(i) != here) for i in inputs), default=0)
        return steps


def strongly_connected(starts: Iterable[T], successors: Callable[[T], Iterable[T]]) -> list[set[T]]:
    """Largest sets of things that all lead to each other, of two things at least, as far as they are reached.

    >>> cycles([1], {1: [2, 4], 2: [3], 3: [1], 4: []}.__getitem__)
    [{1, 2, 3}]
    """
    number: dict[T, int] = {}
    lowest: dict[T, int] = {}
    open_: dict[T, None] = {}
    found: list[set[T]] = []
    for start in starts:
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        open_[start] = None
        stack = [(start, iter(successors(start)))]
        while stack:
            here, ahead = stack[-1]
            for there in ahead:
                if there not in number:
                    number[there] = lowest[there] = len(number)
                    open_[there] = None
                    stack.append((there, iter(successors(there))))
                    break
                if there in open_:
                    lowest[here] = min(lowest[here], number[there])
            else:
                stack.pop()
                if stack:
                    before = stack[-1][0]
                    lowest[before] = min(lowest[before], lowest[here])
                if lowest[here] == number[here]:
                    members: set[T] = set()
                    while here not in members:
                        members.add(open_.popitem()[0])
                    if len(members) > 1:
                        found.append(members)
    return found
