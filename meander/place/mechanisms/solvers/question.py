"""Turns a problem into the arrays that the exact solvers work on, and their answer back into nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.search.latencies import Latencies
from meander.place.mechanisms.solvers.exact import Answer, Assignment, Floats
from meander.place.mechanisms.solvers.objective import weight
from meander.place.problem import Flow, Problem

MOST_PATHS = 512
"""Between more pairs of pinned nodes than this, only paths from or to the first of them give candidates."""


@dataclass(slots=True)
class FreePart:
    """Free operators that hang together, and the nodes of pinned ones around them."""

    operators: list[OperatorId]
    starts: list[NodeId]
    ends: list[NodeId]


def parts(problem: Problem) -> list[FreePart]:
    """The problem's parts: free operators in different ones only compete for room."""
    found: list[FreePart] = []
    seen: set[OperatorId] = set()
    pinned, inputs, outputs = problem.pinned, problem.inputs, problem.outputs
    for first in problem.free:
        if first in seen:
            continue
        seen.add(first)
        stack, members = [first], []
        starts: dict[NodeId, None] = {}
        ends: dict[NodeId, None] = {}
        while stack:
            operator = stack.pop()
            members.append(operator)
            for flow in inputs[operator]:
                if flow.upstream in pinned:
                    starts[pinned[flow.upstream]] = None
                elif flow.upstream not in seen:
                    seen.add(flow.upstream)
                    stack.append(flow.upstream)
            for flow in outputs[operator]:
                if flow.reader in pinned:
                    ends[pinned[flow.reader]] = None
                elif flow.reader not in seen:
                    seen.add(flow.reader)
                    stack.append(flow.reader)
        if len(members) > 1:
            inside = set(members)
            members = [o for o in problem.free if o in inside]
        found.append(FreePart(members, list(starts), list(ends)))
    return found


def path_nodes(part: FreePart, latencies: Latencies) -> list[NodeId]:
    """Nodes on cheapest paths between the pinned nodes around a part, and those nodes."""
    topology = latencies.topology
    if len(part.starts) * len(part.ends) <= MOST_PATHS:
        pairs = [(s, e) for s in part.starts for e in part.ends]
    else:
        pairs = [(s, part.ends[0]) for s in part.starts] + [(part.starts[0], e) for e in part.ends]
    found: dict[NodeId, None] = {}
    for start, end in pairs:
        path = topology.path(start, end)
        if path is not None:
            latencies.follow(path)
            found.update(dict.fromkeys(path.nodes))
            if len(part.operators) > 1 and (back := topology.path(end, start)) is not None:
                latencies.follow(back)
    if not found:
        found.update(dict.fromkeys(n for n in (*part.starts, *part.ends) if topology.is_alive(n)))
    return list(found)


def connect(part: FreePart, nodes: Iterable[NodeId], latencies: Latencies) -> None:
    """Learns the ways between a part and nodes that lie off its paths."""
    topology = latencies.topology
    for node in nodes:
        for start, end in [(s, node) for s in part.starts[:1]] + [(node, e) for e in part.ends[:1]]:
            for path in (topology.path(start, end), topology.path(end, start)):
                if path is not None:
                    latencies.follow(path)


def question(
    problem: Problem,
    operators: Sequence[OperatorId],
    candidates: Sequence[NodeId],
    latencies: Latencies,
    *,
    allowed: Sequence[set[NodeId]] | None = None,
) -> Assignment:
    """The arrays for these operators on these candidates. Other operators count where they are pinned."""
    matrix, between = latencies.matrix(candidates), latencies.between
    index = {o: i for i, o in enumerate(operators)}
    row_of = {n: i for i, n in enumerate(candidates)}
    unary = np.zeros((len(operators), len(candidates)))
    edges: list[tuple[int, int]] = []
    weights: list[float] = []
    for i, operator in enumerate(operators):
        row = unary[i]
        if allowed is not None:
            row[[n not in allowed[i] for n in candidates]] = np.inf
        for flow in problem.inputs[operator]:
            if flow.upstream in index:
                edges.append((index[flow.upstream], i))
                weights.append(weight(flow))
            else:
                start = problem.pinned[flow.upstream]
                at = row_of.get(start)
                row += weight(flow) * (
                    matrix[at] if at is not None else np.array([between(start, c) for c in candidates])
                )
        for goal, total in by_goal(problem, problem.outputs[operator]):
            at = row_of.get(goal)
            row += total * (matrix[:, at] if at is not None else np.array([between(c, goal) for c in candidates]))
    return fitted(problem, operators, candidates, unary, matrix, edges, weights)


def by_goal(problem: Problem, flows: Iterable[Flow]) -> list[tuple[NodeId, float]]:
    """Weights of flows to pinned readers, added up by node: many sinks share one."""
    total: dict[NodeId, float] = {}
    for flow in flows:
        goal = problem.pinned.get(flow.reader)
        if goal is not None:
            total[goal] = total.get(goal, 0.0) + weight(flow)
    return list(total.items())


def chosen(operators: Sequence[OperatorId], candidates: Sequence[NodeId], answer: Answer) -> dict[OperatorId, NodeId]:
    """The answer in the problem's words."""
    return {o: candidates[c] for o, c in zip(operators, answer.choice.tolist(), strict=True)}


def fits_together(problem: Problem, nodes: dict[OperatorId, NodeId]) -> bool:
    """Whether all of these find room at once."""
    slots: dict[NodeId, int] = {}
    load: dict[NodeId, float] = {}
    memory: dict[NodeId, float] = {}
    for operator, node in nodes.items():
        need = problem.free[operator]
        slots[node] = slots.get(node, 0) + need.slots
        load[node] = load.get(node, 0.0) + need.load_tps
        memory[node] = memory.get(node, 0.0) + need.memory_mb
    return all(problem.room.fits(node, slots[node], load[node], memory[node]) for node in slots)


def fitted(
    problem: Problem,
    operators: Sequence[OperatorId],
    candidates: Sequence[NodeId],
    unary: Floats,
    latency_ms: Floats,
    edges: Sequence[tuple[int, int]],
    weights: Sequence[float],
) -> Assignment:
    """The assignment, with what operators need and what candidates have left."""
    needs, room = [problem.free[o] for o in operators], problem.room
    return Assignment(
        unary,
        latency_ms,
        np.array(edges, dtype=np.int64).reshape(len(edges), 2),
        np.array(weights, dtype=np.float64),
        np.array([n.slots for n in needs], dtype=np.int64),
        np.array([n.load_tps for n in needs], dtype=np.float64),
        np.array([room.free_slots(c) for c in candidates], dtype=np.int64),
        np.array([room.free_tps(c) for c in candidates], dtype=np.float64),
        np.array([n.memory_mb for n in needs], dtype=np.float64),
        np.array([room.free_mb(c) for c in candidates], dtype=np.float64),
    )
