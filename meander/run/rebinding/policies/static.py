"""`static`: round robin by the fragments' numbers, for ever."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meander.run.exchange.base import Int64s
from meander.run.rebinding.loads import Loads


@dataclass(frozen=True, slots=True)
class Static:
    """What a fragment does is not looked at."""

    name: str = "static"
    pulls: bool = False

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        """
        >>> zeros = np.zeros(3, np.int64)
        >>> loads = Loads(np.array([4, 5, 6]), zeros, zeros, zeros, np.zeros(3), zeros)
        >>> Static().decide(loads, 2, np.random.default_rng(0)).tolist()
        [0, 1, 0]
        """
        return loads.fragments % slots
