"""The interface of selectors: a selector names the mechanism that a query should run, given the beliefs about each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

WELL = 0.9
"""A mechanism that is expected to meet this share of the demands need not be compared with all others again."""


class Candidate(NamedTuple):
    """A mechanism that may be chosen. Sequences have one entry per demand, in the same order."""

    mechanism: str
    estimates: Sequence[float]
    """The chance that it meets each demand."""
    samples: Sequence[float]
    """The number of samples in this environment behind each estimate."""
    tried: bool = True
    """Whether it has been sampled at all."""
    doubted: bool = False
    """Whether the world has changed since it was sampled."""
    may_try: bool = True
    """Whether trying it out is acceptable; not when it is expected to violate a demand."""


@dataclass(frozen=True, slots=True)
class Question:
    """The choice to make. Candidates come in the order of preference when nothing is known."""

    candidates: Sequence[Candidate]
    weights: Sequence[float]
    """Of the demands."""
    current: str | None = None
    may_explore: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """The mechanism to run, and why."""

    mechanism: str
    reason: str
    exploring: bool = False


class Selector(ABC):
    """Stateless: everything it has learned is in the question."""

    name: str

    @abstractmethod
    def choose(self, question: Question, rng: Random) -> Choice:
        """Chooses one of the candidates, of which there is at least one."""


def expected(question: Question) -> list[float]:
    """The weighted share of demands that each candidate is expected to meet; 1 when nothing is demanded."""
    total = sum(question.weights)
    if not total > 0:
        return [1.0] * len(question.candidates)
    pairs = question.weights
    return [sum([e * w for e, w in zip(c.estimates, pairs, strict=True)]) / total for c in question.candidates]


def best(question: Question, values: Sequence[float]) -> int:
    """The number of the best candidate; of equal ones the current, then the first."""
    most = max(values)
    for number, candidate in enumerate(question.candidates):
        if candidate.mechanism == question.current and values[number] == most:
            return number
    return values.index(most)


def untried(question: Question) -> Candidate | None:
    """The next candidate of a warm-up round: one that was never sampled.

    After a change of the world, when nothing is known to do well, also one that was not sampled since.
    """
    if not question.may_explore:
        return None
    doubted: Candidate | None = None
    for candidate in question.candidates:
        if candidate.may_try and not candidate.tried:
            return candidate
        if candidate.may_try and candidate.doubted and doubted is None:
            doubted = candidate
    return doubted if doubted is not None and max(expected(question)) < WELL else None
