"""Whether moving operators gains anything: shorter ways for data through them, all ways taken together."""

from __future__ import annotations

from collections.abc import Mapping

from meander.model.ids import NodeId, OperatorId
from meander.place.problem import Problem

ROUNDING_MS = 1e-6
MOST_STARTS = 64
"""Pinned operators whose ways are added up."""


def gains(problem: Problem, nodes: Mapping[OperatorId, NodeId]) -> bool:
    """Whether data is on its way for less time on these nodes than on the former ones. Losing a place never gains."""
    if len(nodes) < len(problem.free) or dict(nodes) == dict(problem.former):
        return False
    return total_ms(problem, nodes) < total_ms(problem, problem.former) - ROUNDING_MS


def total_ms(problem: Problem, nodes: Mapping[OperatorId, NodeId]) -> float:
    """Latencies of the longest ways between every pinned operator and every one that its data leads to, added up."""
    where = {**problem.pinned, **nodes}
    latency = problem.topology.latency_ms
    total = 0.0
    for start in [o for o in problem.pinned if problem.outputs[o]][:MOST_STARTS]:
        reached = {start: 0.0}
        for operator in problem.free:
            before = [(f.upstream, reached[f.upstream]) for f in problem.inputs[operator] if f.upstream in reached]
            if before:
                reached[operator] = max(ms + latency(where[o], where[operator]) for o, ms in before)
        for goal in problem.pinned:
            before = [(f.upstream, reached[f.upstream]) for f in problem.inputs[goal] if f.upstream in reached]
            total += max((ms + latency(where[o], where[goal]) for o, ms in before), default=0.0)
    return total
