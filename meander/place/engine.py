"""The placement engine: batches of change events in, placement changes out.

One batch after the other: apply, merge into deltas, amend them with a pool of threads, note the results in the catalog.
Amenders decide and charge the ledger concurrently; only this module writes their results down, so the catalog has one
writer. What could not be placed stays in the change log and is tried again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from meander.model.errors import unknown
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.global_plan import GlobalPlan, OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.placement import Edge
from meander.model.resilience import check_detour
from meander.place.amenders.amendment import AmendmentDraft, draft, draft_packed, removal_only
from meander.place.amenders.concurrency_control import CONTROLS, Effort, charge
from meander.place.amenders.count import by_cores, check_amenders
from meander.place.amenders.escalation import Escalation
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog, Delta, Entry, deltas
from meander.place.costspace.maintenance import follow
from meander.place.difference import Difference
from meander.place.free_capacity import Room
from meander.place.mechanisms.base import Mechanism
from meander.place.sharing import forget

ROUNDS = 2
"""Rounds of amending in a batch: the second is for operators whose edges the first could not route."""

WORTH_SHARING = 64
"""A batch with fewer operators is amended by the caller: waking threads would take longer."""

LARGE = 12
"""Free operators from which a delta is left to an amender when its mechanism's solver leaves Python's lock: it may
take many milliseconds, while a smaller one takes less than one, most of it with the lock held."""

Widening = Callable[[GlobalPlan, list[Entry]], list[Entry]]


class Result(Enum):
    """The outcome of amending a delta."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Move:
    """A placement change: an operator came, went, or moved."""

    operator: OperatorId
    source: NodeId | None
    target: NodeId | None
    cause: str


@dataclass(slots=True)
class Amended:
    """One delta's outcome."""

    delta: Delta
    draft: AmendmentDraft
    effort: Effort
    result: Result


@dataclass(slots=True)
class BatchReport:
    """The changes that a batch made, and their cost."""

    events: int
    difference: Difference = field(default_factory=Difference)
    """All operators and edges that changed: the input of deployment."""
    moves: list[Move] = field(default_factory=list)
    rerouted: list[Edge] = field(default_factory=list)
    """Edges that take another route although both ends stay where they are."""
    unplaced: dict[OperatorId, str] = field(default_factory=dict)
    """Operators that were looked at and have no place now, with the reason."""
    causes: dict[OperatorId, str] = field(default_factory=dict)
    """The reason why each operator was re-examined."""
    route_causes: dict[Edge, str] = field(default_factory=dict)
    """The reason why each edge between operators that stay was routed anew."""
    results: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))
    deltas: int = 0
    touched: int = 0
    """Operators that amending looked at."""
    widened_tries: int = 0
    """Deltas that were tried again with more of their surroundings."""
    widened: int = 0
    """... and placed more that way."""
    aborts: int = 0
    messages: int = 0
    message_bytes: int = 0
    apply_s: float = 0.0
    merge_s: float = 0.0
    amend_s: float = 0.0
    lock_s: float = 0.0
    validation_s: float = 0.0

    def complete(self, difference: Difference) -> None:
        """Tells what the batch came to, from the difference that it made."""
        self.difference, self.unplaced = difference, dict(difference.waiting)
        why = self.causes.get
        self.moves = [Move(o, None, node, why(o, "")) for o, node in difference.gained.items()]
        self.moves += [Move(o, here, there, why(o, "")) for o, (here, there) in difference.moved.items()]
        self.moves += [Move(o, node, None, why(o, "")) for o, node in difference.lost.items()]
        self.moves += [Move(o, n, None, why(o, "")) for o, n in difference.removed.items() if n is not None]
        if difference.rerouted:
            busy = frozenset(difference.operators)
            routes = difference.rerouted.items()
            self.rerouted = [edge for edge, path in routes if path is not None and busy.isdisjoint(edge)]

    @property
    def reroutes(self) -> dict[str, int]:
        """The reasons why edges between operators that stay take another route, with the number of edges for each."""
        return dict(Counter(self.route_causes.get(edge, "") for edge in self.rerouted))

    @property
    def total_s(self) -> float:
        return self.apply_s + self.merge_s + self.amend_s


NO_EFFORT = Effort()


def outcome_of(result: AmendmentDraft) -> Result:
    """Success when nothing is left over, failure when nothing came about."""
    if not result.unplaced and not result.unrouted:
        return Result.SUCCESS
    return Result.PARTIAL if result.nodes or result.routes or result.lifted else Result.FAILED


class Engine:
    """Keeps the catalog's placement valid."""

    def __init__(
        self,
        catalog: Catalog,
        mechanism: Mechanism,
        *,
        amenders: int | None = 1,
        control: str = "optimistic",
        seed: int = 0,
        widening: Widening | None = None,
        worth_sharing: int = WORTH_SHARING,
        detour: float | None = None,
        applicator: Applicator | None = None,
    ) -> None:
        if control not in CONTROLS:
            raise unknown("concurrency control", control, CONTROLS)
        check_amenders(amenders)
        if detour is not None:
            check_detour(detour)
            catalog.detour = detour
        self.catalog, self.mechanism = catalog, mechanism
        self.applicator = Applicator(catalog, ChangeLog()) if applicator is None else applicator
        self.log, self.parted = self.applicator.log, self.applicator.parted
        """Operators to be placed; and the queries that Nova places, which are pinned for the mechanism."""
        self.control = CONTROLS[control](catalog, seed)
        self.escalation = Escalation(catalog)
        self.amenders = by_cores() if amenders is None else amenders
        """Threads that place at the same time; when they were not asked for by number, only where that pays."""
        self.seed, self.widening, self.worth_sharing = seed, widening, worth_sharing
        self.listener: Callable[[Difference], None] | None = None
        """The consumer of placement changes. It gets every difference, whichever caller asked for the batch."""
        self._asked_for = amenders is not None
        self._pool = ThreadPoolExecutor(self.amenders, "amender") if self.amenders > 1 else None
        self.space_bytes = 0
        """Bytes that keeping the cost space up to date would exchange, since the beginning."""
        self._batch = 0

    @property
    def batches(self) -> int:
        """The number of batches it has run: with the seed it determines the random choices of the next one."""
        return self._batch

    @property
    def needs_cost_space(self) -> bool:
        """Whether the catalog's cost space is used, and has to be kept up to date."""
        return self.mechanism.metadata.needs_cost_space or bool(self.parted)

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()

    def run(self, events: Sequence[ChangeEvent], *, escalates: bool = True) -> BatchReport:
        """One batch, start to end. Raises before anything changed when an event is bad.

        Without `escalates`, operators that the mechanism does not place wait, as far as this batch is concerned.
        """
        report = BatchReport(len(events))
        started = time.perf_counter()
        self.applicator.apply(events)
        if self.needs_cost_space or any(map(self.parted.places, events)):
            self.space_bytes += follow(self.catalog, events, self.seed + self._batch)
        self.parted.follow(events, self.mechanism)
        self.escalation.heed(events)
        applied = time.perf_counter()
        only_additions = all(isinstance(e, QueryAdded) for e in events)
        entries = self.log.take(self.catalog.plan, retry=not only_additions)
        if self.widening:
            entries = self.widening(self.catalog.plan, entries)
        merge_s = 0.0
        for _ in range(ROUNDS):
            before = time.perf_counter()
            found = deltas(self.catalog.plan, entries)
            merge_s += time.perf_counter() - before
            entries = self._note_all(self._amend_all(found), report)
            if not entries:
                break
        self.log.waiting.extend(entries)
        if escalates and self.log.waiting and self.widening is None:
            self._escalate(report)
        self.applicator.routes.heed()
        report.complete(self.catalog.difference())
        if self.listener is not None:
            self.listener(report.difference)
        report.apply_s, report.merge_s = applied - started, merge_s
        report.amend_s = time.perf_counter() - applied - merge_s
        self._batch += 1
        return report

    # ---------------------------------------------------------------- amending

    def _amend_all(self, found: list[Delta]) -> list[Amended]:
        shared = self._shared(found)
        if self._pool is None or len(shared) < 2:
            return [self._amend_alone(delta) for delta in found]
        first = set(range(len(found))).difference(shared)
        done = {at: self._amend_alone(found[at]) for at in sorted(first)}  # while no other amender is at work
        shared.sort(key=lambda at: -len(found[at].operators))  # the longest ones begin
        done.update(zip(shared, self._pool.map(self._amend, [found[at] for at in shared]), strict=True))
        return [done[at] for at in range(len(found))]

    def _shared(self, found: list[Delta]) -> list[int]:
        """The deltas that amenders should work on at the same time."""
        if self._pool is None or len(found) < 2:
            return []
        if self._asked_for and sum([len(delta.operators) for delta in found]) >= self.worth_sharing:
            return list(range(len(found)))
        if not self.mechanism.metadata.leaves_lock:
            return []
        return [at for at, delta in enumerate(found) if self._pays(delta)]

    def _pays(self, delta: Delta) -> bool:
        """Whether a delta is large, and its solver lets others compute meanwhile."""
        if len(delta.operators) < LARGE:
            return False
        plan, gone = self.catalog.plan, OperatorState.TO_BE_REMOVED
        free = [o for o in delta.operators if plan[o].pin is None and plan[o].state is not gone]
        return len(free) >= LARGE and self.mechanism.leaves_lock_for(free)

    def _amend_alone(self, delta: Delta) -> Amended:
        """Amends one delta after the other: there are no other amenders, so nothing is locked or checked twice."""
        result = self.control.settle_alone(partial(self._draft, delta))
        return Amended(delta, result, NO_EFFORT, outcome_of(result))

    def _amend(self, delta: Delta) -> Amended:
        effort = Effort()
        result = self.control.settle(delta, partial(self._draft, delta), effort)
        return Amended(delta, result, effort, outcome_of(result))

    def _draft(self, delta: Delta, room: Room) -> AmendmentDraft:
        try:
            return draft(self.catalog, delta, self.mechanism, room, self.seed + self._batch)
        except Exception as error:  # a mechanism that breaks must not take the engine with it
            reason = f"mechanism {self.mechanism.name} failed: {error}"
            return removal_only(self.catalog, delta, Room(self.catalog.ledger), reason)

    # ---------------------------------------------------------------- widening

    def _escalate(self, report: BatchReport) -> None:
        """Tries unplaced operators again with more of their surroundings, while no other amender runs."""

        def trial(delta: Delta, solver: bool) -> bool:
            return self._widened(delta, solver, report)

        plan, log = self.catalog.plan, self.log
        for _ in range(ROUNDS):
            before = report.widened
            self.escalation.pursue(deltas(plan, log.waiting), trial)
            log.tidy(plan)
            if report.widened == before or not log.waiting:
                return
            # what has come and moved makes other reasons true for the rest, or has made room for it
            again, log.waiting = deltas(plan, log.waiting), []
            log.waiting += self._note_all([self._amend_alone(delta) for delta in again], report)
            log.tidy(plan)

    def _widened(self, delta: Delta, solver: bool, report: BatchReport) -> bool:
        """Takes a wider draft if it places more and everything that runs goes on running; otherwise changes nothing."""
        catalog, plan = self.catalog, self.catalog.plan
        running = [o for o in delta.operators if plan[o].state is OperatorState.PLACED]
        for operator in running:
            plan[operator].become(OperatorState.TO_BE_REPLACED)
        report.widened_tries += 1
        room = Room(catalog.ledger)
        if solver:
            result = draft_packed(catalog, delta, self.mechanism, room, self.seed + self._batch)
        else:
            result = self._draft(delta, room)
        better = len(result.nodes) > len(running) and all(o in result.nodes for o in running)
        if result.overtaken or result.unrouted or not better:
            for operator in running:
                plan[operator].become(OperatorState.PLACED)
            return False
        charge(catalog.ledger, result.room)
        for operator in result.unplaced:
            result.unplaced[operator] = plan[operator].reason or result.unplaced[operator]
        report.widened += 1
        self._note(Amended(delta, result, NO_EFFORT, outcome_of(result)), report, [])
        return True

    # ---------------------------------------------------------------- noting

    def _note_all(self, amended: list[Amended], report: BatchReport) -> list[Entry]:
        """Writes all outcomes down; returns the deltas that are worth another round at once."""
        gone: list[OperatorId] = []
        again: list[Entry] = []
        for each in amended:
            self._note(each, report, gone)
            if each.draft.unrouted:
                again.extend(self._stranded(each))
        if gone:
            forget(self.catalog, gone)
        return again

    def _note(self, amended: Amended, report: BatchReport, gone: list[OperatorId]) -> None:
        catalog, plan = self.catalog, self.catalog.plan
        delta, result = amended.delta, amended.draft
        cause = "; ".join(delta.causes)
        for edge in result.lifted_routes:
            catalog.lift_route(edge)
        for operator in result.lifted:
            catalog.lift(operator)
        for operator in delta.operators:
            record = plan[operator]
            node = result.nodes.get(operator)
            report.causes[operator] = cause
            if record.state is OperatorState.TO_BE_REMOVED:
                gone.append(operator)
            elif node is not None:
                catalog.put(operator, node)
                record.become(OperatorState.PLACED)
                record.reason = None
            else:
                if record.state is OperatorState.TO_BE_REPLACED:
                    record.become(OperatorState.TO_BE_PLACED)
                record.reason = result.unplaced[operator]
                catalog.wait(operator)
        for edge, path in result.routes.items():
            catalog.put_route(edge, path)
        if delta.edges or delta.optional:
            report.route_causes.update(dict.fromkeys(result.routes, cause))
        self.escalation.trust(delta.operators, not (result.broken or result.overtaken))
        if result.unplaced:
            self._keep_waiting(delta, result, cause)
        self._count(amended, report)

    def _keep_waiting(self, delta: Delta, result: AmendmentDraft, cause: str) -> None:
        """Puts operators that could not be placed back into the log."""
        operators = frozenset(o for o in delta.operators if o in result.unplaced)
        self.log.waiting.append(Entry(operators, frozenset(), cause))

    def _stranded(self, amended: Amended) -> list[Entry]:
        """Operators that stayed, but whose edge found no path with enough bandwidth: one end has to move."""
        plan = self.catalog.plan
        found: dict[OperatorId, None] = {}
        for (upstream, reader), reason in amended.draft.unrouted.items():
            victim = upstream if plan[reader].pin is not None and plan[upstream].pin is None else reader
            if plan[victim].state is OperatorState.PLACED:
                plan[victim].become(OperatorState.TO_BE_REPLACED)
            plan[victim].reason = reason
            found[victim] = None
        return [Entry(frozenset({o}), frozenset(), "; ".join(amended.delta.causes)) for o in found]

    @staticmethod
    def _count(amended: Amended, report: BatchReport) -> None:
        report.deltas += 1
        report.touched += amended.delta.touched
        report.results[amended.result] += 1
        if amended.effort is not NO_EFFORT:
            report.aborts += amended.effort.aborts
            report.lock_s += amended.effort.lock_s
            report.validation_s += amended.effort.validation_s
        if amended.draft.proposal is not None:
            report.messages += amended.draft.proposal.messages
            report.message_bytes += amended.draft.proposal.bytes
