"""The interface of rebinding policies."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Loads


class Policy(Protocol):
    """Decides without side effects; randomness, where there is any, comes from outside."""

    @property
    def name(self) -> str: ...

    @property
    def pulls(self) -> bool:
        """Whether slots take fragments themselves, before every step, in addition to `decide`."""
        ...

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        """The slot that each fragment should be bound to."""
        ...
