"""A model of rebinding: the same policies on as many slots as one likes, in virtual time. Discrete events, seeded.

Each of the queries is two fragments, one behind the other. A slot steps as the host's slots do: it takes all that waits
for its fragments, runs one frame per template, and lets the result go when the step ends. What a step takes is a sum: a
part for the step, a part for each frame, a part for each tuple by kind. Policies see what the host's rebinder sees,
through the same measures. Slots do not share cores here; that is the point.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lab.workloads.traffic import KINDS, TICK_MS, Traffic
from meander.model.ids import FragmentId
from meander.run.fragments.loads import Loads, faded
from meander.run.rebinding.options import Installing
from meander.run.rebinding.policies import policy
from meander.run.step.measures import StepMeasures

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TICK_S = TICK_MS / 1000


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of steps; calibrated with steps of a real host."""

    step_s: float = 0.03
    job_s: float = 0.015
    """A frame, for any content."""
    project_s: float = 2e-6
    """A tuple in a query's first fragment."""
    kind_s: Mapping[str, float] = field(default_factory=lambda: {"count": 1e-5, "average": 2e-5, "top": 1e-4})
    """A tuple in a query's second fragment."""
    install_s: float = 0.002
    """Changing the routing table, with all slots at the barrier."""
    claim_s: float = 0.0004
    """Taking from the single queue, for each slot that wants to."""


@dataclass(frozen=True, slots=True)
class BindingSetting:
    """A policy of binding, and the way in which it takes effect."""

    policy: str
    installing: Installing = Installing.NON_BLOCKING
    period_s: float = 2.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LatencySamples:
    """One entry for each query and moment of 40 ms: when it came in, and how long until its result."""

    at_s: Floats
    latency_s: Floats
    """Infinite when there was no result until the end."""
    moves: int
    ended_s: float

    def within(self, bound_s: float) -> float:
        """The share of results that took no longer."""
        return float((self.latency_s <= bound_s).mean())

    def quantile(self, share: float) -> float:
        """Linear within what arrived; infinite where results are missing."""
        ordered = np.sort(self.latency_s)
        return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])

    def over_time(self, every_s: float = 1.0) -> tuple[Floats, Floats]:
        """The average latency of tuples that came in within each second (eq. 5); tuples without a result took until
        the end."""
        seconds = np.floor(self.at_s / every_s).astype(np.int64)
        latency = np.where(np.isfinite(self.latency_s), self.latency_s, self.ended_s - self.at_s)
        total = np.bincount(seconds, latency)
        count = np.bincount(seconds)
        there = count > 0
        starts = np.flatnonzero(there).astype(np.float64)
        return starts * every_s, total[there] / count[there]


def arrivals(
    vehicles: int, seconds: float, replicas: int, seed: int = 0, *, ramp: bool = False, scale: float = 1.0
) -> Ints:
    """Tuples of each query at each tick: the vehicles of its district; `scale` of them stand for one."""
    traffic = Traffic(vehicles, seed, ramp_s=seconds if ramp else None)
    for _ in range(0 if ramp else 250):
        traffic.tick()
    ticks = round(seconds / TICK_S)
    found = np.zeros((len(KINDS) * replicas, ticks), np.int64)
    for t in range(ticks):
        counts = np.bincount(traffic.districts(replicas), minlength=replicas)
        found[:, t] = np.repeat(np.round(counts * scale), len(KINDS))
        traffic.tick()
    return found


class Model:
    """Queries 0, 1, 2, ... have fragments 2q (first) and 2q + 1 (second); kinds take turns."""

    def __init__(self, arriving: Ints, slots: int, setting: BindingSetting, costs: Costs) -> None:
        self.slots, self.setting, self.costs = slots, setting, costs
        self.policy = policy(setting.policy)
        self.queries, self.ticks = arriving.shape
        self.total = np.concatenate([np.zeros((self.queries, 1), np.int64), np.cumsum(arriving, axis=1)], axis=1)
        count, kinds = 2 * self.queries, len(KINDS)
        self.fragments = np.arange(count)
        self.bound: Ints = self.fragments % slots
        self.template = self.fragments % (2 * kinds)
        per_kind = np.array([costs.kind_s[k] for k in KINDS])
        self.tuple_s = np.where(self.fragments % 2 == 0, costs.project_s, per_kind[(self.fragments // 2) % kinds])
        self.reached = np.zeros(count, np.int64)
        """Ticks that a fragment has done."""
        self.done_s = np.full((self.queries, self.ticks), np.inf)
        self.measures = StepMeasures()
        self.moves = 0
        self._rng = np.random.default_rng(setting.seed)
        self._busy: list[Ints | None] = [None] * slots
        """The fragments and ticks of the step that a slot is in."""
        self._goal: list[Ints] = [np.zeros(0, np.int64)] * slots
        self._mail: list[dict[int, int]] = [{} for _ in range(slots)]
        self._barrier: dict[int, int] | None = None
        self._received = np.zeros(count, np.int64)
        self._arrived: Floats = np.full(count, np.nan)
        self._fresh: Floats = np.zeros(count)
        self._below = np.where(self.fragments % 2 == 0, self.fragments + 1, -1)
        self._events: list[tuple[float, int, int, int]] = []
        self._number = 0

    def run(self) -> LatencySamples:
        """Until all input has come, and a bit longer."""
        ended = 1.2 * self.ticks * TICK_S + 2
        for slot in range(self.slots):
            self._at(0.0, _START, slot)
        self._at(self.setting.period_s, _DECIDE, 0)
        while self._events:
            now, what, _, slot = heapq.heappop(self._events)
            if now > ended:
                break
            if what == _DECIDE:
                self._decide(now)
                self._at(now + self.setting.period_s, _DECIDE, 0)
            elif what == _FREE:
                self._lift(now)
            else:
                if self._busy[slot] is not None:
                    self._finish(now, slot)
                self._begin(now, slot)
        came = (1 + np.arange(self.ticks)) * TICK_S
        return LatencySamples(np.tile(came, self.queries), (self.done_s - came).ravel(), self.moves, ended)

    def _at(self, time_s: float, what: int, slot: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, what, self._number, slot))

    # ---------------------------------------------------------------- steps

    def _begin(self, now: float, slot: int) -> None:
        self._apply(self._mail[slot])
        if self._barrier is not None:
            if not any(b is not None for b in self._busy):
                self._at(now + self.costs.install_s, _FREE, 0)
            return
        ready = self._ready(now)
        extra = self._claim(slot, ready) if self.policy.pulls else 0.0
        first = np.flatnonzero((self.bound == slot) & (self.fragments % 2 == 0) & (ready > self.reached))
        goal = ready.copy()
        goal[first + 1] = np.where(self.bound[first + 1] == slot, ready[first], ready[first + 1])
        mine = np.flatnonzero((self.bound == slot) & (goal > self.reached))
        if not mine.size:
            self._at((np.floor(now / TICK_S + 1e-6) + 1) * TICK_S, _START, slot)
            return
        tuples = self._tuples(mine, goal[mine])
        work = tuples * self.tuple_s[mine]
        took = self.costs.step_s + extra
        for template in np.unique(self.template[mine]):
            group = self.template[mine] == template
            seconds = self.costs.job_s + float(work[group].sum())
            self.measures.note(mine[group], tuples[group], seconds, int(template))
            took += seconds
        self._busy[slot], self._goal[slot] = mine, goal[mine]
        self._at(now + took, _START, slot)

    def _ready(self, now: float) -> Ints:
        """Ticks that each fragment could do now."""
        ready = np.empty_like(self.reached)
        ready[::2] = min(self.ticks, int(np.floor(now / TICK_S + 1e-6)))
        ready[1::2] = self.reached[::2]
        return ready

    def _tuples(self, fragments: Ints, goal: Ints) -> Ints:
        query = fragments // 2
        found: Ints = self.total[query, goal] - self.total[query, self.reached[fragments]]
        return found

    def _finish(self, now: float, slot: int) -> None:
        mine, goal = self._busy[slot], self._goal[slot]
        assert mine is not None
        for fragment, stop in zip(mine.tolist(), goal.tolist(), strict=True):
            if fragment % 2:
                self.done_s[fragment // 2, self.reached[fragment] : stop] = now
        self.reached[mine] = goal
        self._busy[slot] = None

    def _claim(self, slot: int, ready: Ints) -> float:
        """Takes the tuples that wait longest from the single queue; gives the time that the queue takes."""
        idle = [s for s in range(self.slots) if self._busy[s] is None]
        free = np.isin(self.bound, idle) & (ready > self.reached)
        waiting = np.flatnonzero(free)
        share = -(-waiting.size // len(idle))
        order = waiting[np.argsort(self.reached[waiting], kind="stable")]
        self.bound[order[:share]] = slot
        rest = order[share:]
        others = [s for s in idle if s != slot]
        if others and rest.size:
            mine = rest[self.bound[rest] == slot]
            self.bound[mine] = np.array(others)[np.arange(mine.size) % len(others)]
        return self.costs.claim_s * self.slots

    # ---------------------------------------------------------------- bindings

    def _decide(self, now: float) -> None:
        ready = self._ready(now)
        pending = self._tuples(self.fragments, np.maximum(ready, self.reached))
        received = self.total[self.fragments // 2, np.maximum(ready, self.reached)]
        fresh = (received - self._received).astype(np.float64)
        self._arrived, self._received = faded(self._arrived, fresh), received
        backlog, self._fresh = np.maximum(pending - fresh - self._fresh, 0.0), fresh
        tuple_s = self.measures.tuple_s(self.fragments)
        bound, below = self.bound.copy(), self._below
        loads = Loads(self.fragments, bound, pending, self._arrived, tuple_s, self.template, below, backlog)
        loads = loads.with_moves({FragmentId(f): slot for mail in self._mail for f, slot in mail.items()})
        wanted = self.policy.decide(loads, self.slots, self._rng)
        changed = np.flatnonzero(wanted != loads.bound).tolist()
        self.moves += len(changed)
        if self.setting.installing is Installing.BLOCKING and changed:
            self._barrier = {f: int(wanted[f]) for f in changed}
            if not any(b is not None for b in self._busy):
                self._at(now + self.costs.install_s, _FREE, 0)
            return
        for fragment in changed:
            old = int(self.bound[fragment])
            if self._busy[old] is None:
                self.bound[fragment] = wanted[fragment]
            else:
                self._mail[old][fragment] = int(wanted[fragment])

    def _apply(self, moves: dict[int, int]) -> None:
        for fragment, slot in moves.items():
            self.bound[fragment] = slot
        moves.clear()

    def _lift(self, now: float) -> None:
        """Lifts the barrier when all slots have reached it: the binding changes, and all go on."""
        if self._barrier is None:
            return
        self._apply(self._barrier)
        self._barrier = None
        for slot in range(self.slots):
            self._at(now, _START, slot)


_START, _FREE, _DECIDE = range(3)


def breaks_at(latencies: LatencySamples, bound_s: float, load: Floats, every_s: float = 1.0) -> float:
    """The load at which the average latency goes above the bound and stays there; the highest load if it never does."""
    seconds, average = latencies.over_time(every_s)
    whole = np.full(load.size, np.inf)
    whole[np.minimum((seconds / every_s).astype(np.int64), load.size - 1)] = average
    above = whole > bound_s
    if not above[-3:].any():
        return float(load[-1])
    fine = np.flatnonzero(~above)
    return float(load[min(load.size - 1, fine[-1] + 1)]) if fine.size else float(load[0])
