"""The placement engine: batches of change events in, placement changes out.

One batch after the other: apply, merge into deltas, amend them with a pool of threads, note the results in the catalog.
Amenders decide and charge the ledger concurrently; only this module writes their results down, so the catalog has one
writer. What could not be placed stays in the change log and is tried again.
"""

from __future__ import annotations

import time
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
from meander.place.amendment import Draft, draft, removal_only
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog, Delta, Entry, deltas
from meander.place.control import CONTROLS, Effort
from meander.place.costspace.upkeep import follow
from meander.place.mechanisms.base import Mechanism
from meander.place.room import Room
from meander.place.sharing import forget

ROUNDS = 2
"""Rounds of amending in a batch: the second is for operators whose edges the first could not route."""

WORTH_SHARING = 64
"""A batch with fewer operators is amended by the caller: waking threads would take longer."""

Widening = Callable[[GlobalPlan, list[Entry]], list[Entry]]


class Result(Enum):
    """How amending a delta ended."""

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
    draft: Draft
    effort: Effort
    result: Result


@dataclass(slots=True)
class BatchReport:
    """What a batch changed and what it took."""

    events: int
    moves: list[Move] = field(default_factory=list)
    rerouted: list[Edge] = field(default_factory=list)
    unplaced: dict[OperatorId, str] = field(default_factory=dict)
    results: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))
    deltas: int = 0
    touched: int = 0
    """Operators that amending looked at."""
    aborts: int = 0
    messages: int = 0
    message_bytes: int = 0
    apply_s: float = 0.0
    merge_s: float = 0.0
    amend_s: float = 0.0
    lock_s: float = 0.0
    validation_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.apply_s + self.merge_s + self.amend_s


NO_EFFORT = Effort()


def outcome_of(result: Draft) -> Result:
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
        amenders: int = 1,
        control: str = "optimistic",
        seed: int = 0,
        widening: Widening | None = None,
        worth_sharing: int = WORTH_SHARING,
    ) -> None:
        if control not in CONTROLS:
            raise unknown("concurrency control", control, CONTROLS)
        self.catalog, self.mechanism = catalog, mechanism
        self.log = ChangeLog()
        self.applicator = Applicator(catalog, self.log)
        self.control = CONTROLS[control](catalog, seed)
        self.seed, self.amenders, self.widening, self.worth_sharing = seed, amenders, widening, worth_sharing
        self._pool = ThreadPoolExecutor(amenders, "amender") if amenders > 1 else None
        self._batch = 0

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()

    def run(self, events: Sequence[ChangeEvent]) -> BatchReport:
        """One batch, start to end. Raises before anything changed when an event is bad."""
        report = BatchReport(len(events))
        started = time.perf_counter()
        self.applicator.apply(events)
        if self.mechanism.metadata.needs_cost_space:
            follow(self.catalog, events, self.seed + self._batch)
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
        report.apply_s, report.merge_s = applied - started, merge_s
        report.amend_s = time.perf_counter() - applied - merge_s
        self._batch += 1
        return report

    # ---------------------------------------------------------------- amending

    def _amend_all(self, found: list[Delta]) -> list[Amended]:
        small = sum([len(delta.operators) for delta in found]) < self.worth_sharing
        if self._pool is None or len(found) < 2 or small:
            return [self._amend_alone(delta) for delta in found]
        return list(self._pool.map(self._amend, found))

    def _amend_alone(self, delta: Delta) -> Amended:
        """One delta after the other: nobody interferes, so nothing is locked or checked twice."""
        result = self.control.settle_alone(partial(self._draft, delta))
        return Amended(delta, result, NO_EFFORT, outcome_of(result))

    def _amend(self, delta: Delta) -> Amended:
        effort = Effort()
        result = self.control.settle(delta, partial(self._draft, delta), effort)
        return Amended(delta, result, effort, outcome_of(result))

    def _draft(self, delta: Delta, room: Room) -> Draft:
        try:
            return draft(self.catalog, delta, self.mechanism, room, self.seed + self._batch)
        except Exception as error:  # a mechanism that breaks must not take the engine with it
            reason = f"mechanism {self.mechanism.name} failed: {error}"
            return removal_only(self.catalog, delta, Room(self.catalog.ledger), reason)

    # ---------------------------------------------------------------- noting

    def _note_all(self, amended: list[Amended], report: BatchReport) -> list[Entry]:
        """Writes all outcomes down; returns what is worth another round at once."""
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
        former = {operator: catalog.lift(operator) for operator in result.lifted}
        for operator in delta.operators:
            record = plan[operator]
            node = result.nodes.get(operator)
            before = former.get(operator)
            if record.state is OperatorState.TO_BE_REMOVED:
                gone.append(operator)
            elif node is not None:
                catalog.put(operator, node)
                record.become(OperatorState.PLACED)
                record.reason = None
            else:
                if record.state is OperatorState.TO_BE_REPLACED:
                    record.become(OperatorState.TO_BE_PLACED)
                record.reason = report.unplaced[operator] = result.unplaced[operator]
            if before != node:
                report.moves.append(Move(operator, before, node, cause))
        for edge, path in result.routes.items():
            catalog.put_route(edge, path)
        if delta.edges:
            report.rerouted.extend(e for e in delta.edges if e in result.routes)
        if result.unplaced:
            self._keep_waiting(delta, result, cause)
        self._count(amended, report)

    def _keep_waiting(self, delta: Delta, result: Draft, cause: str) -> None:
        """What could not be placed goes back to the log."""
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
