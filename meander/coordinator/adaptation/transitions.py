"""Transitions on the running data plane: a query's operators move to where another mechanism wants them.

The new mechanism places the query's operators; then they move, in the steps that the protocol orders. Only operators
whose node changes are touched. When a step is taken back too often, the old mechanism places the query again, and what
has moved moves back: the query runs throughout. How far a transition is, is written down before every step; after a
crash it goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from meander.adapt.decisions import Outcome, Transition
from meander.adapt.per_query import assign, place_again
from meander.coordinator.adaptation.costs import Cost
from meander.coordinator.adaptation.transition_records import TransitionProgress, progress_of, record_of
from meander.coordinator.loop import Applied, PlacementLoop
from meander.deploy.protocols.transitions import TRANSITIONS, Itinerary, Step, transition_protocol
from meander.model.errors import InputError
from meander.model.global_plan import GlobalPlan
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.engine import BatchReport
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.decisions import TransitionRecord
from meander.run.store.records.record import forget

_log = logging.getLogger(__name__)
PROTOCOLS = tuple(p.name for p in TRANSITIONS)
MOST_RETRIES = 2
LATE_WANTED = "late tuples are asked for and must be told once, so its state is moved"

SURROUNDED = "what it reads or what reads it changed at the same time, so its state was moved"


@dataclass(slots=True)
class _Course:
    """One transition under way."""

    transition: Transition
    itinerary: Itinerary
    report: BatchReport
    started: float
    placement_s: float
    waiting: list[Step] = field(default_factory=list)
    applied: Applied | None = None
    step: Step | None = None
    """What is under way; None while operators get fragments of their own, or join others again."""
    step_started: float = 0.0
    steps: int = 0
    moved: tuple[OperatorId, ...] = ()
    arrived: float | None = None
    """When the last operator ran at its new place."""
    cost: Cost = field(default_factory=Cost)
    returning: str | None = None
    """Why it goes back, once it does."""


class Transitions:
    """Implements the adaptation loop's `Executor` on a running loop."""

    def __init__(self, loop: PlacementLoop, protocol: str = "mfgs_concurrent") -> None:
        self.protocol = transition_protocol(protocol)
        self.loop = loop
        self.costs: dict[QueryId, Cost] = {}
        """Of the last transition of each query."""
        self.selection_s = 0.0
        """What choosing the mechanism took, for each transition that is started next."""
        self._courses: dict[QueryId, _Course] = {}
        self._gathering = 0
        self._is_due = False
        """Whether something has been said that the loop has not begun with."""

    @property
    def under_way(self) -> tuple[QueryId, ...]:
        return tuple(self._courses)

    def start(self, transition: Transition) -> None:
        """Places the query anew and begins to move it. Raises when it cannot; the old mechanism has it again then."""
        if transition.query in self._courses:
            raise InputError(f"query {transition.query!r} is in a transition already; wait until it has ended")
        course = self._placed(transition, transition.target, escalates=False)
        if course.report.unplaced:
            operator, reason = next(iter(course.report.unplaced.items()))
            self._give_back(transition, course)
            raise InputError(f"{transition.target} finds no place for operator {operator}: {reason}")
        course.cost.selection_s = self.selection_s
        self._courses[transition.query] = course
        try:
            with self.together():
                self._begin(course)
        except JournalError as error:
            if course.applied is None:
                del self._courses[transition.query]
                self._give_back(transition, course)
            raise InputError(f"the transition of query {transition.query!r} cannot begin: {error}") from None

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is started inside begins at its end, all at the same time: slots stop between two steps once, not for
        every query."""
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

    def _give_back(self, transition: Transition, course: _Course) -> None:
        """The old mechanism places the query again; where that differs from what runs, it moves as for any change."""
        back = self._placed(transition, transition.source)
        self._release((*course.moved, *back.moved))
        self.loop.follow(back.moved, back.report, self.loop.clock())

    def _placed(self, transition: Transition, mechanism: str, *, escalates: bool = True) -> _Course:
        """The course to where a mechanism wants the query; its operators are held where they are.

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
        itinerary = self._itinerary(loop.catalog.plan, moved)
        course = _Course(transition, itinerary, report, started, clock() - started, list(itinerary.steps))
        course.moved = tuple(moved)
        course.cost.count_placement(report, course.placement_s)
        return course

    def _runs_on(self, operator: OperatorId) -> NodeId | None:
        deployment = self.loop.deployer.deployment
        owner = deployment.owner.get(operator)
        return None if owner is None else deployment.fragments[owner].node

    def _itinerary(self, plan: GlobalPlan, moved: list[OperatorId]) -> Itinerary:
        found = self.protocol.plan(plan, moved)
        if found.apart and self.loop.reconfigurator.late:
            reasons = {**found.reasons, **dict.fromkeys(found.apart, LATE_WANTED)}
            found = Itinerary(tuple(Step(s.operators) for s in found.steps), reasons=reasons)
        for operator, reason in found.reasons.items():
            _log.info("%s, operator %d: %s", self.protocol.name, operator, reason)
        return found

    # ---------------------------------------------------------------- steps

    def _begin(self, course: _Course) -> None:
        """Operators that need it get fragments of their own; what moves with its state anyway moves along."""
        alone = dict(course.itinerary.apart)
        if not alone:
            self._next(course)
            return
        self._set_apart(course)
        first: tuple[OperatorId, ...] = ()
        if course.waiting and course.waiting[0].protocol is None:
            course.step = course.waiting.pop(0)
            first = course.step.operators
        self._follow(course, first, alone)

    def _next(self, course: _Course) -> None:
        """Lets the next operators move; behind the last, those that were apart join others again."""
        course.step = course.waiting.pop(0) if course.waiting else None
        if course.step is not None:
            self._make_special(course.step)
            self._follow(course, course.step.operators)
            return
        course.arrived = self.loop.clock()
        apart = tuple(course.itinerary.apart)
        self._release(course.moved)
        self._follow(course, (), apart)

    def _set_apart(self, course: _Course) -> None:
        query, apart = course.transition.query, course.itinerary.apart
        self.loop.deployer.placed.apart.update((o, f"{query} {name}") for o, name in apart.items())

    def _make_special(self, step: Step) -> None:
        if step.protocol is not None:
            self.loop.deployer.special.update(dict.fromkeys(step.operators, step.protocol))

    def _follow(self, course: _Course, moving: Iterable[OperatorId], others: Iterable[OperatorId] = ()) -> None:
        """Lets operators move, and others be grouped anew."""
        moving = tuple(moving)
        for operator in moving:
            self.loop.deployer.placed.held.pop(operator, None)
        self._remember(course)
        course.steps += bool(moving)
        course.step_started = self.loop.clock()
        course.applied = self.loop.expect((*moving, *others), course.report, course.step_started)
        self._is_due = True

    def _release(self, operators: Iterable[OperatorId]) -> None:
        """Nothing is special about these operators any more."""
        deployer = self.loop.deployer
        for operator in operators:
            deployer.placed.held.pop(operator, None)
            deployer.placed.apart.pop(operator, None)
            deployer.special.pop(operator, None)

    def poll(self) -> Mapping[QueryId, Outcome]:
        """Transitions that ended since the last call, each told once. The loop is polled by its owner."""
        with self.together():
            return self._poll()

    def _poll(self) -> Mapping[QueryId, Outcome]:
        ended: dict[QueryId, Outcome] = {}
        for query, course in list(self._courses.items()):
            applied = course.applied
            assert applied is not None
            problems = [o.reason for o in applied.outcomes if o.reason is not None]
            if len(problems) > MOST_RETRIES and course.returning is None and course.arrived is None:
                self._count(course)
                self._return(course, problems[-1])
                continue
            if applied.ended is None:
                continue
            self._count(course)
            if course.arrived is None:
                self._next(course)
            latest = course.applied
            if course.arrived is not None and latest is not None and (latest is applied or latest.ended is not None):
                ended[query] = self._ended(query, course)
        return ended

    def _return(self, course: _Course, reason: str) -> None:
        """Back to the old mechanism's placement: operators that have not moved stay, the others move back."""
        self._release(course.moved)
        back = self._placed(course.transition, course.transition.source)
        back.returning, back.started, back.steps = reason, course.started, course.steps
        back.cost.add(course.cost)
        self.loop.deployer.note(course.moved)
        self._courses[course.transition.query] = back
        self._begin(back)

    # ---------------------------------------------------------------- crashes

    def _remember(self, course: _Course) -> None:
        """Writes down what is to be done next."""
        held = self.loop.deployer.placed.held
        later = {o: held[o] for step in course.waiting for o in step.operators if o in held}
        progress = TransitionProgress(
            course.transition,
            course.itinerary,
            course.moved,
            course.step,
            tuple(course.waiting),
            later,
            course.arrived is not None,
            course.returning,
        )
        self.loop.host.store.commit(Commit(records=(record_of(progress),)))

    def restore(self) -> tuple[Transition, ...]:
        """Takes up what was under way when the process ended. To be called before the loop recovers; then `resume`."""
        loop = self.loop
        for query, record in loop.host.store.records(TransitionRecord).items():
            if query not in loop.catalog.plan.queries:
                loop.host.store.commit(Commit(records=(forget(TransitionRecord, query),)))
                continue
            found = progress_of(record)
            now = loop.clock()
            course = _Course(found.transition, found.itinerary, BatchReport(0), now, 0.0, list(found.waiting))
            course.moved, course.step, course.returning = found.moved, found.step, found.returning
            course.arrived = now if found.has_arrived else None
            self._courses[query] = course
            chosen = found.transition.target if found.returning is None else found.transition.source
            assign(loop.engine, query, chosen)
            if found.has_arrived:
                continue
            self._set_apart(course)
            if course.step is not None:
                self._make_special(course.step)
            alive = loop.catalog.topology.is_alive
            loop.deployer.placed.held.update((o, node) for o, node in found.held.items() if alive(node))
        return tuple(c.transition for c in self._courses.values())

    def resume(self) -> None:
        """Goes on with what was restored. To be called after the loop has recovered."""
        loop = self.loop
        for course in self._courses.values():
            moving = course.step.operators if course.step is not None else ()
            mine = {*moving, *course.itinerary.apart}
            course.step_started = loop.clock()
            course.applied = loop.expect(mine, course.report, course.step_started, join=True)
        loop.begin_expected()

    # ---------------------------------------------------------------- ending

    def _count(self, course: _Course) -> None:
        """Adds what the step that ends took."""
        applied = course.applied
        assert applied is not None
        ended = self.loop.clock() if applied.ended is None else applied.ended
        moving = course.step.operators if course.step is not None else ()
        plan = self.loop.catalog.plan
        kinds = {o: type(plan[o].spec).__name__ for o in moving if o in plan.operators}
        waited = course.step_started - course.started - course.placement_s
        seconds = ended - course.step_started if course.arrived is None else 0.0
        course.cost.count_step(applied.outcomes, seconds, kinds, waited)
        if course.step is not None and course.step.protocol is not None and course.step.protocol.overlaps:
            done = [o for o in applied.outcomes if o.reason is None and not o.overlapped]
            with_state = {o: SURROUNDED for outcome in done for o in outcome.operators if o in kinds}
            course.cost.reasons = {**course.cost.reasons, **with_state}

    def _ended(self, query: QueryId, course: _Course) -> Outcome:
        del self._courses[query]
        self.loop.host.store.commit(Commit(records=(forget(TransitionRecord, query),)))
        if course.arrived is not None:
            course.cost.tidying_s = self.loop.clock() - course.arrived
        seconds = self.loop.clock() - course.started
        course.cost.steps, course.cost.moved = course.steps, len(course.moved)
        course.cost.reasons = {**course.itinerary.reasons, **course.cost.reasons}
        self.costs[query] = course.cost
        done = course.returning is None
        return Outcome(done, course.returning or course.cost.remark, seconds, float(course.cost.bytes))
