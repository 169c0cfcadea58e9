"""Loads: what fragments have to do and how long it takes them, as columns. All that a policy may look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meander.run.exchange.base import Int64s

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Loads:
    """One row for each fragment that runs, in ascending order of its number."""

    fragments: Int64s
    bound: Int64s
    """The slot that each fragment is bound to."""
    pending: Int64s
    """Tuples that wait for it: received and not processed yet (eq. 1)."""
    arrived: Int64s
    """Tuples that came since the last look."""
    tuple_s: Floats
    """Time per tuple over its last tuples (eq. 2)."""
    templates: Int64s
    """Fragments with the same number run as one frame when they are bound to the same slot."""
    below: Int64s | None = None
    """The row of the fragment that reads a fragment's results, -1 for none here."""

    @property
    def waiting_s(self) -> Floats:
        """The time that what waits will take (the terms of eq. 3)."""
        return self.tuple_s * self.pending

    @property
    def coming_s(self) -> Floats:
        """The time that what waits will take, and what comes until the next look if that is as much as until this."""
        return self.tuple_s * (self.pending + self.arrived)

    def of_slots(self, work_s: Floats, slots: int) -> Floats:
        """Work per slot (eq. 3)."""
        found: Floats = np.bincount(self.bound, work_s, minlength=slots).astype(np.float64)
        return found
