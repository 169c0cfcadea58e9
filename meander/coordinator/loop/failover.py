"""Failover: the nodes that can continue for one that goes, because they have copies of what its fragments held.

With replicas, they are the next nodes on the shortest way to a cloud; without, the senders that keep what was consumed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.deploy.fragments import Deployment
from meander.model.events import ChangeEvent, NodeRemoved
from meander.model.ids import FragmentId, NodeId
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import Topology


def copies_of(
    topology: Topology, deployment: Deployment, events: Sequence[ChangeEvent], replicas: int
) -> dict[NodeId, tuple[NodeId, ...]]:
    """Nodes that go, each with those that have a copy of its last commit."""
    found: dict[NodeId, tuple[NodeId, ...]] = {}
    for event in events:
        node = topology.find(event.node) if isinstance(event, NodeRemoved) else None
        if node is None:
            continue
        if not replicas:
            found[node] = _senders_to(deployment, node)
            continue
        routes = [p for c in _clouds(topology) if (p := topology.path(node, c)) is not None and p.arcs]
        if routes:
            found[node] = min(routes, key=lambda p: p.latency_ms).nodes[1 : 1 + replicas]
    return found


def running_on(deployment: Deployment, node: NodeId) -> list[FragmentId]:
    return [f.id for f in deployment.fragments.values() if f.node == node]


def _senders_to(deployment: Deployment, node: NodeId) -> tuple[NodeId, ...]:
    """Nodes that have what the node's fragments have consumed."""
    channels = [c for f in running_on(deployment, node) for _, c in deployment.channels_of(f) if c.receiver == f]
    return tuple(dict.fromkeys(n for c in channels if (n := deployment.fragments[c.sender].node) != node))


def _clouds(topology: Topology) -> list[NodeId]:
    found = np.flatnonzero((topology.nodes.kind == NodeKind.CLOUD) & topology.nodes.alive)
    return [NodeId(int(n)) for n in found]
