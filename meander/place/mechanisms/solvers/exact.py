"""Exact assignment of operators to candidate nodes: compiled branch and bound with a dynamic program as its bound.

Minimises, over all operators i on candidates c(i),

    sum_i unary[i, c(i)]  +  sum over edges (i, j, w) of  w * latency[c(i), c(j)]

such that no candidate holds more slots, tuples/s or memory than it has left. Capacities aside, a forest of edges is
solved exactly by a dynamic program from the leaves up. Branch and bound descends from the roots with that program's
remaining cost as its bound: when capacities do not bind and the edges form a forest, the first descent is optimal and
proven so. Edges that close a cycle only count once both ends are chosen, which keeps the bound valid.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Assignment:
    """The question, as arrays. Infinite cost means not allowed."""

    unary: Floats
    """Operators x candidates."""
    latency_ms: Floats
    """Candidates x candidates."""
    edges: Ints
    """Edges x 2: the operators a flow leads from and to."""
    weights: Floats
    """Per edge."""
    need_slots: Ints
    need_tps: Floats
    free_slots: Ints
    free_tps: Floats
    need_mb: Floats
    free_mb: Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """The best choice found: a candidate per operator; empty when there is none."""

    choice: Ints
    cost: float
    bound: float
    """No choice is cheaper than this."""
    proven: bool
    """The choice is optimal, or it is certain that there is none."""


def assign(question: Assignment, most_steps: int) -> Answer:
    """Solves the question, or gives up after that many steps with the best found so far."""
    edges = question.edges
    order, parent, down, up, extra_start, extra_other, extra_out, extra_in = _forest(
        len(question.unary), edges, question.weights
    )
    choice, cost, bound, steps = _search(
        question.unary, question.latency_ms, order, parent, down, up, extra_start, extra_other, extra_out, extra_in,
        question.need_slots, question.need_tps, question.need_mb,
        question.free_slots, question.free_tps, question.free_mb, most_steps,
    )  # fmt: skip
    proven = steps <= most_steps
    if cost == np.inf:
        return Answer(np.empty(0, dtype=np.int64), np.inf, bound, proven)
    return Answer(choice, float(cost), float(cost) if proven else float(bound), proven)


@njit(cache=True, nogil=True)
def _forest(count: int, edges: Ints, weights: Floats) -> tuple[Ints, Ints, Floats, Floats, Ints, Ints, Floats, Floats]:
    """Operators in an order with parents first, the tree edge to each one's parent, and all other edges.

    Heavy edges are preferred in the forest. `down` weighs parent to operator, `up` operator to parent. The other edges
    of the operator at position k are extra_start[k] .. extra_start[k + 1], each to an operator at an earlier position.
    """
    root = np.arange(count)
    in_tree = np.zeros(len(edges), dtype=np.bool_)
    for e in np.argsort(-weights, kind="mergesort"):
        a, b = edges[e, 0], edges[e, 1]
        while root[a] != a:
            a = root[a]
        while root[b] != b:
            b = root[b]
        if a != b:
            root[max(a, b)] = min(a, b)
            in_tree[e] = True
    first = np.full(count, -1, dtype=np.int64)
    following = np.full(2 * len(edges), -1, dtype=np.int64)
    for e in range(len(edges)):
        if in_tree[e]:
            for side in range(2):
                following[2 * e + side] = first[edges[e, side]]
                first[edges[e, side]] = 2 * e + side
    order = np.empty(count, dtype=np.int64)
    position = np.full(count, -1, dtype=np.int64)
    parent = np.full(count, -1, dtype=np.int64)
    down, up = np.zeros(count), np.zeros(count)
    stack = np.empty(count, dtype=np.int64)
    done = 0
    for start in range(count):
        if position[start] >= 0:
            continue
        depth = 1
        stack[0] = start
        position[start] = 0
        while depth:
            depth -= 1
            operator = stack[depth]
            order[done] = operator
            position[operator] = done
            done += 1
            entry = first[operator]
            while entry >= 0:
                other = edges[entry // 2, 1 - entry % 2]
                if position[other] < 0 and parent[other] < 0 and other != start:
                    parent[other] = operator
                    stack[depth] = other
                    depth += 1
                entry = following[entry]
    extras = np.zeros(count + 1, dtype=np.int64)
    for e in range(len(edges)):
        a, b = edges[e, 0], edges[e, 1]
        if parent[b] == a:
            down[b] += weights[e]
        elif parent[a] == b:
            up[a] += weights[e]
        else:
            extras[max(position[a], position[b]) + 1] += 1
    extra_start = np.cumsum(extras)
    cursor = extra_start.copy()
    total = extra_start[count]
    extra_other = np.zeros(total, dtype=np.int64)
    extra_out, extra_in = np.zeros(total), np.zeros(total)
    for e in range(len(edges)):
        a, b = edges[e, 0], edges[e, 1]
        if parent[b] == a or parent[a] == b:
            continue
        late = max(position[a], position[b])
        slot = cursor[late]
        cursor[late] += 1
        if position[a] > position[b]:
            extra_other[slot], extra_out[slot] = b, weights[e]
        else:
            extra_other[slot], extra_in[slot] = a, weights[e]
    return order, parent, down, up, extra_start, extra_other, extra_out, extra_in


@njit(cache=True, nogil=True)
def _remaining_cost(
    unary: Floats, latency: Floats, order: Ints, parent: Ints, down: Floats, up: Floats
) -> tuple[Floats, Floats]:
    """The cheapest cost of each operator's subtree: by its own candidate, and by its parent's with the edge to it."""
    count, candidates = unary.shape
    subtree = unary.copy()
    from_parent = np.zeros((count, candidates))
    for k in range(count - 1, -1, -1):
        operator = order[k]
        above = parent[operator]
        if above < 0:
            continue
        for p in range(candidates):
            if subtree[above, p] == np.inf:
                from_parent[operator, p] = np.inf
                continue
            best = np.inf
            for c in range(candidates):
                if subtree[operator, c] < best:
                    cost = subtree[operator, c] + _between(latency, p, c, down[operator], up[operator])
                    if cost < best:
                        best = cost
            from_parent[operator, p] = best
            subtree[above, p] += best
    return subtree, from_parent


@njit(cache=True, nogil=True, inline="always")
def _between(latency: Floats, p: int, c: int, down: float, up: float) -> float:
    """Cost of the edge between a parent on p and an operator on c; weights of zero do not need a path."""
    cost = 0.0
    if down > 0:
        cost += down * latency[p, c]
    if up > 0:
        cost += up * latency[c, p]
    return cost


@njit(cache=True, nogil=True)
def _search(
    unary: Floats,
    latency: Floats,
    order: Ints,
    parent: Ints,
    down: Floats,
    up: Floats,
    extra_start: Ints,
    extra_other: Ints,
    extra_out: Floats,
    extra_in: Floats,
    need_slots: Ints,
    need_tps: Floats,
    need_mb: Floats,
    free_slots: Ints,
    free_tps: Floats,
    free_mb: Floats,
    most_steps: int,
) -> tuple[Ints, float, float, int]:
    """Depth first, cheapest bound first. Returns the best choice, its cost, the first bound and the steps taken."""
    count, candidates = unary.shape
    allowed = unary.copy()
    for i in range(count):
        for c in range(candidates):
            if need_slots[i] > free_slots[c] or need_tps[i] > free_tps[c] or need_mb[i] > free_mb[c]:
                allowed[i, c] = np.inf
    subtree, from_parent = _remaining_cost(allowed, latency, order, parent, down, up)
    best_choice = np.full(count, -1, dtype=np.int64)
    best, limit = np.inf, np.inf
    root_bound = 0.0
    for i in range(count):
        if parent[i] < 0:
            root_bound += subtree[i].min()
    if root_bound == np.inf:
        return best_choice, best, root_bound, 0
    slots, tps, memory = free_slots.copy(), free_tps.copy(), free_mb.copy()
    choice = np.full(count, -1, dtype=np.int64)
    bound = np.empty(count + 1)
    bound[0] = root_bound
    grown = np.empty((count, candidates))
    ranked = np.empty((count, candidates), dtype=np.int64)
    cursor = np.zeros(count, dtype=np.int64)
    steps, k, fresh = 0, 0, True
    while k >= 0:
        operator = order[k]
        above = parent[operator]
        if fresh:
            # The price of each candidate above the bound; the cheapest has none unless cycles or room say so.
            expected = subtree[operator].min() if above < 0 else from_parent[operator, choice[above]]
            for c in range(candidates):
                cost = subtree[operator, c]
                if cost < np.inf and above >= 0:
                    cost += _between(latency, choice[above], c, down[operator], up[operator])
                if cost < np.inf:
                    cost -= expected
                    for e in range(extra_start[k], extra_start[k + 1]):
                        other = choice[extra_other[e]]
                        cost += _between(latency, c, other, extra_out[e], extra_in[e])
                grown[k, c] = cost
            ranked[k] = np.argsort(grown[k], kind="mergesort")
            cursor[k] = 0
            fresh = False
        elif choice[operator] >= 0:
            slots[choice[operator]] += need_slots[operator]
            tps[choice[operator]] += need_tps[operator]
            memory[choice[operator]] += need_mb[operator]
            choice[operator] = -1
        found = False
        while cursor[k] < candidates:
            c = ranked[k, cursor[k]]
            reached = bound[k] + grown[k, c]
            if reached >= limit:
                break
            cursor[k] += 1
            if slots[c] >= need_slots[operator] and tps[c] >= need_tps[operator] and memory[c] >= need_mb[operator]:
                found = True
                break
        if not found:
            k -= 1
            continue
        steps += 1
        if steps > most_steps:
            break
        choice[operator] = c
        slots[c] -= need_slots[operator]
        tps[c] -= need_tps[operator]
        memory[c] -= need_mb[operator]
        bound[k + 1] = reached
        if k == count - 1:
            best, limit = reached, reached * (1 - TOLERANCE)
            best_choice[:] = choice
        else:
            k += 1
            fresh = True
    return best_choice, best, root_bound, steps
