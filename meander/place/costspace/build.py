"""A cost space for a topology: latencies of cheapest paths to a few landmarks and to linked nodes, then Vivaldi.

Landmarks are picked far from each other. One compiled search per landmark measures all nodes at once, so building costs
landmarks x topology; after that, a node that joins or moves is measured and placed alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.place.costspace.space import CostSpace
from meander.place.costspace.vivaldi import Vivaldi

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LANDMARKS = 32
LINKED = 4


def build(topology: Topology, vivaldi: Vivaldi | None = None, landmarks: int = LANDMARKS) -> CostSpace:
    """Coordinates for all live nodes."""
    vivaldi = vivaldi or Vivaldi()
    count = topology.nodes.count
    chosen, rows = pick_landmarks(topology, landmarks, vivaldi.seed)
    linked, linked_ms = linked_nodes(topology)
    near = np.concatenate((np.tile(chosen, (count, 1)), linked), axis=1)
    latency = np.concatenate((rows.T, linked_ms), axis=1)
    latency[~topology.nodes.alive[:count]] = np.nan
    return vivaldi.embed(near, latency)


def pick_landmarks(topology: Topology, wanted: int, seed: int) -> tuple[Ints, Floats]:
    """Nodes far from each other, and the latency from each to every node (NaN where there is no path)."""
    live = np.flatnonzero(topology.nodes.alive[: topology.nodes.count])
    rows: list[Floats] = []
    chosen: list[int] = []
    if len(live):
        chosen.append(int(np.random.default_rng(seed).choice(live)))
    nearest = np.full(topology.nodes.count, np.inf)
    while chosen and len(rows) < wanted:
        row = topology.adjacency.latencies_from(NodeId(chosen[-1]))
        rows.append(np.where(np.isfinite(row), row, np.nan))
        nearest = np.minimum(nearest, row)
        furthest = int(live[nearest[live].argmax()])
        if nearest[furthest] <= 0:
            break
        chosen.append(furthest)
    return np.array(chosen[: len(rows)], dtype=np.int64), np.array(rows).reshape(len(rows), topology.nodes.count)


def linked_nodes(topology: Topology, most: int = LINKED) -> tuple[Ints, Floats]:
    """For each node the first few nodes it is linked to, with the link's latency (NaN where there are fewer)."""
    nodes, arcs = topology.nodes, topology.arcs
    near = np.zeros((nodes.count, most), dtype=np.int64)
    latency = np.full((nodes.count, most), np.nan)
    arc = nodes.out_head[: nodes.count].copy()
    for i in range(most):
        real = arc >= 0
        near[real, i], latency[real, i] = arcs.tip[arc[real]], arcs.latency_ms[arc[real]]
        arc[real] = arcs.out_next[arc[real]]
    return near, latency


def place_node(space: CostSpace, topology: Topology, node: NodeId, among: Ints, vivaldi: Vivaldi | None = None) -> None:
    """Measures one new or moved node against a few others and gives it its place; all others keep theirs."""
    latency = np.array([topology.latency_ms(node, NodeId(int(other))) for other in among])
    (vivaldi or Vivaldi()).settle(space, node, among, np.where(np.isfinite(latency), latency, np.nan))
