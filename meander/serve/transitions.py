"""Transitions on the running data plane: a query's operators move to where another mechanism wants them.

The new mechanism places the query's operators; then they move, in steps that the protocol orders. Only operators whose
node changes are touched. When a step is taken back too often, the old mechanism places the query again, and what has
moved moves back: the query runs throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from meander.adapt.decisions import Outcome, Transition
from meander.adapt.per_query import place_again
from meander.deploy.protocols.mfgs import all_at_once, levels, one_by_one
from meander.model.errors import InputError, unknown
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId, QueryId
from meander.place.engine import BatchReport
from meander.serve.loop import Applied, Loop

Order = Callable[[GlobalPlan, Iterable[OperatorId]], list[list[OperatorId]]]
ORDERS: Mapping[str, Order] = {"mfgs_sequential": one_by_one, "mfgs_concurrent": levels, "at_once": all_at_once}
"""Transition protocols, by the order in which operators move."""
MOST_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """What a transition took, each part once."""

    placement_s: float
    migration_s: float
    """Until the last operator ran at its new place, without placing."""
    steps: int
    moved: int
    state_bytes: int
    contexts: int
    """Deployment contexts that nodes got, also of steps that were taken back."""


@dataclass(slots=True)
class _Course:
    """One transition under way."""

    transition: Transition
    waiting: list[list[OperatorId]]
    report: BatchReport
    started: float
    placement_s: float
    applied: Applied | None = None
    steps: int = 0
    moved: int = 0
    state_bytes: int = 0
    contexts: int = 0
    returning: str | None = None
    """Why it goes back, once it does."""

    def count(self) -> None:
        """Adds what the step that ends took."""
        outcomes = self.applied.outcomes if self.applied is not None else []
        self.state_bytes += sum(o.state_bytes for o in outcomes)
        self.contexts += sum(o.deployed + o.updated + o.undeployed for o in outcomes)


class Transitions:
    """Implements the adaptation loop's `Executor` on a running loop."""

    def __init__(self, loop: Loop, protocol: str = "mfgs_concurrent") -> None:
        if protocol not in ORDERS:
            raise unknown("transition protocol", protocol, ORDERS)
        self.loop, self.protocol = loop, protocol
        self.costs: dict[QueryId, Cost] = {}
        """Of the last transition of each query."""
        self._courses: dict[QueryId, _Course] = {}

    @property
    def under_way(self) -> tuple[QueryId, ...]:
        return tuple(self._courses)

    def start(self, transition: Transition) -> None:
        """Places the query anew and begins to move it. Raises when it cannot; the old mechanism has it again then."""
        if transition.query in self._courses:
            raise InputError(f"query {transition.query!r} is in a transition already; wait until it has ended")
        course = self._placed(transition, transition.target)
        if course.report.unplaced:
            operator, reason = next(iter(course.report.unplaced.items()))
            self._give_back(transition)
            raise InputError(f"{transition.target} finds no place for operator {operator}: {reason}")
        self._courses[transition.query] = course
        self._next(course)

    def _give_back(self, transition: Transition) -> None:
        """The old mechanism places the query again; where that differs from what runs, it moves as for any change."""
        back = self._placed(transition, transition.source)
        moving = [operator for level in back.waiting for operator in level]
        for operator in moving:
            self.loop.deployer.placed.held.pop(operator, None)
        self.loop.follow(moving, back.report, self.loop.clock())

    def _placed(self, transition: Transition, mechanism: str) -> _Course:
        """The course to where a mechanism wants the query; its operators are held where they are."""
        loop, clock = self.loop, self.loop.clock
        deployment, held = loop.deployer.deployment, loop.deployer.placed.held
        started = clock()
        report = place_again(loop.engine, transition.query, mechanism)
        nodes, moved = loop.catalog.placement.nodes, []
        for operator in dict.fromkeys(m.operator for m in report.moves):
            owner = deployment.owner.get(operator)
            here = None if owner is None else deployment.fragments[owner].node
            if here is None or nodes.get(operator) == here:
                held.pop(operator, None)
            else:
                held[operator] = here
                moved.append(operator)
        order = ORDERS[self.protocol](loop.catalog.plan, moved)
        course = _Course(transition, order, report, started, clock() - started)
        course.moved = len(moved)
        return course

    def _next(self, course: _Course) -> None:
        """Lets the next operators move."""
        operators = course.waiting.pop(0) if course.waiting else []
        for operator in operators:
            self.loop.deployer.placed.held.pop(operator, None)
        course.steps += bool(operators)
        course.applied = self.loop.follow(operators, course.report, self.loop.clock())

    def poll(self) -> Mapping[QueryId, Outcome]:
        """Transitions that ended since the last call, each told once. The loop is polled by its owner."""
        ended: dict[QueryId, Outcome] = {}
        for query, course in list(self._courses.items()):
            applied = course.applied
            assert applied is not None
            problems = [o.reason for o in applied.outcomes if o.reason is not None]
            if len(problems) > MOST_RETRIES and course.returning is None:
                course.count()
                self._return(course, problems[-1])
                continue
            if applied.ended is None:
                continue
            course.count()
            if course.waiting:
                self._next(course)
            else:
                ended[query] = self._ended(query, course)
        return ended

    def _return(self, course: _Course, reason: str) -> None:
        """Back to the old mechanism's placement: operators that have not moved stay, the others move back."""
        back = self._placed(course.transition, course.transition.source)
        back.returning, back.started = reason, course.started
        back.state_bytes, back.contexts, back.steps = course.state_bytes, course.contexts, course.steps
        self._courses[course.transition.query] = back
        self._next(back)

    def _ended(self, query: QueryId, course: _Course) -> Outcome:
        del self._courses[query]
        seconds = self.loop.clock() - course.started
        self.costs[query] = Cost(
            course.placement_s,
            seconds - course.placement_s,
            course.steps,
            course.moved,
            course.state_bytes,
            course.contexts,
        )
        done = course.returning is None
        return Outcome(done, course.returning or "", seconds, float(course.state_bytes))
