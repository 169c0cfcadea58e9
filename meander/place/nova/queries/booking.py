"""The tuples per second that a query which Nova places takes in at each node, as the ledger has them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import NodeId
from meander.place.catalog import Catalog
from meander.place.free_capacity import in_steps

Floats = NDArray[np.float64]


class Booking:
    """Those of one query, or of one stage of it."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.taken: Floats = np.zeros(catalog.topology.nodes.count)

    def charge(self, loads: Floats) -> None:
        """These from now on."""
        ledger, now = self.catalog.ledger, np.array([in_steps(t) for t in loads.tolist()])
        before = np.zeros(len(now))
        before[: len(self.taken)] = self.taken
        ledger.grow()
        for node in np.flatnonzero(now != before):
            ledger.add(NodeId(int(node)), 0, float(now[node] - before[node]))
        self.taken = now

    def clear(self) -> None:
        """Nothing from now on."""
        self.charge(np.zeros(len(self.taken)))
