"""Ideal points of operators, as if every point of the cost space were a node: two objectives over the same springs.

Flows are springs between operators, as stiff as their traffic; pinned operators are nailed to their nodes' coordinates.

- `rest`: the sum of traffic x distance^2 is least where all forces cancel. That is a linear system; conjugate gradients
  reach its solution in at most as many steps as there are operators.
- `weber`: the sum of traffic x distance is least at the operators' joint Weber points. Each step solves the springs
  with stiffness traffic / distance (Weiszfeld's method for all operators at once); distances are rounded off near zero,
  less and less, so that an operator on top of a neighbour can leave it again.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from meander.model.ids import OperatorId
from meander.place.costspace.space import CostSpace
from meander.place.mechanisms.solvers.objective import weight
from meander.place.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORCE = 0.1
ITERATIONS = 200
DENSE = 64
"""Up to this many operators, a step is a dense solve."""


@dataclass(frozen=True, slots=True)
class Springs:
    """Springs between operators (`edges` with `stiffness`) and from operators to nails."""

    operators: list[OperatorId]
    edges: Ints
    stiffness: Floats
    nailed: Ints
    """Per nail the operator it holds."""
    nails: Floats
    """Per nail its coordinates."""
    hold: Floats
    """Per nail its stiffness."""


def springs(problem: Problem, space: CostSpace) -> Springs:
    """The springs of all operators that hang on some nail; stiffness is relative to the heaviest flow."""
    held = _held(problem, space)
    operators = [o for o in problem.free if o in held]
    index = {o: i for i, o in enumerate(operators)}
    edges: list[tuple[int, int]] = []
    stiffness: list[float] = []
    nailed: list[int] = []
    nails: list[Floats] = []
    hold: list[float] = []
    for flow in problem.flows:
        ends = index.get(flow.upstream), index.get(flow.reader)
        if ends[0] is not None and ends[1] is not None:
            edges.append((ends[0], ends[1]))
            stiffness.append(weight(flow))
            continue
        for own, other in ((ends[0], flow.reader), (ends[1], flow.upstream)):
            node = problem.pinned.get(other)
            if own is not None and node is not None and space.knows(node):
                nailed.append(own)
                nails.append(space.coordinates[node])
                hold.append(weight(flow))
    heaviest = max((*stiffness, *hold), default=1.0)
    return Springs(
        operators,
        np.array(edges, dtype=np.int64).reshape(len(edges), 2),
        np.array(stiffness, dtype=np.float64) / heaviest,
        np.array(nailed, dtype=np.int64),
        np.array(nails, dtype=np.float64).reshape(len(nails), space.dimensions),
        np.array(hold, dtype=np.float64) / heaviest,
    )


def _held(problem: Problem, space: CostSpace) -> set[OperatorId]:
    """Free operators connected, through free ones, to a pinned operator whose node has a place in the space."""
    stack = [o for o, node in problem.pinned.items() if space.knows(node)]
    found: set[OperatorId] = set()
    while stack:
        operator = stack.pop()
        neighbours = [f.reader for f in problem.outputs[operator]] + [f.upstream for f in problem.inputs[operator]]
        for other in neighbours:
            if other in problem.free and other not in found:
                found.add(other)
                stack.append(other)
    return found


def rest(system: Springs, force: float = FORCE, iterations: int = ITERATIONS) -> Floats:
    """Operators x dimensions where the springs are at rest, up to the given force (ms at the heaviest flow)."""
    start = np.tile(system.nails.mean(axis=0), (len(system.operators), 1))
    return np.asarray(
        _relax(start, system.edges, system.stiffness, system.nailed, system.nails, system.hold, force, iterations)
    )


@njit(cache=True, nogil=True)
def _forces(at: Floats, edges: Ints, stiffness: Floats, nailed: Ints, hold: Floats) -> Floats:
    """Laplacian times positions, nails at zero."""
    found = np.zeros_like(at)
    for e in range(len(edges)):
        a, b = edges[e, 0], edges[e, 1]
        for d in range(at.shape[1]):
            pull = stiffness[e] * (at[a, d] - at[b, d])
            found[a, d] += pull
            found[b, d] -= pull
    for n in range(len(nailed)):
        for d in range(at.shape[1]):
            found[nailed[n], d] += hold[n] * at[nailed[n], d]
    return found


@njit(cache=True, nogil=True)
def _relax(
    at: Floats,
    edges: Ints,
    stiffness: Floats,
    nailed: Ints,
    nails: Floats,
    hold: Floats,
    force: float,
    iterations: int,
) -> Floats:
    """Conjugate gradients, each operator's force scaled by its total stiffness."""
    total = np.zeros((len(at), 1))
    for e in range(len(edges)):
        total[edges[e, 0], 0] += stiffness[e]
        total[edges[e, 1], 0] += stiffness[e]
    residual = -_forces(at, edges, stiffness, nailed, hold)
    for n in range(len(nailed)):
        total[nailed[n], 0] += hold[n]
        for d in range(at.shape[1]):
            residual[nailed[n], d] += hold[n] * nails[n, d]
    scaled = residual / total
    direction = scaled.copy()
    energy = (residual * scaled).sum()
    for _ in range(iterations):
        if np.abs(residual).max() < force or energy == 0:
            break
        bent = _forces(direction, edges, stiffness, nailed, hold)
        step = energy / (direction * bent).sum()
        at += step * direction
        residual -= step * bent
        scaled = residual / total
        before, energy = energy, (residual * scaled).sum()
        direction = scaled + energy / before * direction
    return at


def weber(system: Springs, iterations: int = 4 * ITERATIONS) -> Floats:
    """Operators x dimensions where traffic x distance is least."""
    at = rest(system)
    spread = float(np.ptp(system.nails, axis=0).max()) if len(system.nails) else 0.0
    if spread == 0.0 or not len(at):
        return at
    finest = spread * 1e-7
    if len(at) <= DENSE:
        found = _weber(
            at, system.edges, system.stiffness, system.nailed, system.nails, system.hold, spread / 4, finest, iterations
        )
        return _onto_neighbours(system, np.asarray(found))
    rounding = spread / 4
    for turn in range(iterations):
        moved = _solve(system, at, rounding)
        step, at = float(np.abs(moved - at).max()), moved
        if rounding <= finest and step < finest * 10:
            break
        if turn % 4 == 3:
            rounding = max(rounding / 2, finest)
    return _onto_neighbours(system, at)


@njit(cache=True, nogil=True)
def _weber(
    at: Floats,
    edges: Ints,
    stiffness: Floats,
    nailed: Ints,
    nails: Floats,
    hold: Floats,
    rounding: float,
    finest: float,
    iterations: int,
) -> Floats:
    """The same steps as `_solve` for few operators, by a dense Cholesky factor."""
    count, dimensions = at.shape
    matrix, moved = np.empty((count, count)), np.empty((count, dimensions))
    for turn in range(iterations):
        matrix[:], moved[:] = 0.0, 0.0
        for e in range(len(edges)):
            a, b = edges[e, 0], edges[e, 1]
            square = rounding * rounding
            for d in range(dimensions):
                square += (at[a, d] - at[b, d]) ** 2
            pull = stiffness[e] / np.sqrt(square)
            matrix[a, a] += pull
            matrix[b, b] += pull
            matrix[a, b] -= pull
            matrix[b, a] -= pull
        for n in range(len(nailed)):
            a = nailed[n]
            square = rounding * rounding
            for d in range(dimensions):
                square += (at[a, d] - nails[n, d]) ** 2
            pull = hold[n] / np.sqrt(square)
            matrix[a, a] += pull
            for d in range(dimensions):
                moved[a, d] += pull * nails[n, d]
        _cholesky_solve(matrix, moved)
        step = 0.0
        for i in range(count):
            for d in range(dimensions):
                step = max(step, abs(moved[i, d] - at[i, d]))
                at[i, d] = moved[i, d]
        if rounding <= finest and step < finest * 10:
            break
        if turn % 4 == 3:
            rounding = max(rounding / 2, finest)
    return at


@njit(cache=True, nogil=True)
def _cholesky_solve(matrix: Floats, right: Floats) -> None:
    """Solves in place; the matrix is symmetric and positive definite, since every operator hangs on a nail."""
    count = len(matrix)
    for j in range(count):
        for k in range(j):
            matrix[j, j] -= matrix[j, k] * matrix[j, k]
        matrix[j, j] = np.sqrt(max(matrix[j, j], 1e-300))
        for i in range(j + 1, count):
            for k in range(j):
                matrix[i, j] -= matrix[i, k] * matrix[j, k]
            matrix[i, j] /= matrix[j, j]
    for d in range(right.shape[1]):
        for i in range(count):
            for k in range(i):
                right[i, d] -= matrix[i, k] * right[k, d]
            right[i, d] /= matrix[i, i]
        for i in range(count - 1, -1, -1):
            for k in range(i + 1, count):
                right[i, d] -= matrix[k, i] * right[k, d]
            right[i, d] /= matrix[i, i]


def length(system: Springs, at: Floats) -> float:
    """The sum of traffic x distance."""
    between = np.linalg.norm(at[system.edges[:, 0]] - at[system.edges[:, 1]], axis=1)
    out = np.linalg.norm(at[system.nailed] - system.nails, axis=1)
    return float(system.stiffness @ between + system.hold @ out)


def energy(system: Springs, at: Floats) -> float:
    """The sum of traffic x distance^2."""
    between = ((at[system.edges[:, 0]] - at[system.edges[:, 1]]) ** 2).sum(axis=1)
    out = ((at[system.nailed] - system.nails) ** 2).sum(axis=1)
    return float(system.stiffness @ between + system.hold @ out)


def _solve(system: Springs, at: Floats, rounding: float) -> Floats:
    """Springs at rest with stiffness traffic / distance."""
    from scipy.sparse import csc_array  # loaded when it is needed: commands that only read start sooner
    from scipy.sparse.linalg import splu

    count = len(at)
    a, b = system.edges[:, 0], system.edges[:, 1]
    inner = system.stiffness / np.sqrt(((at[a] - at[b]) ** 2).sum(axis=1) + rounding**2)
    outer = system.hold / np.sqrt(((at[system.nailed] - system.nails) ** 2).sum(axis=1) + rounding**2)
    pulled = np.zeros_like(at)
    np.add.at(pulled, system.nailed, outer[:, None] * system.nails)
    diagonal = np.zeros(count)
    for where, amount in ((a, inner), (b, inner), (system.nailed, outer)):
        np.add.at(diagonal, where, amount)
    every = np.arange(count)
    values = np.concatenate((diagonal, -inner, -inner))
    rows, columns = np.concatenate((every, a, b)), np.concatenate((every, b, a))
    return np.asarray(splu(csc_array((values, (rows, columns)), shape=(count, count))).solve(pulled))


def _onto_neighbours(system: Springs, at: Floats) -> Floats:
    """Moves operators exactly onto a neighbour where that is no worse: the true optimum often lies there."""
    least = length(system, at)
    moves = [(int(o), at[n]) for o, n in (*system.edges, *system.edges[:, ::-1])]
    moves += [(int(o), system.nails[i]) for i, o in enumerate(system.nailed)]
    for operator, place in moves if len(moves) <= 8 * DENSE else ():
        tried = at.copy()
        tried[operator] = place
        total = length(system, tried)
        if total <= least:
            at, least = tried, total
    return at
