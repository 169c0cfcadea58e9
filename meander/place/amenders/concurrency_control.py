"""Concurrency control: amenders that run at the same time share nodes and links without over-committing them.

Optimistic: draft on a private view without locks, then lock the touched nodes in order, check that enough is still
left, and charge the ledger; on conflict draft again. Pessimistic: lock the likely nodes in order first, draft, charge;
when the draft needs more nodes, start over with a larger set. Both back off at random and, after enough failures, take
all locks, so no amender starves. Locks are striped: many nodes, few locks, always taken in one order, so no deadlock.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from meander.model.ids import NodeId
from meander.model.locks import lock
from meander.place.amenders.amendment import AmendmentDraft
from meander.place.catalog import Catalog
from meander.place.changelog import Delta
from meander.place.free_capacity import CapacityLedger, Room

STRIPES = 1024
FIRST_PAUSE_S = 0.0002
LONGEST_PAUSE_S = 0.02
MOST_ATTEMPTS = 8
"""Conflicts after which an amender takes all locks."""


@dataclass(slots=True)
class Effort:
    """The price of concurrency for one delta: attempts, aborts, time."""

    aborts: int = 0
    lock_s: float = 0.0
    validation_s: float = 0.0


class Locks:
    """A fixed number of locks for any number of nodes."""

    def __init__(self, stripes: int = STRIPES) -> None:
        self.count = stripes
        self._locks = [lock("amender stripe") for _ in range(stripes)]

    def stripes(self, nodes: Iterable[NodeId]) -> list[int]:
        return sorted({node % self.count for node in nodes})

    @property
    def all(self) -> list[int]:
        return list(range(len(self._locks)))

    @contextmanager
    def held(self, stripes: list[int], effort: Effort) -> Iterator[None]:
        """All of them, in ascending order."""
        started = time.perf_counter()
        taken: list[int] = []
        try:
            for stripe in stripes:
                self._locks[stripe].acquire()
                taken.append(stripe)
            effort.lock_s += time.perf_counter() - started
            yield
        finally:
            for stripe in reversed(taken):
                self._locks[stripe].release()

    @contextmanager
    def held_at_once(self, stripes: list[int], effort: Effort) -> Iterator[bool]:
        """All of them if none has to be waited for; yields whether that worked."""
        started = time.perf_counter()
        taken: list[int] = []
        try:
            for stripe in stripes:
                if not self._locks[stripe].acquire(blocking=False):
                    break
                taken.append(stripe)
            effort.lock_s += time.perf_counter() - started
            yield len(taken) == len(stripes)
        finally:
            for stripe in reversed(taken):
                self._locks[stripe].release()


Drafting = Callable[[Room], AmendmentDraft]


class Control(ABC):
    """Turns a drafting function into a draft that is charged to the ledger."""

    name: str

    def __init__(self, catalog: Catalog, seed: int = 0) -> None:
        self.catalog = catalog
        self.locks = Locks()
        self.seed = seed

    @abstractmethod
    def settle(self, delta: Delta, drafting: Drafting, effort: Effort) -> AmendmentDraft:
        """Drafts until one could be charged; counts the effort."""

    def settle_alone(self, drafting: Drafting) -> AmendmentDraft:
        """Settles a draft while no other amender runs: the draft is known to fit."""
        result = drafting(Room(self.catalog.ledger))
        charge(self.catalog.ledger, result.room)
        return result

    def _settle_locked(self, drafting: Drafting, effort: Effort) -> AmendmentDraft:
        """Takes all locks, so that no other amender can interfere."""
        with self.locks.held(self.locks.all, effort):
            return self.settle_alone(drafting)

    def _back_off(self, delta: Delta, attempt: int) -> None:
        """Waits a random, growing moment so that two amenders do not collide again in step."""
        chance = random.Random(hash((self.seed, attempt, delta.operators, delta.edges)))
        time.sleep(chance.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)))

    def _touched(self, room: Room) -> list[int]:
        tails = self.catalog.topology.arcs.tail
        stripes = self.locks.count
        found = {node % stripes for node in room.touched_nodes}
        found.update(int(tails[arc]) % stripes for arc in room.arc_changes)
        return sorted(found)


class Optimistic(Control):
    """No locks while thinking; check and charge at the end."""

    name = "optimistic"

    def settle(self, delta: Delta, drafting: Drafting, effort: Effort) -> AmendmentDraft:
        for attempt in range(MOST_ATTEMPTS):
            result = drafting(Room(self.catalog.ledger))
            with self.locks.held(self._touched(result.room), effort):
                started = time.perf_counter()
                valid = not result.overtaken and still_fits(self.catalog.ledger, result.room)
                effort.validation_s += time.perf_counter() - started
                if valid:
                    charge(self.catalog.ledger, result.room)
                    return result
            effort.aborts += 1
            self._back_off(delta, attempt)
        return self._settle_locked(drafting, effort)


class Pessimistic(Control):
    """Ordered two-phase locking: lock first, then think undisturbed."""

    name = "pessimistic"

    def settle(self, delta: Delta, drafting: Drafting, effort: Effort) -> AmendmentDraft:
        wanted = set(self._likely(delta))
        for attempt in range(MOST_ATTEMPTS):
            with self.locks.held_at_once(sorted(wanted), effort) as locked:
                if locked:
                    result = drafting(Room(self.catalog.ledger))
                    touched = set(self._touched(result.room))
                    if touched <= wanted and not result.overtaken:
                        charge(self.catalog.ledger, result.room)
                        return result
                    wanted |= touched
            effort.aborts += 1
            self._back_off(delta, attempt)
        return self._settle_locked(drafting, effort)

    def _likely(self, delta: Delta) -> list[int]:
        """Nodes of everything that stays or leaves, and of the paths between what stays."""
        catalog = self.catalog
        nodes: dict[NodeId, None] = {}
        fixed: list[NodeId] = []
        for operator in (*delta.operators, *delta.boundary):
            node = catalog.placement.nodes.get(operator, catalog.plan[operator].pin)
            if node is not None:
                nodes[node] = None
                fixed.append(node)
            for edge in catalog.plan.edges_of(operator) if operator in delta.operators else ():
                route = catalog.placement.routes.get(edge)
                nodes.update(dict.fromkeys(route.nodes if route else ()))
        goal = fixed[-1] if fixed else None
        for start in dict.fromkeys(fixed) if goal is not None else ():
            path = catalog.topology.path(start, goal) if goal is not None else None
            nodes.update(dict.fromkeys(path.nodes if path else ()))
        return self.locks.stripes(nodes)


CONTROLS: dict[str, type[Control]] = {c.name: c for c in (Optimistic, Pessimistic)}


def still_fits(ledger: CapacityLedger, room: Room) -> bool:
    """Whether what the view takes is still there. Giving back always fits."""
    for node, slots, load, memory in room.node_changes:
        if (slots > 0 or load > 0 or memory > 0) and not ledger.fits(node, slots, load, memory):
            return False
    return all(used <= 0 or ledger.carries(arc, used) for arc, used in room.arc_changes.items())


def charge(ledger: CapacityLedger, room: Room) -> None:
    """Makes the view's changes true. The caller holds the locks."""
    for node, slots, load, memory in room.node_changes:
        ledger.add(node, slots, load, memory)
    for arc, used in room.arc_changes.items():
        ledger.mbps[arc] += used
