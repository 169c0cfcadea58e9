"""Retention of the query log: which arrivals and departures of queries are kept, because running queries depend on
them.

Operators get their numbers in the order in which queries come, and a query uses operators of earlier ones. So a stopped
query can be forgotten once no running query uses its operators, if the running ones are told their first number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from meander.model.ids import OperatorId

FOR_EVER = 2**62


@dataclass(frozen=True, slots=True)
class QueryArrival:
    """One arrival of a query: its place in the log, the number its own operators begin at, and all that served it."""

    position: int
    batch: int
    first: int
    made: frozenset[OperatorId]
    used: frozenset[OperatorId]


@dataclass(slots=True)
class Retention:
    """Is told of everything in the log, in its order."""

    _arrivals: dict[int, QueryArrival] = field(default_factory=dict)
    """By position in the log."""
    _goings: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By position of the arrival: position and batch of the going."""
    _here: dict[str, int] = field(default_factory=dict)
    _makers: dict[OperatorId, QueryArrival] = field(default_factory=dict)
    _users: dict[OperatorId, list[QueryArrival]] = field(default_factory=dict)

    def came(self, query: str, arrival: QueryArrival) -> None:
        self._arrivals[arrival.position] = arrival
        self._here[query] = arrival.position
        self._makers.update(dict.fromkeys(arrival.made, arrival))
        for operator in arrival.used:
            self._users.setdefault(operator, []).append(arrival)

    def went(self, query: str, position: int, batch: int) -> None:
        self._goings[self._here.pop(query)] = (position, batch)

    def needed(self, running: Collection[OperatorId]) -> Mapping[int, int | None]:
        """Positions that must stay, with the first number of those where a query came.

        Needed are queries that are here, those whose operators run, and those that needed ones depend on.
        """
        stack = [self._arrivals[p] for p in self._here.values()]
        stack += [self._makers[o] for o in running if o in self._makers]
        kept: dict[int, QueryArrival] = {}
        while stack:
            arrival = stack.pop()
            if arrival.position not in kept:
                kept[arrival.position] = arrival
                stack += self._before(arrival)
        found: dict[int, int | None] = {p: arrival.first for p, arrival in kept.items()}
        return found | {self._goings[p][0]: None for p in kept if p in self._goings}

    def _before(self, arrival: QueryArrival) -> Iterator[QueryArrival]:
        """For each operator that it found: who had brought it, and as few others as kept it until then."""
        for operator in arrival.used - arrival.made:
            keeper = self._makers[operator]
            yield keeper
            while (
                self._until(keeper) < arrival.batch
            ):  # a query that goes in a batch can still be used by all of that batch
                others = [u for u in self._users[operator] if u.batch <= self._until(keeper)]
                last = max(others, key=self._until)
                if self._until(last) <= self._until(keeper):  # no known query kept it: then none is forgotten
                    yield from (u for u in self._users[operator] if u.position < arrival.position)
                    break
                keeper = last
                yield keeper

    def _until(self, arrival: QueryArrival) -> int:
        """The batch in which a query went."""
        return self._goings[arrival.position][1] if arrival.position in self._goings else FOR_EVER
