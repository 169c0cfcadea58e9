"""Loads: what fragments have to do and how long it takes them, as columns. All that a policy may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meander.model.ids import FragmentId
from meander.run.channels.base import Int64s

Floats = NDArray[np.float64]

FADING = 0.5
"""The weight of an earlier reading beside a later one."""


def faded(before: Floats, now: Floats) -> Floats:
    """Tuples that come from reading to reading, where `before` is the earlier value (nan for none)."""
    return np.where(np.isnan(before), now, FADING * before + (1 - FADING) * now)


@dataclass(frozen=True, slots=True)
class Loads:
    """One row for each fragment that runs, in ascending order of its number."""

    fragments: Int64s
    bound: Int64s
    """The slot that each fragment is bound to, or is about to be."""
    pending: Int64s
    """Tuples that wait for it: received and not processed yet (eq. 1)."""
    arrived: Floats | Int64s
    """Tuples that come from one look to the next, as the last few looks have it: tuples between steps come in gusts."""
    tuple_s: Floats
    """Time per tuple over its last tuples (eq. 2)."""
    templates: Int64s
    """Fragments with the same number run as one frame when they are bound to the same slot."""
    below: Int64s | None = None
    """The row of the fragment that reads a fragment's results, -1 for none here."""
    backlog: Floats | None = None
    """The waiting tuples that waited already two readings before; all that wait if that is not known. Of a slot that
    keeps up some always wait, more or fewer as it is about to begin a step or has just done so: that is no load."""

    @property
    def waiting_s(self) -> Floats:
        """The time that waiting tuples will take (the terms of eq. 3)."""
        return self.tuple_s * self.pending

    @property
    def coming_s(self) -> Floats:
        """The time that the backlog will take, and the arrivals until the next reading, if they are as many as until
        this one."""
        return self.tuple_s * (self.arrived + (self.pending if self.backlog is None else self.backlog))

    def with_moves(self, moves: Mapping[FragmentId, int]) -> Loads:
        """The same with moves that have been decided and are not made yet: they must not be decided again."""
        if not moves:
            return self
        asked = [moves.get(FragmentId(f), slot) for f, slot in zip(self.fragments.tolist(), self.bound, strict=True)]
        return replace(self, bound=np.array(asked, np.int64))

    def of_slots(self, work_s: Floats, slots: int) -> Floats:
        """Work per slot (eq. 3)."""
        found: Floats = np.bincount(self.bound, work_s, minlength=slots).astype(np.float64)
        return found
