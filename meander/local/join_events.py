"""Random changes to placed joins, one kind after the other, each timed."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from meander.place.nova.running.joins import Joins
from meander.place.nova.running.reoptimise import Reoptimiser

MOST_TPS = 75

Event = Callable[[Reoptimiser, np.random.Generator], bool]
"""Applies a random event; False if the drawn one is impossible, such as removing a node that has left."""


def add_worker(r: Reoptimiser, rng: np.random.Generator) -> bool:
    near = r.joins.board.points[_node(r.joins, rng)]
    r.add_node(near + rng.normal(0, 5, len(near)), float(rng.uniform(1, 200)))
    return True


def remove_node(r: Reoptimiser, rng: np.random.Generator) -> bool:
    r.remove_node(_node(r.joins, rng))
    return True


def move_node(r: Reoptimiser, rng: np.random.Generator) -> bool:
    node = _node(r.joins, rng)
    r.move_node(node, r.joins.board.points[node] + rng.normal(0, 5, r.joins.board.points.shape[1]))
    return True


def change_rate(r: Reoptimiser, rng: np.random.Generator) -> bool:
    r.set_rate(int(rng.integers(r.joins.source_count)), float(rng.integers(1, MOST_TPS + 1)))
    return True


def change_capacity(r: Reoptimiser, rng: np.random.Generator) -> bool:
    r.set_capacity(_node(r.joins, rng), float(rng.uniform(1, 200)))
    return True


def remove_join(r: Reoptimiser, rng: np.random.Generator) -> bool:
    join = int(rng.integers(r.joins.join_count))
    if not r.joins.active[join]:
        return False
    r.remove_join(join)
    return True


def add_source(r: Reoptimiser, rng: np.random.Generator) -> bool:
    """A new source that joins with one that has lost its partner, or with another new one."""
    joins = r.joins
    partner = int(rng.integers(joins.source_count))
    if not joins.alive[joins.board.sources["node"][partner]]:
        return False
    source = r.add_source(_node(joins, rng), float(rng.integers(1, MOST_TPS + 1)))
    r.add_join(source, partner, 0)
    return True


EVENTS: dict[str, Event] = {
    "worker added": add_worker,
    "node removed": remove_node,
    "coordinates moved": move_node,
    "rate changed": change_rate,
    "capacity changed": change_capacity,
    "join removed": remove_join,
    "source added": add_source,
}


def replay(joins: Joins, count: int, seed: int = 0) -> dict[str, list[tuple[float, float]]]:
    """Applies so many events, kind after kind; per kind the CPU time and the wall time of each, in ms."""
    rng, reoptimiser = np.random.default_rng(seed), Reoptimiser(joins)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in EVENTS}
    while sum(map(len, took.values())) < count:
        for name, event in EVENTS.items():
            cpu, wall = time.thread_time(), time.perf_counter()
            if event(reoptimiser, rng):
                took[name].append(((time.thread_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3))
    return took


def _node(joins: Joins, rng: np.random.Generator) -> int:
    """A living node that is not the sink."""
    while True:
        node = int(rng.integers(1, joins.node_count))
        if joins.alive[node]:
            return node
