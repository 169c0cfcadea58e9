"""`greedy`: Algorithm 1 of the rebinding paper.

Fragments in ascending order of load, each from a slot above the average to the least loaded one; loads are updated as
it goes, the check uses the current load of the old slot.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Loads


@dataclass(frozen=True, slots=True)
class Greedy:
    """Equal loads are taken in random order."""

    name: str = "greedy"
    pulls: bool = False

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        """
        >>> two = np.array([0, 0]), np.array([30, 10])
        >>> loads = Loads(np.array([4, 5]), two[0], two[1], two[0], np.ones(2), two[0])
        >>> Greedy().decide(loads, 2, np.random.default_rng(0)).tolist()
        [1, 1]
        """
        work = loads.waiting_s
        of_slots = loads.of_slots(work, slots).tolist()
        average = sum(of_slots) / slots
        shuffled = rng.permutation(work.size)
        order = shuffled[np.argsort(work[shuffled], kind="stable")]
        least = [(load, slot) for slot, load in enumerate(of_slots) if load <= average]
        heapq.heapify(least)
        found = loads.bound.tolist()
        bound, weights = loads.bound[order].tolist(), work[order].tolist()
        for at, old, weight in zip(order.tolist(), bound, weights, strict=True):
            if of_slots[old] > average:
                while least and least[0][0] != of_slots[least[0][1]]:  # an entry of before its slot changed
                    heapq.heappop(least)
                if not least:  # only rounding can bring all slots above their average
                    break
                new = least[0][1]
                found[at] = new
                of_slots[new] += weight
                of_slots[old] -= weight
                heapq.heapreplace(least, (of_slots[new], new))
                if of_slots[old] <= average:
                    heapq.heappush(least, (of_slots[old], old))
        return np.array(found, np.int64)
