"""`static`: fragments stay where they were bound when they came, which is round robin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Loads


@dataclass(frozen=True, slots=True)
class Static:
    """Keeps all bindings as they are."""

    name: str = "static"
    pulls: bool = False

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        return loads.bound
