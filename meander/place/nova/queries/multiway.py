"""Joins that read joins: their virtual places depend on each other, and results come together between them.

Each join of a tree is a point that is pulled by its inputs, sources or other joins, and by its reader. All points are
found at once: each step solves the springs whose stiffness is weight / distance (Weiszfeld's method for many points at
once), with distances rounded off less and less. The weights are the rates that flow, so bulky results pull harder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.place.catalog import Catalog
from meander.place.nova.index import tree as trees
from meander.place.nova.index.search import nearest
from meander.place.nova.queries.shape import JoinShape

Floats = NDArray[np.float64]

STEPS = 400
CLOSE = 1e-9
LEAST_WEIGHT = 1e-3
"""The weight of a flow of which next to nothing is expected: it still holds."""


@dataclass(frozen=True, slots=True)
class Spring:
    """A flow between two joins (both numbers), or between a join and a nail (a fixed point)."""

    join: int
    other: int | None
    nail: tuple[float, ...] | None
    weight: float


def relax(count: int, springs: list[Spring]) -> Floats:
    """Points of the least sum of weight x distance over all springs."""
    nails = np.array([s.nail for s in springs if s.nail is not None], dtype=np.float64)
    if not len(nails):
        raise InputError("nothing holds the joins; give at least one source or sink")
    dimensions = nails.shape[1]
    spread = float(np.ptp(nails, axis=0).max()) or 1.0
    places = np.tile(nails.mean(axis=0), (count, 1))
    for step in range(STEPS):
        soft = spread * max(1e-3 * 0.9**step, 1e-10)
        matrix, pull = np.zeros((count, count)), np.zeros((count, dimensions))
        for s in springs:
            end = places[s.other] if s.other is not None else np.array(s.nail)
            stiffness = s.weight / np.sqrt(((places[s.join] - end) ** 2).sum() + soft * soft)
            matrix[s.join, s.join] += stiffness
            if s.other is None:
                pull[s.join] += stiffness * end
            else:
                matrix[s.other, s.other] += stiffness
                matrix[s.join, s.other] -= stiffness
                matrix[s.other, s.join] -= stiffness
        moved = np.linalg.solve(matrix, pull)
        done = float(np.abs(moved - places).max()) <= CLOSE * spread and step > 100
        places = moved
        if done:
            break
    return places


def hubs(catalog: Catalog, stages: Sequence[JoinShape], flows: Sequence[float]) -> list[NodeId]:
    """The node at which each stage's results are wanted: near the virtual place of the stage that reads them, with room
    for what flows; those of the last one go where the query's do. `flows` are the rates of the stages' results.

    Virtual places of all stages depend on each other, so they are found together, weighted by what flows.
    """
    topology, space = catalog.topology, catalog.space
    assert space is not None
    count = topology.nodes.count
    sink = topology.known_id(stages[-1].sink_node)
    alive = topology.nodes.alive[:count].copy()
    alive &= [bool(alive[n]) and topology.reachable(NodeId(n), sink) for n in range(count)]
    if len(stages) == 1 or not alive.any():
        return [sink] * len(stages)
    points, heights = space.coordinates[:count], space.heights[:count]
    springs: list[Spring] = []
    for number, shape in enumerate(stages):
        for side in shape.sides:
            if side.below is not None:
                springs.append(Spring(side.below, number, None, max(flows[side.below], LEAST_WEIGHT)))
            for name in side.nodes:
                producer = topology.known_id(name)
                if alive[producer]:
                    rate = catalog.source_rate_tps(side.source.stream, name)
                    springs.append(Spring(number, None, _at(points, producer), max(rate, LEAST_WEIGHT)))
        if shape.is_last and alive[sink]:
            springs.append(Spring(number, None, _at(points, sink), max(flows[number], LEAST_WEIGHT)))
    if all(s.nail is None for s in springs):
        return [sink] * len(stages)
    places = relax(len(stages), springs)
    free = topology.nodes.capacity_tps[:count].astype(np.float64) - catalog.ledger.load_tps[:count]
    index = trees.build(points.copy(), heights.copy(), np.maximum(np.where(alive, free, 0.0), 0.0), alive)
    found = [sink] * len(stages)
    for number, shape in enumerate(stages):
        for side in shape.sides:
            if side.below is not None:
                node, _ = nearest(index, places[number], max(flows[side.below], LEAST_WEIGHT))
                found[side.below] = NodeId(int(node)) if node >= 0 else sink
    return found


def _at(points: Floats, node: int) -> tuple[float, ...]:
    return tuple(map(float, points[node]))
