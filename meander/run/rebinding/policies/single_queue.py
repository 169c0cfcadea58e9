"""`single_queue`: no binding at all; an idle slot takes the tuples that wait longest. See `shared_queue`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Loads


@dataclass(frozen=True, slots=True)
class SingleQueue:
    """Slots take fragments themselves; there is nothing to decide."""

    name: str = "single_queue"
    pulls: bool = True

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        return loads.bound
