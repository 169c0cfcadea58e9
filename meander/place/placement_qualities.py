"""The predicted qualities of a placement: latency, hops, traffic and network usage of a problem's flows on given nodes.

Only flows of the problem are counted: latency starts at its pinned operators without inputs and ends at those without
readers. Processing time is not predicted. A flow whose ends are not both placed, or not connected, is left out and
counted in `missing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.ids import NodeId, OperatorId
from meander.place.problem import Flow, Problem

BYTES_PER_MBIT_MS = 125.0
"""One Mbit/s over one ms holds 1e6 / 8 / 1e3 bytes."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The qualities of a placement, in the base units of demands."""

    latency_ms: float = 0.0
    """The slowest way from a start to an end."""
    hops: int = 0
    """Links on the way with the most of them."""
    total_hops: int = 0
    """Links over all flows; a link that two flows cross counts twice."""
    usage_bytes: float = 0.0
    """Bandwidth-delay product: the bytes that are on their way at any moment."""
    missing: int = 0
    """Flows that were left out."""


def usage_bytes(mbps: float, latency_ms: float) -> float:
    """Bandwidth-delay product of one flow."""
    return mbps * latency_ms * BYTES_PER_MBIT_MS


def predict(problem: Problem, nodes: Mapping[OperatorId, NodeId]) -> Prediction:
    """Predicts what the problem's flows will be like with its free operators on these nodes."""
    where = {**problem.pinned, **nodes}
    latency: dict[OperatorId, float] = {}
    hops: dict[OperatorId, int] = {}
    total_hops, missing, usage = 0, 0, 0.0
    for flow in _in_dataflow_order(problem):
        upstream, reader = flow.upstream, flow.reader
        start, goal = where.get(upstream), where.get(reader)
        path = None if start is None or goal is None else problem.topology.path(start, goal)
        if path is None:
            missing += 1
            continue
        latency[reader] = max(latency.get(reader, 0.0), latency.get(upstream, 0.0) + path.latency_ms)
        hops[reader] = max(hops.get(reader, 0), hops.get(upstream, 0) + path.hops)
        total_hops += path.hops
        usage += usage_bytes(flow.mbps, path.latency_ms)
    return Prediction(max(latency.values(), default=0.0), max(hops.values(), default=0), total_hops, usage, missing)


def _in_dataflow_order(problem: Problem) -> list[Flow]:
    """Flows such that all flows into an operator come before those out of it."""
    waiting = {o: len(flows) for o, flows in problem.inputs.items()}
    ready = [o for o, count in waiting.items() if not count]
    ordered: list[Flow] = []
    while ready:
        for flow in problem.outputs[ready.pop()]:
            ordered.append(flow)
            waiting[flow.reader] -= 1
            if not waiting[flow.reader]:
                ready.append(flow.reader)
    return ordered
