"""The time of phases I to III from a thousand to a million nodes, the memory, and the overload."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from lab.bench.report import Figure
from lab.workloads.nova import LEVELS, clusters, instance
from meander.local.process_memory import peak_resident_mb
from meander.place.costspace.large import embed_many
from meander.place.nova.judge import judge
from meander.place.nova.place import place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Progress = Callable[[str], None]

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 100_000)
LARGEST = 1_000_000
MOST_SECONDS, MOST_EMBEDDING_SECONDS = 6.0, 40.0
MOST_MB = 4_000.0
MOST_ERROR = 0.15
HEIGHT_MS, NOISE = 2.0, 0.1
PAIRS = 200_000

NOTES = (
    "seconds and milliseconds with a goal are CPU time of the measuring thread, as other work shares the cores; "
    "kernels are compiled before anything is measured",
    "phases II and III include building the index and the board; memory is the peak of a fresh process",
    f"phase I measures 20 latencies per node with {NOISE:.0%} noise and access links of {HEIGHT_MS:g} ms in the mean",
)


def figures(quick: bool, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    sizes = QUICK_SIZES if quick else SIZES
    placing_once(sizes[0], 10)
    for nodes in sizes:
        progress(f"placing joins over {nodes:,} nodes")
        outcomes = [placing_once(nodes, level) for level in ((0, 10) if nodes > 10_000 else LEVELS)]
        goal = MOST_SECONDS if nodes == LARGEST else None
        found.append(Figure.of(f"phases II and III, {nodes:,} nodes", "s", [o[0] for o in outcomes], goal))
        found.append(Figure.of(f"wall time of them, {nodes:,} nodes", "s", [o[1] for o in outcomes]))
        found.append(Figure.of(f"joins per second, {nodes:,} nodes", "", [0.3 * nodes / o[0] for o in outcomes]))
    if not quick:
        progress("memory of a million nodes")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found.append(Figure.of("memory, 1,000,000 nodes", "MB", [process.submit(memory_once).result()], MOST_MB))
    found += _overload(quick, progress)
    found += _embedding(quick, progress)
    return found


def placing_once(nodes: int, level: int) -> tuple[float, float]:
    """CPU and wall seconds of phases II and III."""
    problem = instance(clusters(nodes, 1), 0, level)
    cpu, wall = time.thread_time(), time.perf_counter()
    place(problem)
    return time.thread_time() - cpu, time.perf_counter() - wall


def memory_once() -> float:
    """The most megabytes this process held, a million nodes placed."""
    place(instance(clusters(LARGEST, 1), 0, 10))
    return peak_resident_mb()


def _overload(quick: bool, progress: Progress) -> list[Figure]:
    found = []
    for nodes in (1_000, 100_000) if quick else (1_000, 10_000, 100_000):
        for most_tps in (75, 200):
            progress(f"overload of {nodes:,} nodes, rates up to {most_tps}")
            shares, unplaced = [], []
            for level in LEVELS:
                joins = place(instance(clusters(nodes, 2), level, level, most_tps=most_tps))
                verdict = judge(joins)
                shares.append(100 * verdict.overloaded)
                unplaced.append(verdict.unplaced)
            title = f"{nodes:,} nodes, rates 1..{most_tps}, worst of {len(LEVELS)} levels"
            found.append(Figure.of(f"overloaded nodes, {title}", "%", [max(shares)], 0.0))
            found.append(Figure.of(f"joins without room, {title}", "", [max(unplaced)], 0.0))
    return found


def _embedding(quick: bool, progress: Progress) -> list[Figure]:
    found = []
    for nodes in (1_000, 100_000) if quick else (1_000, 100_000, LARGEST):
        progress(f"coordinates for {nodes:,} nodes")
        seconds, median, p90 = embedding_once(nodes)
        goal = MOST_EMBEDDING_SECONDS if nodes == LARGEST else None
        if nodes > 1_000:
            found.append(Figure.of(f"phase I, {nodes:,} nodes", "s", [seconds], goal))
        found.append(Figure.of(f"median relative error, {nodes:,} nodes", "", [median], MOST_ERROR))
        found.append(Figure.of(f"90th percentile of it, {nodes:,} nodes", "", [p90]))
    return found


def embedding_once(nodes: int) -> tuple[float, float, float]:
    """CPU seconds, and the relative error of random pairs in the median and at the 90th percentile."""
    rng = np.random.default_rng(3)
    points, heights = clusters(nodes, 3), rng.exponential(HEIGHT_MS, nodes)

    def true(a: Ints, b: Ints) -> Floats:
        return np.asarray(np.linalg.norm(points[a] - points[b], axis=1) + heights[a] + heights[b], dtype=np.float64)

    cpu = time.thread_time()
    space = embed_many(nodes, lambda a, b: true(a, b) * rng.lognormal(0, NOISE, len(a)))
    seconds = time.thread_time() - cpu
    a, b = rng.integers(0, nodes, (2, PAIRS))
    a, b = a[a != b], b[a != b]
    away = np.linalg.norm(space.coordinates[a] - space.coordinates[b], axis=1) + space.heights[a] + space.heights[b]
    median, p90 = np.percentile(np.abs(away - true(a, b)) / true(a, b), [50, 90])
    return seconds, float(median), float(p90)
