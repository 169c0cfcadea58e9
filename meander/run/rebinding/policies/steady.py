"""`steady`: ours. Few moves, each of which pays, and none while the slots are even enough.

It counts what waits and what will come until the next look, so a slot that keeps up only just is seen before it falls
behind, and fragments that happen to be empty at the moment count too. Moving begins when the most loaded slot is well
above the average and ends when it is near (two thresholds: small differences do not swing). If giving all fragments of
one template away makes slots even enough, that is what is done: both slots then run fewer frames than if they shared
it. Otherwise a move is from the most to the least loaded slot, of the fragment that evens the two out best, and only if
the time that it saves is more than the move costs. A frame that the new slot has to run for a template that it did not
run before counts as load there, and is begun only where the two slots differ by enough to make up for it. While slots
are even, a template that got scattered is gathered again, a slot's part at a look.
Fragments with little to do go where their reader is: a tuple then crosses both in one step instead of waiting for two.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from meander.run.exchange.base import Int64s
from meander.run.rebinding.loads import Floats, Loads


@dataclass(frozen=True, slots=True)
class Steady:
    """Deterministic: among equal fragments the one with the lowest number is moved."""

    name: str = "steady"
    pulls: bool = False
    begin: float = 1.2
    """Load of the most loaded slot, to the average, above which fragments are moved."""
    end: float = 1.05
    """And at which moving ends."""
    move_s: float = 0.002
    """What a move costs."""
    opening_s: float = 0.1
    """What it costs to run one more template in a slot, until the next look."""
    gathered: float = 1.1
    """Load of the most loaded slot, to the average, up to which a template is gathered in fewer slots."""
    light: float = 0.1
    """Load of a fragment, to the average of a slot, up to which it goes where its reader is."""

    def decide(self, loads: Loads, slots: int, rng: np.random.Generator) -> Int64s:
        """
        >>> two = np.array([0, 0]), np.array([30, 10])
        >>> loads = Loads(np.array([4, 5]), two[0], two[1], two[0], np.ones(2), two[0])
        >>> Steady().decide(loads, 2, np.random.default_rng(0)).tolist()
        [0, 1]
        """
        lead = self._leads(loads, slots)
        work = np.bincount(lead, loads.coming_s, minlength=lead.size).astype(np.float64)
        found = loads.bound[lead]
        of_slots = np.bincount(found, loads.coming_s, minlength=slots).astype(np.float64)
        average = float(of_slots.mean())
        order = np.argsort(work, kind="stable")
        order = order[lead[order] == order]
        if slots < 2 or of_slots.max() <= self.begin * average + self.move_s:
            if slots > 1 and average > 0:
                self._gathers_a_template(loads, found, order, work, of_slots)
            return found[lead]
        of_order = found[order]
        movable = [order[of_order == slot].tolist() for slot in range(slots)]
        weights = [work[rows].tolist() for rows in movable]
        if self._gives_a_template_away(loads, found, order, work, of_slots):
            return found[lead]
        templates = loads.templates.tolist()
        runs = [set(loads.templates[found == slot].tolist()) for slot in range(slots)]
        for _ in range(work.size):
            most, least = int(of_slots.argmax()), int(of_slots.argmin())
            gap = float(of_slots[most] - of_slots[least])
            if of_slots[most] <= self.end * average or not movable[most]:
                break
            at = _nearest(weights[most], gap / 2)
            row, weight = movable[most].pop(at), weights[most].pop(at)
            opening_s = 0.0 if templates[row] in runs[least] else self.opening_s
            if min(weight, gap - weight) <= self.move_s or gap / 2 <= opening_s:
                break
            found[row] = least
            runs[least].add(templates[row])
            of_slots[most] -= weight
            of_slots[least] += weight + opening_s
        return found[lead]

    def _gives_a_template_away(
        self, loads: Loads, found: Int64s, order: Int64s, work: Floats, of_slots: Floats
    ) -> bool:
        """Moves all of the busiest slot's fragments of one template, if that makes the slots even enough."""
        most, least = int(of_slots.argmax()), int(of_slots.argmin())
        mine = order[found[order] == most]
        weights = np.bincount(loads.templates[mine], work[mine])
        after = np.maximum(of_slots[most] - weights, of_slots[least] + weights)
        chosen = int(np.where(weights > 0, after, np.inf).argmin())
        others = np.delete(of_slots, [most, least])
        if max(float(after[chosen]), *others.tolist(), 0.0) > self.begin * float(of_slots.mean()):
            return False
        found[mine[loads.templates[mine] == chosen]] = least
        return True

    def _gathers_a_template(self, loads: Loads, found: Int64s, order: Int64s, work: Floats, of_slots: Floats) -> None:
        """Moves a slot's part of a template to another slot that runs it too, if the slots stay even enough with that.

        The part is the lightest there is: one frame less to run costs least.
        """
        slots = of_slots.size
        cells = loads.templates[order] * slots + found[order]
        there, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
        weights = np.bincount(cell, work[order])
        of_template, of_slot = np.divmod(there, slots)
        room = (self.gathered * float(of_slots.mean()) - of_slots)[of_slot]
        roomiest = np.lexsort((-room, of_template))  # the parts of each template, those in slots with most room first
        first = roomiest[np.searchsorted(of_template[roomiest], of_template)]
        second = roomiest[np.minimum(np.searchsorted(of_template[roomiest], of_template) + 1, there.size - 1)]
        other = np.where(first == np.arange(there.size), second, first)
        may = (of_template[other] == of_template) & (of_slot[other] != of_slot)
        may &= (weights <= room[other]) & (counts * self.move_s < self.opening_s)
        if may.any():
            part = int(np.where(may, weights, np.inf).argmin())
            found[order[cell == part]] = of_slot[other[part]]

    def _leads(self, loads: Loads, slots: int) -> Int64s:
        """For each fragment the one whose slot it shares: its reader if it has little to do itself, or nobody."""
        rows = np.arange(loads.bound.size)
        if loads.below is None or not rows.size:
            return rows
        average = float(loads.coming_s.sum()) / slots
        if average <= 0:  # nothing is known yet
            return rows
        follows = (loads.below >= 0) & (loads.coming_s <= self.light * average)
        lead = np.where(follows, loads.below, rows)
        for _ in range(4):  # a chain of light fragments goes where its last one is
            lead = lead[lead]
        return np.where(lead[lead] == lead, lead, rows)


def _nearest(ascending: list[float], wanted: float) -> int:
    """Index of the value next to the wanted one.

    >>> _nearest([1.0, 2.0, 5.0], 3.0)
    1
    """
    at = bisect_left(ascending, wanted)
    if at == len(ascending) or (at and wanted - ascending[at - 1] <= ascending[at] - wanted):
        return at - 1
    return at
