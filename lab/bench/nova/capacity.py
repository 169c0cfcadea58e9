"""When capacity binds: joins refused, and what cutting costs, at rising loads; what a budget for improvement adds.

All with the settings that the other parts use. Where a solution is planted it is known that every join has room; for
capacities drawn at random, a packing that does not look at latencies says how many have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from lab.baselines.nova_packing import refused_at_least_cost
from lab.bench.nova.exact import solve
from lab.bench.report import Figure
from lab.workloads.nova import DataSet, clusters, instance
from lab.workloads.nova_capacity import LOADS, loaded, planted
from meander.place.nova.judge import judge
from meander.place.nova.partition_count import SIGMA
from meander.place.nova.place import place
from meander.place.nova.problem import JoinProblem
from meander.place.nova.running.joins import Joins
from meander.place.nova.settings import NovaSettings, Overload

Progress = Callable[[str], None]

NODES = 1_000
MOST_REFUSED = 2.0
"""Percent of the joins."""
BINDING = 0.9
LARGE, QUICK_LARGE = 1_000_000, 100_000
MOST_SECONDS, QUICK_MOST_SECONDS = 15.0, 3.0
BUDGETS_S = (0.0, 0.5, 2.0, 5.0)
SMALL_NODES, SMALL_JOINS = 7, 3
EXACT_S = 5.0

NOTES = (
    f"load: what all joins take in whole, as a share of all capacity; {NODES:,} nodes, {3 * NODES // 10} joins; "
    "skewed: 2% of the joins have a source of 300 to 1,000 tuples/s, more than any node takes in",
    "planted: capacities are drawn around a solution, which uses every second or every fourth node; refused beyond a "
    "packing: joins that a packing without regard to latency places and Nova does not",
    "replicas per join and what they take in are of placed joins; broadcast 1.0: nothing is sent twice",
)


@dataclass(frozen=True, slots=True)
class CapacityCase:
    """A shape of problems."""

    name: str
    draw: Callable[[float, int], JoinProblem]
    planted: bool


def cases() -> Iterator[CapacityCase]:
    points = clusters(NODES, 5)
    for skewed in (False, True):
        for hosts in (0.5, 0.25):
            drawn = partial(planted, points, skewed=skewed, hosts=hosts)
            name = f"planted on {hosts:.0%} of the nodes{', skewed' if skewed else ''}"
            yield CapacityCase(name, lambda load, seed, drawn=drawn: drawn(load, seed).problem, True)  # type: ignore[misc]
    for name, level, skewed in (("alike", 0, False), ("unlike", 10, False), ("unlike, skewed", 10, True)):
        drawn_at = partial(loaded, points, level=level, skewed=skewed)
        yield CapacityCase(f"capacities {name}", lambda load, seed, at=drawn_at: at(load, seed), False)  # type: ignore[misc]


def figures(sets: list[DataSet], quick: bool, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    for case in cases():
        for load in LOADS:
            progress(f"load {load:g}, {case.name}")
            found += _at_load(case, load, range(2 if quick else 5))
    found += _against_exact(quick, progress)
    found += _large(quick, progress)
    return found + _budgets(sets, quick, progress)


def _at_load(case: CapacityCase, load: float, seeds: range) -> list[Figure]:
    title = f"load {load:g}, {case.name}"
    refused, beyond, more, replicas, broadcast, p90, mean, overloaded = ([] for _ in range(8))
    for seed in seeds:
        problem = case.draw(load, seed)
        joins, plain = place(problem), place(problem, NovaSettings(overload=Overload.REFUSE))
        verdict, share = judge(joins), 100 / problem.joins
        refused.append(share * verdict.unplaced)
        more.append(verdict.unplaced - len(plain.unplaced))
        if not case.planted:
            beyond.append(share * max(0, verdict.unplaced - refused_at_least_cost(problem)))
        placed = joins.placed[: problem.joins]
        replicas.append(verdict.replicas / max(int(placed.sum()), 1))
        broadcast.append(verdict.traffic_tps / max(float(problem.demand_tps[placed].sum()), 1.0))
        p90.append(verdict.p90_delta_ms)
        mean.append(verdict.mean_delta_ms)
        overloaded.append(100 * verdict.overloaded)
    found = [
        Figure.of(f"{title}: joins refused, worst repeat", "%", [max(refused)], MOST_REFUSED if case.planted else None)
    ]
    if beyond:
        found.append(
            Figure.of(f"{title}: refused beyond a packing, median", "%", [float(np.median(beyond))], MOST_REFUSED)
        )
    return [
        *found,
        Figure.of(f"{title}: refused with expand and not with refuse, worst repeat", "", [max(more)], 0.0),
        Figure.of(f"{title}: overloaded nodes", "%", [max(overloaded)], 0.0),
        Figure.of(f"{title}: replicas per join", "", replicas),
        Figure.of(f"{title}: broadcast", "x", broadcast),
        Figure.of(f"{title}: p90 delta", "ms", p90),
        Figure.of(f"{title}: mean delta", "ms", mean),
    ]


def _against_exact(quick: bool, progress: Progress) -> list[Figure]:
    """Small problems whose joins the exact program places all, with the parts that sigma allows."""
    progress("small cases that have a solution, by the exact program")
    joins = refused = solved = 0
    for seed in range(12 if quick else 40):
        rng = np.random.default_rng(seed)
        tps = rng.integers(5, 60, 2 * SMALL_JOINS).astype(float)
        capacity = rng.exponential(1.0, SMALL_NODES)
        rows = np.arange(2 * SMALL_JOINS, dtype=np.int32)
        problem = JoinProblem(
            rng.uniform(0, 100, (SMALL_NODES, 2)), np.zeros(SMALL_NODES),
            capacity * (tps.sum() / rng.choice((0.6, 0.75, 0.9)) / capacity.sum()), rows + 1, tps,
            rows[::2].copy(), rows[1::2].copy(), np.zeros(SMALL_JOINS, dtype=np.int32),
        )  # fmt: skip
        if solve(problem, SIGMA, time_s=EXACT_S).cost_ms is not None:
            solved += 1
            joins += problem.joins
            refused += len(place(problem, NovaSettings(improve_s=0.2)).unplaced)
    return [
        Figure.of("small cases that the exact program solves", "", [solved]),
        Figure.of("joins refused in them", "%", [100 * refused / max(joins, 1)], MOST_REFUSED),
    ]


def _large(quick: bool, progress: Progress) -> list[Figure]:
    nodes, most = (QUICK_LARGE, QUICK_MOST_SECONDS) if quick else (LARGE, MOST_SECONDS)
    found = []
    for load in (BINDING,) if quick else (0.75, BINDING):
        progress(f"load {load:g} on {nodes:,} nodes")
        problem = loaded(clusters(nodes, 1), load, 0)
        cpu = time.thread_time()
        joins = place(problem)
        cpu = time.thread_time() - cpu
        title = f"load {load:g}, {nodes:,} nodes"
        found.append(Figure.of(f"{title}: phases II and III", "s", [cpu], most))
        found.append(Figure.of(f"{title}: overloaded nodes", "", [len(joins.overloaded())], 0.0))
        found.append(Figure.of(f"{title}: joins refused", "%", [100 * len(joins.unplaced) / problem.joins]))
    return found


def _budgets(sets: list[DataSet], quick: bool, progress: Progress) -> list[Figure]:
    """The gain of seconds for improvement, where room is ample and where it binds."""
    points = clusters(NODES, 3)
    drawn: dict[str, JoinProblem] = {
        "plane": instance(points, 0),
        f"plane, load {LOADS[-2]:g}": loaded(points, LOADS[-2], 0),
        f"plane, planted, skewed, load {BINDING:g}": planted(points, BINDING, 0, skewed=True).problem,
    }
    for data in sets[:1] if quick else sets:
        drawn[f"{data.name}, measured"] = instance(data.points, 0, matrix_ms=data.measured_ms)
    found = []
    for name, problem in drawn.items():
        progress(f"what improvement adds: {name}")
        for budget in BUDGETS_S:
            verdict = judge(_improved(problem, budget))
            title = f"{name}, {budget:g} s of improvement"
            found.append(Figure.of(f"{title}: p90 delta", "ms", [verdict.p90_delta_ms]))
            found.append(Figure.of(f"{title}: mean delta", "ms", [verdict.mean_delta_ms]))
            found.append(Figure.of(f"{title}: joins refused", "", [verdict.unplaced]))
    return found


def _improved(problem: JoinProblem, seconds: float) -> Joins:
    return place(problem, NovaSettings(improve_s=seconds))
