"""Fitness: how often a mechanism met each demand, decayed, and normalised scores (TCEP, equation 5).

Three forms of forgetting. Each sample makes older ones count less (`DECAY`). What is known of a mechanism that does not
run fades while others do, in that environment (`IDLE`). And a run of outcomes that the tally hardly explains, such as
four violations in a row of a mechanism that met the demand 95 times in 100, says that the world has changed: then only
the run is kept, and what is known of the other mechanisms is in doubt. So the memory is long while nothing changes and
short when something does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meander.model.errors import InputError

DECAY = 0.97
"""The weight of a sample after the next one; about 30 samples count."""
IDLE = 0.995
"""The weight of a sample after a sample of another mechanism."""
SURPRISE = 1e-4
"""A run less likely than this is a change of the world."""
PRIOR = 0.5
PRIOR_SAMPLES = 1.0
"""The weight of the prior, in samples."""
LEAST_RANGE = 0.2
"""Differences are scaled as if mechanisms differed by at least this much, so that noise is not blown up."""


@dataclass(slots=True)
class Tally:
    """Samples of one mechanism and one demand."""

    met: float = 0.0
    seen: float = 0.0
    run: int = 0
    """Equal outcomes in a row: positive when met, negative when violated."""
    before: float = PRIOR
    """The estimate when the run began."""
    at: int = 0
    """The number of samples of its environment when this was last changed."""
    doubted: bool = False
    """Whether the world has changed since."""

    def add(self, met: bool, at: int = 0) -> bool:
        """One sample. True when it shows that the world has changed for the worse."""
        self.doubted = False
        kept = IDLE ** (at - self.at)
        self.met, self.seen, self.at = self.met * kept, self.seen * kept, at
        if (self.run > 0) != met or self.run == 0:
            self.before, self.run = self.estimate(), 0
        self.run += 1 if met else -1
        self.met = self.met * DECAY + met
        self.seen = self.seen * DECAY + 1
        if self._surprising():
            self.seen = float(abs(self.run))
            self.met = self.seen if met else 0.0
            self.before = self.estimate()
            return not met
        return False

    def doubt(self) -> None:
        """Lets all samples together count as at most one."""
        if self.seen > 1:
            self.met, self.seen = self.met / self.seen, 1.0
        self.run, self.doubted = 0, True

    def _surprising(self) -> bool:
        if self.seen <= abs(self.run) + 1:
            return False
        chance = self.before if self.run > 0 else 1 - self.before
        return bool(chance ** abs(self.run) < SURPRISE)

    def estimate(self, prior: float = PRIOR, samples: float = PRIOR_SAMPLES) -> float:
        """The share of samples in which the demand is met, leaning on the prior while few were seen."""
        return (self.met + prior * samples) / (self.seen + samples)


Tallies = dict[str, dict[str, Tally]]
"""By mechanism and, inside, by the text of a demand's bound."""

_NO_TALLIES: Tallies = {}
_NO_DEMANDS: dict[str, Tally] = {}


class Fitness:
    """Tallies of one query, per environment and over all environments."""

    def __init__(self, tallies: dict[str, Tallies] | None = None) -> None:
        self.tallies: dict[str, Tallies] = tallies or {}
        self.samples = {context: _latest(known) for context, known in self.tallies.items()}
        """The number of samples of each environment."""

    def learn(self, mechanism: str, demand: str, met: bool, context: str = "") -> None:
        """One sample. It counts in its environment and in the tally over all of them."""
        for key in ("", context) if context else ("",):
            at = self.samples[key] = self.samples.get(key, 0) + 1
            by_mechanism = self.tallies.setdefault(key, {})
            if by_mechanism.setdefault(mechanism, {}).setdefault(demand, Tally(at=at)).add(met, at):
                for other, known in by_mechanism.items():
                    if other != mechanism and demand in known:
                        known[demand].doubt()

    def estimate(self, mechanism: str, demand: str, context: str = "", prior: float = PRIOR) -> float:
        """The chance that the mechanism meets the demand in this environment; other environments are the prior."""
        return self.beliefs(mechanism, (demand,), context, (prior,)).estimates[0]

    def beliefs(
        self, mechanism: str, demands: Sequence[str], context: str = "", priors: Sequence[float] | None = None
    ) -> Beliefs:
        """The beliefs about a mechanism, for each demand."""
        known = [
            (self.tallies.get(key, _NO_TALLIES).get(mechanism, _NO_DEMANDS), self.samples.get(key, 0))
            for key in (("", context) if context else ("",))
        ]
        overall = known[0][0]
        estimates, samples, tried, doubted = [], [], True, False
        for number, demand in enumerate(demands):
            estimate, seen, unsure = PRIOR if priors is None else priors[number], 0.0, False
            for by_demand, now in known:
                tally = by_demand.get(demand)
                if tally is None:
                    seen = 0.0
                    continue
                kept = IDLE ** (now - tally.at)
                seen, unsure = tally.seen * kept, tally.doubted
                estimate = (tally.met * kept + estimate * PRIOR_SAMPLES) / (seen + PRIOR_SAMPLES)
            estimates.append(estimate)
            samples.append(seen)
            tried, doubted = tried and demand in overall, doubted or unsure
        return Beliefs(estimates, samples, tried, doubted)


def _latest(tallies: Tallies) -> int:
    return max((tally.at for known in tallies.values() for tally in known.values()), default=0)


class Beliefs(NamedTuple):
    """About one mechanism, one entry per demand."""

    estimates: Sequence[float]
    """The estimated chance that the demand is met."""
    samples: Sequence[float]
    """The number of samples in this environment behind the estimate."""
    tried: bool
    """Whether all demands were sampled in some environment."""
    doubted: bool
    """Whether the world has changed since it was last sampled."""


def scores(estimates: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """One score per mechanism from its estimates per demand: mean-normalised per demand, then summed by weight.

    >>> scores([[1.0], [0.0], [0.5]], [1.0])
    [0.5, -0.5, 0.0]
    """
    total = math.fsum(weights)
    if not total > 0:
        return [0.0] * len(estimates)
    found: list[float] = [0.0] * len(estimates)
    for demand, weight in enumerate(weights):
        column = [row[demand] for row in estimates]
        mean = math.fsum(column) / len(column)
        factor = weight / total / max(max(column) - min(column), LEAST_RANGE)
        found = [score + factor * (value - mean) for score, value in zip(found, column, strict=True)]
    return found


def tallies_json(tallies: Mapping[str, Tallies]) -> dict[str, object]:
    """Plain data for a file: context, mechanism, demand, then the six numbers of a tally."""
    return {
        context: {
            mechanism: {
                demand: [t.met, t.seen, t.run, t.before, t.at, int(t.doubted)] for demand, t in by_demand.items()
            }
            for mechanism, by_demand in by_mechanism.items()
        }
        for context, by_mechanism in tallies.items()
    }


def tallies_of(value: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> dict[str, Tallies]:
    """The inverse of `tallies_json`."""
    found: dict[str, Tallies] = {}
    for context, by_mechanism in value.items():
        for mechanism, by_demand in by_mechanism.items():
            for demand, numbers in by_demand.items():
                if len(numbers) != 6:
                    raise InputError(f"a tally has 6 numbers, but {mechanism}, {demand} has {len(numbers)}")
                met, seen, run, before, at, doubted = numbers
                tally = Tally(float(met), float(seen), int(run), float(before), int(at), bool(doubted))
                found.setdefault(context, {}).setdefault(mechanism, {})[demand] = tally
    return found
