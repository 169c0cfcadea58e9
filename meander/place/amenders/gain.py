"""The gain of moving operators: shorter ways for data through them, all ways taken together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from meander.model.ids import NodeId, OperatorId
from meander.place.problem import Problem

ROUNDING_MS = 1e-6
Latencies = dict[tuple[NodeId, NodeId], float]
MOST_STARTS = 64
"""Pinned operators whose ways are added up."""


def gains(problem: Problem, nodes: Mapping[OperatorId, NodeId]) -> bool:
    """Whether data is on its way for less time on these nodes than on the former ones. Losing a place never gains."""
    if len(nodes) < len(problem.free) or dict(nodes) == dict(problem.former):
        return False
    known: Latencies = {}
    return total_ms(problem, nodes, known) < total_ms(problem, problem.former, known) - ROUNDING_MS


def total_ms(problem: Problem, nodes: Mapping[OperatorId, NodeId], known: Latencies | None = None) -> float:
    """Latencies of the longest routes between every pinned operator and every one that its data leads to, added up.

    `known` are latencies between nodes that were looked up before. Goals that read the same at one node count together.
    """
    where = {**problem.pinned, **nodes}
    between = {} if known is None else known

    def latency(start: NodeId, goal: NodeId) -> float:
        found = between.get((start, goal))
        if found is None:
            found = between[start, goal] = problem.topology.latency_ms(start, goal)
        return found

    def longest(inputs: Iterable[OperatorId], here: NodeId, reached: Mapping[OperatorId, float]) -> float | None:
        return max((reached[o] + latency(where[o], here) for o in inputs if o in reached), default=None)

    inputs = {o: tuple(f.upstream for f in problem.inputs[o]) for o in problem.free}
    goals = Counter((tuple(f.upstream for f in problem.inputs[o]), where[o]) for o in problem.pinned)
    total = 0.0
    for start in [o for o in problem.pinned if problem.outputs[o]][:MOST_STARTS]:
        reached = {start: 0.0}
        for operator in problem.free:
            if (ms := longest(inputs[operator], where[operator], reached)) is not None:
                reached[operator] = ms
        total += sum(count * (longest(above, here, reached) or 0.0) for (above, here), count in goals.items())
    return total
