"""`steady`: ours. Few moves, each of which pays, and none while the slots are even enough.

It counts waiting tuples and the arrivals until the next reading, so a slot that keeps up only just is seen before it
falls behind, and fragments that happen to be empty at the moment count too. Moving begins when the most loaded slot is
well above the average and ends when it is near (two thresholds: small differences do not swing). If giving all
fragments of one template away makes slots even enough, it does so: both slots then run fewer frames than if they shared
it. Otherwise a move is from the most to the least loaded slot, of the fragment that evens the two out best, and only if
the time that it saves is more than the move costs; if it is not, the best other move from that slot. A slot from which
none pays is set aside, and the others are evened out among themselves. A frame that the new slot has to run for a
template that it did not run before counts as load there, and is begun only where the two slots differ by enough to make
up for it. While slots are even, a template that got scattered is gathered again, a slot's part at a reading. Fragments
with little to do go where their reader is: a tuple then crosses both in one step instead of waiting for two.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Floats, Loads


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
    """The cost of a move."""
    opening_s: float = 0.1
    """The cost of running one more template in a slot, until the next reading."""
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
        if slots < 2 or not work.any():
            return found[lead]
        order = np.argsort(work, kind="stable")
        order = order[lead[order] == order]
        even = _Evening(self, loads.templates, found, order, work, slots)
        if not even.run():
            self._gathers_a_template(loads, found, order, work, even)
        return found[lead]

    def _gathers_a_template(self, loads: Loads, found: Int64s, order: Int64s, work: Floats, even: _Evening) -> None:
        """Moves a slot's part of a template to another slot that runs it too, if the slots stay even enough with that.

        The part is the lightest there is: one frame less to run costs least. Slots that were set aside have no part in
        it, and none is made that evening out would undo at the next reading.
        """
        slots, joined = even.loads.size, np.isin(found, even.slots)
        if even.slots.size < 2 or even.average <= 0:
            return
        order = order[joined[order]]
        cells = loads.templates[order] * slots + found[order]
        there, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
        weights = np.bincount(cell, work[order])
        of_template, of_slot = np.divmod(there, slots)
        room = (self.gathered * even.average - even.loads)[of_slot]
        roomiest = np.lexsort((-room, of_template))  # the parts of each template, those in slots with most room first
        first = roomiest[np.searchsorted(of_template[roomiest], of_template)]
        second = roomiest[np.minimum(np.searchsorted(of_template[roomiest], of_template) + 1, there.size - 1)]
        other = np.where(first == np.arange(there.size), second, first)
        may = (of_template[other] == of_template) & (of_slot[other] != of_slot)
        may &= (weights <= room[other]) & (counts * self.move_s < self.opening_s)
        if not may.any():
            return
        part = int(np.where(may, weights, np.inf).argmin())
        rows, before = order[cell == part], found.copy()
        found[rows] = of_slot[other[part]]
        if even.slots.size < slots and _Evening(self, loads.templates, found.copy(), even.order, work, slots).run():
            found[:] = before

    def _leads(self, loads: Loads, slots: int) -> Int64s:
        """For each fragment the one whose slot it shares: its reader if its own load is small, or none.

        Fragments that follow one reader together have no more load than slots may differ by: they cannot be separated.
        """
        rows = np.arange(loads.bound.size)
        if loads.below is None or not rows.size:
            return rows
        share = share_of(loads.coming_s, slots)
        if share <= 0:  # nothing is known yet
            return rows
        follows = (loads.below >= 0) & (loads.coming_s <= self.light * share)
        lead = np.where(follows, loads.below, rows)
        for _ in range(4):  # a chain of light fragments goes where its last one is
            lead = lead[lead]
        lead = np.where(lead[lead] == lead, lead, rows)
        following = np.flatnonzero(lead != rows)
        following = following[np.argsort(lead[following], kind="stable")]
        total = np.cumsum(loads.coming_s[following])
        first = np.searchsorted(lead[following], lead[following])
        total -= total[first] - loads.coming_s[following][first]
        released = following[total > (self.begin - 1) * share]
        lead[released] = released
        return lead


@dataclass(slots=True)
class _Evening:
    """Evens slots out by moves from the most loaded slot, each of which pays; `found` changes as it goes.

    A slot from which no move pays, such as one with a single fragment that is too big for any slot, is set aside: the
    others are evened out among themselves, by their own average.
    """

    policy: Steady
    templates: Int64s
    found: Int64s
    order: Int64s
    """The fragments that can be moved, by ascending load."""
    work: Floats
    count: int
    slots: Int64s = field(init=False)
    """Slots that were not set aside."""
    loads: Floats = field(init=False)
    average: float = 0.0
    """Of the slots that were not set aside."""
    _booked: Floats = field(init=False)
    """Loads with the frames that moves have begun."""
    _rows: list[list[int]] = field(default_factory=list)
    _weights: list[list[float]] = field(default_factory=list)
    _runs: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = np.arange(self.count)
        self.loads = np.bincount(self.found[self.order], self.work[self.order], self.count).astype(np.float64)
        self._booked = self.loads.copy()
        self.average = float(self.loads.mean())

    def run(self) -> bool:
        """Moves what should be moved, each fragment at most once; says whether anything was."""
        policy, moved, begun = self.policy, False, False
        while self.slots.size > 1:
            booked = self._booked[self.slots]
            most, least = int(self.slots[booked.argmax()]), int(self.slots[booked.argmin()])
            limit = policy.end * self.average if begun else policy.begin * self.average + policy.move_s
            if self._booked[most] <= limit:
                break
            if not begun and self._gives_a_template_away(most, least):
                return True
            if self._moves_one(most, least):
                moved = begun = True
            else:
                self.slots = self.slots[self.slots != most]
                self.average, begun = float(self.loads[self.slots].mean()), False
        return moved

    def _moves_one(self, most: int, least: int) -> bool:
        """Moves the fragment that evens the two slots out best; if that does not pay, the one that pays most."""
        if not self._rows:
            self._list()
        weights = self._weights[most]
        if not weights:
            return False
        at, target = _nearest(weights, float(self._booked[most] - self._booked[least]) / 2), least
        if self._gain(most, target, weights[at], self.templates[self._rows[most][at]]) <= self.policy.move_s:
            at, target, gain = self._best(most)
            if gain <= self.policy.move_s:
                return False
        row, weight = self._rows[most].pop(at), weights.pop(at)
        template = int(self.templates[row])
        opening_s = 0.0 if template in self._runs[target] else self.policy.opening_s
        self.found[row] = target
        self._runs[target].add(template)
        self.loads[most] -= weight
        self.loads[target] += weight
        self._booked[most] -= weight
        self._booked[target] += weight + opening_s
        return True

    def _gain(self, most: int, target: int, weight: float, template: int) -> float:
        """By how much a move lowers the load of the more loaded of the two slots, with and without a new frame's."""
        opening_s = 0.0 if template in self._runs[target] else self.policy.opening_s
        gap = float(self._booked[most] - self._booked[target])
        if gap / 2 <= opening_s:
            return 0.0
        return min(weight, gap - weight - opening_s, float(self.loads[most] - self.loads[target]) - weight)

    def _best(self, most: int) -> tuple[int, int, float]:
        """The move that gains most: which of a slot's fragments, to which slot, and its gain."""
        weights = np.array(self._weights[most])[:, None]
        templates = self.templates[self._rows[most]].tolist()
        targets = self.slots[self.slots != most]
        known = [self._runs[t] for t in targets.tolist()]
        opening_s = np.array([[0.0 if t in runs else self.policy.opening_s for runs in known] for t in templates])
        gap = self._booked[most] - self._booked[targets]
        real = self.loads[most] - self.loads[targets]
        gain = np.minimum(np.minimum(weights, gap - weights - opening_s), real - weights)
        gain = np.where(gap / 2 <= opening_s, 0.0, gain)
        at, target = divmod(int(gain.argmax()), targets.size)
        return at, int(targets[target]), float(gain[at, target])

    def _gives_a_template_away(self, most: int, least: int) -> bool:
        """Moves all of the busiest slot's fragments of one template, if that makes the slots even enough."""
        mine = self.order[self.found[self.order] == most]
        weights = np.bincount(self.templates[mine], self.work[mine])
        after = np.maximum(self.loads[most] - weights, self.loads[least] + weights)
        chosen = int(np.where(weights > 0, after, np.inf).argmin())
        others = self.loads[self.slots[(self.slots != most) & (self.slots != least)]]
        if max(float(after[chosen]), *others.tolist(), 0.0) > self.policy.begin * self.average:
            return False
        self.found[mine[self.templates[mine] == chosen]] = least
        return True

    def _list(self) -> None:
        """The fragments of each slot, by ascending load, and the templates that it runs."""
        bound = self.found[self.order]
        rows = [self.order[bound == slot] for slot in range(self.count)]
        self._rows = [r.tolist() for r in rows]
        self._weights = [self.work[r].tolist() for r in rows]
        self._runs = [set(self.templates[self.found == slot].tolist()) for slot in range(self.count)]


def share_of(work: Floats, slots: int) -> float:
    """The load of a slot if all are as even as can be: fragments with a larger load have a slot each.

    >>> share_of(np.array([10.0, 2.0, 2.0, 2.0]), 4)
    2.0
    """
    rest, left = float(work.sum()), slots
    for largest in np.sort(work)[: -slots - 1 : -1].tolist():
        if left < 2 or largest * left <= rest:
            break
        rest, left = rest - largest, left - 1
    return rest / left


def _nearest(ascending: list[float], wanted: float) -> int:
    """Index of the value next to the wanted one.

    >>> _nearest([1.0, 2.0, 5.0], 3.0)
    1
    """
    at = bisect_left(ascending, wanted)
    if at == len(ascending) or (at and wanted - ascending[at - 1] <= ascending[at] - wanted):
        return at - 1
    return at
