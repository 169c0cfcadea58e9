"""Random: any connected node with room, all equally likely. What other mechanisms should be better than."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.model.topology.kernels import distances_from
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.problem import Problem, Proposal

DRAWS = 64


class Random(Mechanism):
    """Draws nodes by the problem's seed and takes the first that has room and connects the operator."""

    name = "random"
    metadata = Metadata((), "a random node with room, to compare with")

    def place(self, problem: Problem) -> Proposal:
        if not problem.free:
            return Proposal()
        rng = np.random.default_rng(problem.seed)
        return downstream(problem, lambda spot: _drawn(spot, rng), widen=False)


def _drawn(spot: Spot, rng: np.random.Generator) -> Iterator[NodeId]:
    """Some draws, which in most networks hit; then all connected nodes in random order."""
    topology = spot.problem.topology
    nodes = topology.nodes
    for node in map(NodeId, rng.integers(0, nodes.count, DRAWS).tolist()):
        if nodes.alive[node] and spot.connects(node):
            yield node
    need = spot.problem.free[spot.operator]
    connected = nodes.alive[: nodes.count] & (nodes.slots[: nodes.count] >= need.slots)
    connected &= nodes.capacity_tps[: nodes.count] >= need.load_tps
    connected &= nodes.memory_mb[: nodes.count] >= need.memory_mb
    for start in spot.starts:
        connected &= np.isfinite(topology.adjacency.latencies_from(start))
    for end in spot.ends:
        connected &= np.isfinite(_latencies_to(topology, end))
    for node in map(NodeId, rng.permutation(np.flatnonzero(connected)).tolist()):
        if spot.fits(node):
            yield node


def _latencies_to(topology: Topology, end: NodeId) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    arcs, nodes = topology.arcs, topology.nodes
    return distances_from(end, arcs.tail, arcs.latency_ms, nodes.in_head, arcs.in_next, nodes.count)
