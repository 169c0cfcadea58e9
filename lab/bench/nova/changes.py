"""The cost of an event on a running placement, its growth with the topology, and the quality of placements
afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lab.bench.report import Figure
from lab.workloads.nova import clusters, instance
from meander.local.join_events import replay
from meander.place.nova.judge import judge
from meander.place.nova.place import place
from meander.place.nova.running.current_problem import problem_of

Progress = Callable[[str], None]

MOST_MS = 5.0
MOST_GROWTH = 2.0
MOST_DRIFT = 1.10
SIZES, QUICK_SIZES = (10_000, 1_000_000), (1_000, 100_000)
EVENTS, QUICK_EVENTS = 7_000, 2_100
DRIFT_NODES = 10_000

NOTES = (
    "an event is a worker added, a node removed, coordinates moved, a rate or capacity changed, a join removed or a "
    "source added; p99 over all of them, growth from the smallest to the largest size",
    f"drift: source-to-sink latency after the events against a fresh placement of the same {DRIFT_NODES:,} nodes",
)


def figures(quick: bool, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    p99: list[float] = []
    for nodes in QUICK_SIZES if quick else SIZES:
        progress(f"events on {nodes:,} nodes")
        joins = place(instance(clusters(nodes, 1), 0, 10))
        replay(joins, 70, seed=1)
        took = replay(joins, QUICK_EVENTS if quick else EVENTS)
        cpu = np.array([ms for times in took.values() for ms, _ in times])
        wall = np.array([ms for times in took.values() for _, ms in times])
        p99.append(float(np.percentile(cpu, 99)))
        found.append(Figure.of(f"event, {nodes:,} nodes, p99", "ms", [p99[-1]], MOST_MS))
        found.append(Figure.of(f"event, {nodes:,} nodes, median", "ms", [float(np.median(cpu))]))
        found.append(Figure.of(f"event, {nodes:,} nodes, wall p99", "ms", [float(np.percentile(wall, 99))]))
        for name, times in took.items():
            slow = float(np.percentile([ms for ms, _ in times], 99))
            found.append(Figure.of(f"{name}, {nodes:,} nodes, p99", "ms", [slow]))
    found.append(Figure.of("p99 of an event, largest to smallest", "x", [p99[-1] / p99[0]], MOST_GROWTH))
    return found + _drift(quick, progress)


def _drift(quick: bool, progress: Progress) -> list[Figure]:
    events = QUICK_EVENTS if quick else EVENTS
    progress(f"quality after {events:,} events")
    joins = place(instance(clusters(DRIFT_NODES, 4), 4, 10))
    replay(joins, events, seed=2)
    fresh = place(problem_of(joins), joins.settings)
    then, now = judge(joins), judge(fresh)
    return [
        Figure.of(
            f"mean latency after {events:,} events to a fresh run", "x", [then.mean_ms / now.mean_ms], MOST_DRIFT
        ),
        Figure.of(f"p90 latency after {events:,} events to a fresh run", "x", [then.p90_ms / now.p90_ms], MOST_DRIFT),
        Figure.of(f"overloaded nodes after {events:,} events", "", [len(joins.overloaded())], 0.0),
        Figure.of(f"joins without room after {events:,} events", "", [len(joins.unplaced)], 0.0),
    ]
