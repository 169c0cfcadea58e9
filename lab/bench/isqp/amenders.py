"""Do two amenders on two cores place large deltas faster than one?

Python's lock lets one thread at a time run Python. HiGHS and the compiled branch and bound of `ilp` compute outside it,
so amenders overlap while they solve. `bottom_up` is Python throughout: more threads cannot help it. One and two
amenders take turns on the same batches, and a ratio is taken per round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import highspy

from lab.bench.report import Figure
from lab.workloads.isqp import MANY_SLOTS, Meshes
from meander.model.events import QueryAdded, QueryRemoved
from meander.model.placement import violations
from meander.place.amenders.count import by_cores
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

GOAL = 1.5
HARD, EASY = Meshes(16, 9, 1), Meshes(16, 9, MANY_SLOTS)
ROUNDS = (3, 9)
"""For a quick run and a full one."""
NOTES = (
    "amenders: 16 queries over worlds without a link between them come in one batch: 16 independent deltas of 20 free "
    "operators; 'hard' has one slot for each sensor and edge, so that HiGHS has to solve, 'easy' has room everywhere",
    "amenders: one and two take turns on the same batches; a ratio is wall time of one to that of two, per round. It "
    "needs two cores that nobody else wants: see the load average, which counts the bench itself",
    "amenders: where a share s of CPU time is outside Python's lock, two amenders are at best 1 / (1 - s / 2) times "
    "as fast as one; the share does not depend on who else runs",
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AmenderCase:
    """A mechanism on a workload, and the speed-up it should reach."""

    title: str
    mechanism: str
    shape: Meshes
    goal: float | None = None


CASES = (
    AmenderCase("ilp, hard", "ilp", HARD, GOAL),
    AmenderCase("ilp, easy", "ilp", EASY),
    AmenderCase("bottom_up, hard", "bottom_up", HARD),
)


def figures(quick: bool, progress: Progress) -> list[Figure]:
    found = [Figure.of("amenders: load average before", "", [_load()])]
    for case in CASES:
        progress(f"amenders: {case.title}")
        found += compare(case, ROUNDS[0] if quick else ROUNDS[1])
    return [*found, Figure.of("amenders: load average after", "", [_load()])]


def compare(case: AmenderCase, rounds: int) -> list[Figure]:
    """Adds the same queries with one and with two amenders, one value per round."""
    engines = {count: Engine(case.shape.catalog(), mechanism(case.mechanism), amenders=count) for count in (1, 2)}
    took: dict[int, list[float]] = {1: [], 2: []}
    for number in range(rounds + 1):
        for count in (1, 2) if number % 2 else (2, 1):
            spent = _add(engines[count], case.shape, number)
            if number:
                took[count].append(1000 * spent)
    with _solving() as solved_s:
        before = time.thread_time()
        _add(engines[1], case.shape, rounds + 1)
        share = solved_s[0] / (time.thread_time() - before)
    for engine in engines.values():
        engine.close()
    ratios = [one / two for one, two in zip(took[1], took[2], strict=True)]
    goal = case.goal if by_cores() > 1 else None
    return [
        Figure.of(f"amenders, {case.title}: one to two", "x", ratios, goal, at_least=True),
        Figure.of(f"amenders, {case.title}: one, a batch", "ms", took[1]),
        Figure.of(f"amenders, {case.title}: two, a batch", "ms", took[2]),
        Figure.of(f"amenders, {case.title}: share of CPU time in HiGHS", "", [share]),
    ]


@contextmanager
def _solving() -> Iterator[list[float]]:
    """Adds up the CPU time that this thread spends in HiGHS, which leaves Python's lock."""
    solve, spent = highspy.Highs.run, [0.0]

    def timed(solver: highspy.Highs) -> highspy.HighsStatus:
        before = time.thread_time()
        try:
            return solve(solver)
        finally:
            spent[0] += time.thread_time() - before

    highspy.Highs.run = timed  # type: ignore[method-assign, assignment]
    try:
        yield spent
    finally:
        highspy.Highs.run = solve  # type: ignore[method-assign]


def _add(engine: Engine, shape: Meshes, number: int) -> float:
    queries = shape.queries(number)
    for query in queries:
        engine.applicator.preparation.prepare(query)
    started = time.perf_counter()
    report = engine.run([QueryAdded(0, q) for q in queries])
    spent = time.perf_counter() - started
    assert report.deltas == shape.meshes
    assert not report.unplaced
    assert not violations(engine.catalog.plan, engine.catalog.placement, engine.catalog.topology)
    engine.run([QueryRemoved(0, q.id) for q in queries])
    return spent


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
