"""Keeps a catalog's cost space up to date: built when a mechanism first needs it, then moved with the topology."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved
from meander.place.catalog import Catalog
from meander.place.costspace.build import LANDMARKS, LINKED, build, place_node

MEASURED_AGAINST = 16
MEASURED_BYTES = 56
"""A node learns the coordinate of another and measures the latency to it: the messages LATENCY and COORDINATE."""


def follow(catalog: Catalog, events: Sequence[ChangeEvent], seed: int = 0) -> int:
    """Builds the space, or gives the nodes that the events touched their new places; all others keep theirs.

    Gives the bytes that this would exchange.
    """
    topology = catalog.topology
    if catalog.space is None:
        catalog.space = build(topology)
        return (
            MEASURED_BYTES * (LANDMARKS + LINKED) * int(np.count_nonzero(topology.nodes.alive[: topology.nodes.count]))
        )
    names: dict[str, None] = {}
    for event in events:
        match event:
            case NodeAdded(node=node):
                names[node.name] = None
            case NodeRemoved(node=name):
                names[name] = None
            case LinkAdded(link=link):
                names.update({link.source: None, link.target: None})
            case LinkRemoved(source=a, target=b):
                names.update({a: None, b: None})
    if not names:
        return 0
    measured = 0
    rng = np.random.default_rng(seed)
    live = np.flatnonzero(topology.nodes.alive[: topology.nodes.count])
    for name in names:
        touched = topology.known_id(name)
        others = live[live != touched]
        if topology.is_alive(touched) and len(others):
            among = rng.choice(others, min(MEASURED_AGAINST, len(others)), replace=False)
            place_node(catalog.space, topology, touched, among)
            measured += len(among)
        else:
            catalog.space.forget(touched)
    return measured * MEASURED_BYTES
