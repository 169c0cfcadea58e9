"""Joins of more than two sources, as a sequence of two-way joins whose virtual places depend on each other.

Each join of a tree is a point that is pulled by its inputs, sources or other joins, and by its reader. All points are
found at once: each step solves the springs whose stiffness is weight / distance (Weiszfeld's method for many points at
once), with distances rounded off less and less. The weights are the rates that flow, so bulky results pull harder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.place.nova.index import tree as trees
from meander.place.nova.index.search import nearest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 400
CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Spring:
    """A flow between two joins (both numbers), or between a join and a nail (a fixed point)."""

    join: int
    other: int | None
    nail: tuple[float, ...] | None
    weight: float


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One two-way join of a sequence: inputs are sources (>= 0) or earlier steps (-1 - step)."""

    left: int
    right: int
    selectivity: float = 1.0
    """Result tuples for each tuple that comes in."""


def left_deep(sources: int) -> list[JoinStep]:
    """((a join b) join c) join d ...

    >>> [(s.left, s.right) for s in left_deep(3)]
    [(0, 1), (-1, 2)]
    """
    if sources < 2:
        raise InputError(f"a join needs at least two sources, not {sources}")
    return [JoinStep(0, 1), *(JoinStep(-i, i + 1) for i in range(1, sources - 1))]


def rates(steps: list[JoinStep], source_tps: Floats) -> Floats:
    """The output rate of each step."""
    out: list[float] = []
    for number, step in enumerate(steps):
        inputs = [float(source_tps[i]) if i >= 0 else _earlier(out, i, number) for i in (step.left, step.right)]
        out.append(step.selectivity * sum(inputs))
    return np.array(out)


def _earlier(out: list[float], reference: int, number: int) -> float:
    if not 0 <= -1 - reference < number:
        raise InputError(f"step {number} reads step {-1 - reference}, which is not an earlier one")
    return out[-1 - reference]


def virtual_places(steps: list[JoinStep], source_points: Floats, source_tps: Floats, sink: Floats) -> Floats:
    """The virtual place of every step of a sequence, coupled, weighted by traffic."""
    sent = rates(steps, source_tps)
    springs = []
    for number, step in enumerate(steps):
        for reference in (step.left, step.right):
            if reference >= 0:
                nail = tuple(map(float, source_points[reference]))
                springs.append(Spring(number, None, nail, float(source_tps[reference])))
            else:
                springs.append(Spring(number, -1 - reference, None, float(sent[-1 - reference])))
    springs.append(Spring(len(steps) - 1, None, tuple(map(float, sink)), float(sent[-1])))
    return relax(len(steps), springs)


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


def place_steps(
    steps: list[JoinStep],
    points: Floats,
    capacity_tps: Floats,
    source_node: Ints,
    source_tps: Floats,
    sink: int,
) -> list[int]:
    """A node for each step: the nearest one to its virtual place that has room for the step's input.

    The step that takes in most chooses first.
    """
    places = virtual_places(steps, points[source_node], source_tps, points[sink])
    sent = rates(steps, source_tps)
    needs = [
        sum(float(source_tps[i]) if i >= 0 else float(sent[-1 - i]) for i in (step.left, step.right)) for step in steps
    ]
    free = np.array(capacity_tps, dtype=np.float64)
    index = trees.build(points, np.zeros(len(points)), free, np.ones(len(points), dtype=bool))
    nodes = [-1] * len(steps)
    for number in np.argsort(-np.array(needs), kind="stable").tolist():
        node, _ = nearest(index, places[number], needs[number])
        if node < 0:
            raise InputError(
                f"no node has room for {needs[number]:,.0f} tuples per second of step {number}; add capacity"
            )
        nodes[number] = int(node)
        free[node] -= needs[number]
        trees.set_free(index, node, free[node])
    return nodes
