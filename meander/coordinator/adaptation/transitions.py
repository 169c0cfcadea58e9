"""Transitions on the running data plane: a query's operators move to where another mechanism wants them.

The new mechanism places the query's operators; then they move, in the steps that the protocol orders. Only operators
whose node changes are touched. When a step is aborted too often, the old mechanism places the query again, and moved
operators move back: the query runs throughout. How far a transition is, is written down before every step; after a
crash it goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from meander.adapt.decisions import Transition, TransitionOutcome
from meander.adapt.per_query import assign, place_again
from meander.adapt.transition_prediction import TransitionPrediction
from meander.coordinator.adaptation.transition_costs import Cost, overlap_bytes
from meander.coordinator.adaptation.transition_predictor import Ends, TransitionPredictor
from meander.coordinator.adaptation.transition_records import TransitionProgress, progress_of, record_of
from meander.coordinator.loop.applied import Applied
from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.protocols.transitions import (
    TRANSITIONS,
    Itinerary,
    Step,
    TransitionProtocol,
    transition_protocol,
)
from meander.model.errors import InputError
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.engine import BatchReport
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.decisions import TransitionRecord
from meander.run.store.records.record import forget

_log = logging.getLogger(__name__)
PROTOCOLS = tuple(p.name for p in TRANSITIONS)
MOST_RETRIES = 2
SURROUNDED = "what it reads or what reads it changed at the same time, so its state was moved"


@dataclass(slots=True)
class _RunningTransition:
    """One transition in flight."""

    transition: Transition
    itinerary: Itinerary
    report: BatchReport
    started: float
    placement_s: float
    waiting: list[Step] = field(default_factory=list)
    applied: Applied | None = None
    step: Step | None = None
    """The step in flight; None while operators get fragments of their own, or join others again."""
    step_started: float = 0.0
    steps: int = 0
    moved: tuple[OperatorId, ...] = ()
    arrived: float | None = None
    """The time at which the last operator ran at its new place."""
    cost: Cost = field(default_factory=Cost)
    prediction: TransitionPrediction | None = None
    retried: bool = False
    """Whether a step was aborted, so that its times say nothing about others."""
    returning: str | None = None
    """The reason why it goes back, once it does."""


class Transitions:
    """Implements the adaptation loop's `Executor` on a running loop."""

    def __init__(self, loop: PlacementLoop, protocol: str) -> None:
        self.protocol = transition_protocol(protocol)
        self.loop = loop
        self.costs: dict[QueryId, Cost] = {}
        """Of the last transition of each query."""
        self.selection_s = 0.0
        """The time that choosing the mechanism took, for each transition that is started next."""
        self.predictor = TransitionPredictor(loop)
        self._running: dict[QueryId, _RunningTransition] = {}
        self._gathering = 0
        self._is_due = False
        """Whether something has been said that the loop has not begun with."""

    @property
    def under_way(self) -> tuple[QueryId, ...]:
        return tuple(self._running)

    def start(self, transition: Transition) -> None:
        """Places the query anew and begins to move it. Raises when it cannot; the old mechanism has it again then."""
        if transition.query in self._running:
            raise InputError(f"query {transition.query!r} is in a transition already; wait until it has ended")
        running = self._placed(transition, transition.target, escalates=False)
        if running.report.unplaced:
            operator, reason = next(iter(running.report.unplaced.items()))
            self._give_back(transition, running)
            raise InputError(f"{transition.target} finds no place for operator {operator}: {reason}")
        running.cost.selection_s = self.selection_s
        self._running[transition.query] = running
        try:
            with self.together():
                self._begin(running)
        except JournalError as error:
            if running.applied is None:
                del self._running[transition.query]
                self._give_back(transition, running)
            raise InputError(f"the transition of query {transition.query!r} cannot begin: {error}") from None

    def give_up(self, query: QueryId) -> None:
        """The query is about to be stopped: what it shares with others follows its placement as in any change."""
        running = self._running.pop(query, None)
        if running is None:
            return
        operators = (*running.moved, *running.itinerary.apart)
        self._release(operators)
        self.loop.deployer.note(operators)
        with suppress(JournalError):  # a restart forgets transitions of queries that are gone
            self.loop.host.store.commit(Commit(records=(forget(TransitionRecord, query),)))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Collects transitions that are started inside, and begins them at the end, all at the same time: slots stop
        between two steps once, not for every query."""
        self._gathering += 1
        try:
            yield
        finally:
            self._gathering -= 1
            if self._is_due and not self._gathering:
                self._is_due = False
                try:
                    self.loop.begin_expected()
                except JournalError as error:
                    _log.warning("transitions begin later: %s", error)  # the loop tries again

    def _give_back(self, transition: Transition, running: _RunningTransition) -> None:
        """The old mechanism places the query again; where that differs from the deployment, it moves as for any
        change."""
        back = self._placed(transition, transition.source)
        self._release((*running.moved, *back.moved))
        self.loop.follow(back.moved, back.report, self.loop.clock())

    def _placed(self, transition: Transition, mechanism: str, *, escalates: bool = True) -> _RunningTransition:
        """The transition to where a mechanism wants the query; its operators are held where they are.

        Without `escalates` it is the mechanism's own answer: one that only a solver finds is no reason to switch.
        """
        loop, clock = self.loop, self.loop.clock
        held = loop.deployer.placed.held
        started = clock()
        report = place_again(loop.engine, transition.query, mechanism, escalates=escalates)
        nodes, moved = loop.catalog.placement.nodes, []
        for operator in dict.fromkeys(m.operator for m in report.moves):
            here = self._runs_on(operator)
            if here is None or nodes.get(operator) == here:
                held.pop(operator, None)
            else:
                held[operator] = here
                moved.append(operator)
        ends = {o: (held[o], nodes[o]) for o in moved if o in nodes}
        protocol = transition_protocol(transition.protocol) if transition.protocol else self.protocol
        itinerary, prediction = self._itinerary(moved, ends, protocol)
        running = _RunningTransition(transition, itinerary, report, started, clock() - started, list(itinerary.steps))
        running.prediction = prediction
        running.moved = tuple(moved)
        running.cost.count_placement(report, running.placement_s)
        return running

    def _runs_on(self, operator: OperatorId) -> NodeId | None:
        deployment = self.loop.deployer.deployment
        owner = deployment.owner.get(operator)
        return None if owner is None else deployment.fragments[owner].node

    def _itinerary(
        self, moved: list[OperatorId], ends: Ends, protocol: TransitionProtocol
    ) -> tuple[Itinerary, TransitionPrediction]:
        found, prediction = self.predictor.plan(protocol, ends)
        if not protocol.is_auto:
            found = protocol.plan(self.loop.catalog.plan, moved)
        for operator, reason in found.reasons.items():
            _log.info("%s, operator %d: %s", protocol.name, operator, reason)
        return found, prediction

    # ---------------------------------------------------------------- steps

    def _begin(self, running: _RunningTransition) -> None:
        """Operators that need it get fragments of their own; operators that move with their state anyway move along."""
        alone = dict(running.itinerary.apart)
        if not alone:
            self._next(running)
            return
        self._set_apart(running)
        first: tuple[OperatorId, ...] = ()
        if running.waiting and running.waiting[0].protocol is None:
            running.step = running.waiting.pop(0)
            first = running.step.operators
        self._follow(running, first, alone)

    def _next(self, running: _RunningTransition) -> None:
        """Lets the next operators move; behind the last, those that were apart join others again."""
        running.step = running.waiting.pop(0) if running.waiting else None
        if running.step is not None:
            self._make_special(running.step)
            self._follow(running, running.step.operators)
            return
        running.arrived = self.loop.clock()
        apart = tuple(running.itinerary.apart)
        self._release(running.moved)
        self._follow(running, (), apart)

    def _set_apart(self, running: _RunningTransition) -> None:
        query, apart = running.transition.query, running.itinerary.apart
        self.loop.deployer.placed.apart.update((o, f"{query} {name}") for o, name in apart.items())

    def _make_special(self, step: Step) -> None:
        if step.protocol is not None:
            self.loop.deployer.special.update(dict.fromkeys(step.operators, step.protocol))

    def _follow(
        self, running: _RunningTransition, moving: Iterable[OperatorId], others: Iterable[OperatorId] = ()
    ) -> None:
        """Lets operators move, and others be grouped anew."""
        moving = tuple(moving)
        for operator in moving:
            self.loop.deployer.placed.held.pop(operator, None)
        self._save(running)
        running.steps += bool(moving)
        running.step_started = self.loop.clock()
        running.applied = self.loop.expect((*moving, *others), running.report, running.step_started)
        self._is_due = True

    def _release(self, operators: Iterable[OperatorId]) -> None:
        """Nothing is special about these operators any more."""
        deployer = self.loop.deployer
        for operator in operators:
            deployer.placed.held.pop(operator, None)
            deployer.placed.apart.pop(operator, None)
            deployer.special.pop(operator, None)

    def poll(self) -> Mapping[QueryId, TransitionOutcome]:
        """Transitions that ended since the last call, each told once. The loop is polled by its owner."""
        with self.together():
            return self._poll()

    def _poll(self) -> Mapping[QueryId, TransitionOutcome]:
        ended: dict[QueryId, TransitionOutcome] = {}
        for query, running in list(self._running.items()):
            applied = running.applied
            assert applied is not None
            problems = [o.reason for o in applied.outcomes if o.reason is not None]
            if len(problems) > MOST_RETRIES and running.returning is None and running.arrived is None:
                self._count(running)
                self._return(running, problems[-1])
                continue
            if applied.ended is None:
                continue
            self._count(running)
            if running.arrived is None:
                self._next(running)
            latest = running.applied
            if running.arrived is not None and latest is not None and (latest is applied or latest.ended is not None):
                ended[query] = self._ended(query, running)
        return ended

    def _return(self, running: _RunningTransition, reason: str) -> None:
        """Back to the old mechanism's placement: operators that have not moved stay, the others move back."""
        self._release(running.moved)
        back = self._placed(running.transition, running.transition.source)
        back.returning, back.started, back.steps = reason, running.started, running.steps
        back.cost.add(running.cost)
        self.loop.deployer.note(running.moved)
        self._running[running.transition.query] = back
        self._begin(back)

    # ---------------------------------------------------------------- crashes

    def _save(self, running: _RunningTransition) -> None:
        """Writes down the next step."""
        held = self.loop.deployer.placed.held
        later = {o: held[o] for step in running.waiting for o in step.operators if o in held}
        progress = TransitionProgress(
            running.transition,
            running.itinerary,
            running.moved,
            running.step,
            tuple(running.waiting),
            later,
            running.arrived is not None,
            running.returning,
        )
        self.loop.host.store.commit(Commit(records=(record_of(progress),)))

    def restore(self) -> tuple[Transition, ...]:
        """Takes up transitions that were in flight when the process ended. To be called before the loop recovers;
        then `resume`."""
        loop = self.loop
        for query, record in loop.host.store.records(TransitionRecord).items():
            if query not in loop.catalog.plan.queries:
                loop.host.store.commit(Commit(records=(forget(TransitionRecord, query),)))
                continue
            found = progress_of(record)
            now = loop.clock()
            running = _RunningTransition(
                found.transition, found.itinerary, BatchReport(0), now, 0.0, list(found.waiting)
            )
            running.moved, running.step, running.returning = found.moved, found.step, found.returning
            running.arrived = now if found.has_arrived else None
            self._running[query] = running
            chosen = found.transition.target if found.returning is None else found.transition.source
            assign(loop.engine, query, chosen)
            if found.has_arrived:
                continue
            self._set_apart(running)
            if running.step is not None:
                self._make_special(running.step)
            alive = loop.catalog.topology.is_alive
            loop.deployer.placed.held.update((o, node) for o, node in found.held.items() if alive(node))
        return tuple(c.transition for c in self._running.values())

    def resume(self) -> None:
        """Goes on with restored transitions. To be called after the loop has recovered."""
        loop = self.loop
        for running in self._running.values():
            moving = running.step.operators if running.step is not None else ()
            mine = {*moving, *running.itinerary.apart}
            running.step_started = loop.clock()
            running.applied = loop.expect(mine, running.report, running.step_started, join=True)
        loop.begin_expected()

    # ---------------------------------------------------------------- ending

    def _count(self, running: _RunningTransition) -> None:
        """Adds what the step that ends took."""
        applied = running.applied
        assert applied is not None
        ended = self.loop.clock() if applied.ended is None else applied.ended
        running.retried = running.retried or any(o.reason is not None for o in applied.outcomes)
        moving = running.step.operators if running.step is not None else ()
        plan = self.loop.catalog.plan
        kinds = {o: type(plan[o].spec).__name__ for o in moving if o in plan.operators}
        waited = running.step_started - running.started - running.placement_s
        seconds = ended - running.step_started if running.arrived is None else 0.0
        running.cost.count_step(applied.outcomes, seconds, kinds, waited)
        if running.step is not None and running.step.protocol is not None and running.step.protocol.overlaps:
            running.cost.overlap_bytes += overlap_bytes(self.loop, running.step.operators)
            done = [o for o in applied.outcomes if o.reason is None and not o.overlapped]
            with_state = {o: SURROUNDED for outcome in done for o in outcome.operators if o in kinds}
            running.cost.reasons = {**running.cost.reasons, **with_state}

    def _ended(self, query: QueryId, running: _RunningTransition) -> TransitionOutcome:
        del self._running[query]
        self.loop.host.store.commit(Commit(records=(forget(TransitionRecord, query),)))
        applied = running.applied
        last = self.loop.clock() if applied is None or applied.ended is None else applied.ended
        if running.arrived is not None:
            running.cost.tidying_s = max(0.0, last - running.arrived)
        seconds = running.cost.total_s = last - running.started + running.cost.selection_s
        running.cost.steps, running.cost.moved = running.steps, len(running.moved)
        running.cost.reasons = {**running.itinerary.reasons, **running.cost.reasons}
        self.costs[query] = running.cost
        done, cost = running.returning is None, running.cost
        if done and running.prediction is not None and not running.retried:
            self.predictor.pace.learn(running.prediction, seconds, cost.waiting_s, cost.control_bytes)
        took = cost.took(running.prediction)
        return TransitionOutcome(done, running.returning or cost.remark, seconds, float(cost.bytes), took)
