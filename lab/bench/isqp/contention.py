"""The cost of the two concurrency controls when amenders want the same nodes, and those are nearly full.

A share of the queries of each batch reads from one site, the others from a site each. Sensors and edges have few slots,
so operators move up until a node has room, and amenders that decided at the same time find it taken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from lab.bench.report import Figure
from lab.workloads.isqp import Sites, tails
from meander.model.events import QueryAdded, QueryRemoved
from meander.model.placement import violations
from meander.model.plan import Query
from meander.place.amenders.concurrency_control import CONTROLS
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
THREADS = (1, 2, 8)
BATCH = 32
SHAPE = Sites(sites=32, sensors=40, clouds=8, slots=(2, 24, 40))
SWITCH_S = 1e-5
NOTES = (
    "contention: sensors have 2 slots, edges 24 and clouds 40, and each query needs about 4",
    "contention: threads are switched every 10 us, so that decisions overlap as they do when mechanisms compute"
    " without the interpreter lock",
    "contention: with 1 thread nobody can interfere, so nothing is locked or validated",
)

Progress = Callable[[str], None]


def figures(quick: bool, progress: Progress) -> list[Figure]:
    rounds = 3 if quick else 12
    found: list[Figure] = []
    for control in CONTROLS:
        progress(f"contention: {control} control")
        for share in SHARES:
            for threads in THREADS:
                title = f"contention, {control}, {share:.0%} conflicts, {threads} thread{'s' if threads > 1 else ''}"
                found += fight(title, control, share, threads, rounds)
    return found


def fight(title: str, control: str, share: float, threads: int, rounds: int) -> list[Figure]:
    """Adds and removes batches of queries; one value per round."""
    engine = Engine(SHAPE.catalog(), mechanism("bottom_up"), amenders=threads, control=control)
    took, aborted, locked, validated = [], [], [], []
    with frequent_switches():
        for number, queries in enumerate(contested(share, rounds + 1)):
            for query in queries:
                engine.applicator.preparation.prepare(query)
            started = time.perf_counter()
            report = engine.run([QueryAdded(0, q) for q in queries])
            spent = time.perf_counter() - started
            assert not violations(engine.catalog.plan, engine.catalog.placement, engine.catalog.topology)
            engine.run([QueryRemoved(0, q.id) for q in queries])
            if number:
                took.append(spent / BATCH * 1e6)
                aborted.append(100 * report.aborts / (report.aborts + report.deltas))
                locked.append(report.lock_s / BATCH * 1e6)
                validated.append(report.validation_s / BATCH * 1e6)
    engine.close()
    assert not engine.catalog.ledger.slots.any()
    return [
        Figure.of(f"{title}: time per change", "us", took),
        Figure.of(f"{title}: attempts aborted", "%", aborted),
        Figure.of(f"{title}: locks per change", "us", locked),
        Figure.of(f"{title}: validation per change", "us", validated),
    ]


def contested(share: float, rounds: int) -> Iterator[list[Query]]:
    """Batches of queries, of which a share reads sensors of site 0 and delivers to sink 0."""
    rng = np.random.default_rng(int(100 * share))
    hot = Sites(sites=1, sensors=SHAPE.sensors, clouds=1)
    for number in range(rounds):
        conflicting = round(share * BATCH)
        first = number * BATCH
        batch = tails(conflicting, hot, seed=number, first=first)
        apart = tails(BATCH - conflicting, SHAPE, seed=number, first=first + conflicting, near=False)
        yield [(batch + apart)[i] for i in rng.permutation(BATCH)]


@contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
