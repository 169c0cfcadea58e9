"""Learning on its own: mechanisms as coins that meet a demand with some probability, which may change.

Nothing is placed here. It shows what selection does with noisy outcomes: how often the best mechanism runs, and how
many rounds a change takes to be learned. `measure` times the update and the selection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from lab.bench.report import Figure
from meander.adapt.fitness import Fitness
from meander.adapt.selection import Candidate, Question, Selector, selector

DEMAND = "latency < 100 ms"
STAY = 3
"""Rounds that a mechanism stays at least, as the loop has it."""
MECHANISMS = tuple(f"m{i}" for i in range(9))


@dataclass(frozen=True, slots=True)
class Phase:
    """So many rounds in which each mechanism meets the demand with its probability."""

    rounds: int
    chances: tuple[float, ...]
    context: str = ""

    @property
    def best(self) -> int:
        return self.chances.index(max(self.chances))


@dataclass(slots=True)
class LearningOutcome:
    """The mechanism of each round, and whether the demand was met."""

    chosen: list[int] = field(default_factory=list)
    met: list[bool] = field(default_factory=list)

    def share(self, mechanism: int, start: int, end: int) -> float:
        return self.chosen[start:end].count(mechanism) / (end - start)

    def learned_after(self, best: int, start: int, end: int, settled: int = 20) -> int:
        """Rounds until the best ran in nine of ten of the following `settled` rounds; the phase's length if never."""
        for at in range(start, end - settled + 1):
            if self.chosen[at : at + settled].count(best) >= 0.9 * settled:
                return at - start
        return end - start


def play(phases: Sequence[Phase], by: Selector, seed: int, stay: int = STAY) -> LearningOutcome:
    """Flips a coin and learns in every round; chooses in every round that ends a stay."""
    rng, coins = Random(seed), Random(seed + 1)
    fitness, outcome = Fitness(), LearningOutcome()
    current: str | None = None
    for phase in phases:
        for _ in range(phase.rounds):
            if current is None or len(outcome.chosen) % stay == 0:
                current = by.choose(question_of(fitness, len(phase.chances), current, phase.context), rng).mechanism
            number = MECHANISMS.index(current)
            met = coins.random() < phase.chances[number]
            fitness.learn(current, DEMAND, met, phase.context)
            outcome.chosen.append(number)
            outcome.met.append(met)
    return outcome


def question_of(fitness: Fitness, count: int, current: str | None, context: str = "") -> Question:
    """The choice between the first mechanisms, as the loop would ask it without forecasts."""
    demands = (DEMAND,)
    candidates = [Candidate(name, *fitness.beliefs(name, demands, context)) for name in MECHANISMS[:count]]
    return Question(candidates, (1.0,), current)


STATIONARY = Phase(1000, (0.5, 0.7, 0.95, 0.3, 0.6, 0.1, 0.4, 0.7, 0.2))
TURNED = Phase(1000, (0.5, 0.95, 0.1, 0.3, 0.6, 0.1, 0.4, 0.7, 0.2))
WARM_UP = 100


def compare(seeds: int, progress: Callable[[str], None]) -> list[Figure]:
    """Linear ranking and Thompson sampling on the same coins."""
    figures: list[Figure] = []
    for name in ("linear_ranking", "thompson"):
        progress(f"learning with {name}")
        share, rounds, met = [], [], []
        for seed in range(seeds):
            outcome = play([STATIONARY, TURNED], selector(name), seed)
            share.append(outcome.share(STATIONARY.best, WARM_UP, STATIONARY.rounds))
            rounds.append(outcome.learned_after(TURNED.best, STATIONARY.rounds, len(outcome.chosen)))
            met.append(sum(outcome.met) / len(outcome.met))
        goal = 0.9 if name == "linear_ranking" else None
        figures += [
            Figure.of(f"{name}: the best of 9 runs, after {WARM_UP} rounds", "share", share, goal, at_least=True),
            Figure.of(f"{name}: rounds until a change is learned", "rounds", rounds),
            Figure.of(f"{name}: demand met, both phases", "share", met),
        ]
    return figures


def measure(repeats: int, queries: int, progress: Callable[[str], None]) -> list[Figure]:
    """Time of a learning update, and of a selection for many queries with nine mechanisms each."""
    progress("timing learning and selection")
    known = [play([Phase(20, STATIONARY.chances, "calm")], selector("linear_ranking"), seed) for seed in range(1)]
    fitness = [Fitness() for _ in range(queries)]
    for each in fitness:
        for round_, number in enumerate(known[0].chosen):
            each.learn(MECHANISMS[number], DEMAND, known[0].met[round_], "calm")
    updates, selections = [], []
    for repeat in range(repeats):
        started = time.process_time()
        for each in fitness:
            each.learn(MECHANISMS[repeat % 9], DEMAND, True, "calm")
        updates.append((time.process_time() - started) * 1000 / queries)
        by, rng = selector("linear_ranking"), Random(repeat)
        started = time.process_time()
        for each in fitness:
            by.choose(question_of(each, 9, MECHANISMS[2], "calm"), rng)
        selections.append((time.process_time() - started) * 1000)
    return [
        Figure.of("learning update", "ms", updates, 1.0),
        Figure.of(f"selection for {queries:,} queries", "ms", selections, 50.0),
    ]
