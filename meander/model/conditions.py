"""Conditions of demands: when a demand applies, by the time of day and by the facts of the environment.

A condition is a conjunction of tests on facts. `WHEN a THEN x WHEN b THEN y OTHERWISE z` becomes three demands, each
with the clauses that must hold for it: x when a; y unless a, when b; z unless a, unless b.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, product

from meander.model.errors import InputError, unknown
from meander.model.units import quantity

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_PER_MINUTE = {"": 1.0, "/s": 60.0, "/min": 1.0, "/h": 1 / 60}
_PER_SECOND = {"": 1.0, "/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}


class Fact(Enum):
    """The facts that a condition can ask about. The value is the word in both query languages."""

    HOUR = "hour"
    """Hour of the day, 0 to 23."""
    WEEKDAY = "weekday"
    """1 is Monday, 7 is Sunday."""
    CHURN = "churn"
    """Nodes and links that came or went, per minute."""
    MOBILITY = "mobility"
    """The changes of links per minute of a mobile node."""
    WORKLOAD = "workload"
    """Tuples that enter, per second."""

    @property
    def cycle(self) -> tuple[int, int] | None:
        """First and last value of a fact that starts over; between 22 and 5 is then across the end."""
        return _CYCLES.get(self)


_CYCLES = {Fact.HOUR: (0, 23), Fact.WEEKDAY: (1, 7)}
_UNITS: dict[Fact, dict[str, float]] = {
    Fact.HOUR: {"": 1.0},
    Fact.WEEKDAY: {"": 1.0},
    Fact.CHURN: _PER_MINUTE,
    Fact.MOBILITY: _PER_MINUTE,
    Fact.WORKLOAD: _PER_SECOND,
}
Facts = Mapping[Fact, float]
"""The known facts. A fact that is not known makes no test true."""


@dataclass(frozen=True, slots=True)
class Test:
    """`hour BETWEEN 7 AND 9`, both included, or, without `high`, `churn > 3`."""

    __test__ = False  # pytest would collect it by its name

    fact: Fact
    comparison: str
    low: float
    high: float | None = None

    def __post_init__(self) -> None:
        if self.comparison not in (*COMPARISONS, "BETWEEN"):
            raise unknown("comparison", self.comparison, (*COMPARISONS, "BETWEEN"))
        if (self.high is None) == (self.comparison == "BETWEEN"):
            raise InputError(f"BETWEEN takes two numbers, other comparisons one: {self.fact.value} {self.comparison}")
        cycle = self.fact.cycle
        for value in (self.low,) if self.high is None else (self.low, self.high):
            if not 0 <= value < math.inf:
                raise InputError(f"{self.fact.value} is compared with {value:g}; it is never negative nor infinite")
            if cycle and not (cycle[0] <= value <= cycle[1] and value == int(value)):
                raise InputError(f"{self.fact.value} is a whole number from {cycle[0]} to {cycle[1]}, not {value:g}")
        if self.high is not None and cycle is None and self.low > self.high:
            raise InputError(
                f"no {self.fact.value} lies between {self.low:g} and {self.high:g}; write the smaller number first"
            )

    def holds(self, facts: Facts) -> bool:
        value = facts.get(self.fact)
        if value is None:
            return False
        if self.high is None:
            return COMPARISONS[self.comparison](value, self.low)
        if self.low <= self.high:
            return self.low <= value <= self.high
        return value >= self.low or value <= self.high

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.fact.value} {self.comparison} {exact(self.low)}"
        return f"{self.fact.value} BETWEEN {exact(self.low)} AND {exact(self.high)}"

    @staticmethod
    def of(fact: str, comparison: str, low: str, high: str | None = None) -> Test:
        """A test from its words.

        >>> print(Test.of("churn", ">", "2 /s"))
        churn > 120
        """
        names = [f.value for f in Fact]
        if fact.lower() not in names:
            raise unknown("fact", fact, names)
        kind = Fact(fact.lower())
        numbers = [quantity(text, _UNITS[kind], kind.value, "") for text in (low, high) if text is not None]
        return Test(kind, comparison, *numbers)


def exact(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


@dataclass(frozen=True, slots=True)
class Clause:
    """All tests hold or, negated, not all of them."""

    tests: tuple[Test, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        if not self.tests:
            raise InputError("a condition needs at least one test, such as hour BETWEEN 7 AND 9")

    def holds(self, facts: Facts) -> bool:
        return all(test.holds(facts) for test in self.tests) != self.negated

    def __str__(self) -> str:
        return f"{'UNLESS' if self.negated else 'WHEN'} {' AND '.join(map(str, self.tests))}"


def can_hold(clauses: Iterable[Clause]) -> bool:
    """Whether some state of the world makes all clauses true.

    Tests cut each fact's values into few pieces; one value of each piece is tried.
    """
    found = tuple(clauses)
    facts = list(dict.fromkeys(test.fact for clause in found for test in clause.tests))
    pieces = [_pieces(fact, [t for c in found for t in c.tests if t.fact is fact]) for fact in facts]
    return any(all(c.holds(dict(zip(facts, values, strict=True))) for c in found) for values in product(*pieces))


def _pieces(fact: Fact, tests: Iterable[Test]) -> list[float]:
    cycle = fact.cycle
    if cycle is not None:
        return [float(value) for value in range(cycle[0], cycle[1] + 1)]
    cuts = sorted({0.0} | {cut for t in tests for cut in (t.low, t.high) if cut is not None})
    between = [(a + b) / 2 for a, b in pairwise(cuts)]
    return [*cuts, *between, cuts[-1] * 2 + 1]
