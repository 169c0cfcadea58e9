"""Several mechanisms in one engine: each query's operators are placed by the mechanism the query has at present.

An engine has one mechanism. This one hands each problem to the mechanism that most of its operators have. When that
one breaks, the fallback places the operators, so that nothing stops running, and the failure is kept for the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from meander.model.errors import unknown
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.problem import Problem, Proposal

MOST_PROPOSED = 10_000
"""Proposals that wait to be counted: more are left out, such as where nobody counts."""


class PerQuery(Mechanism):
    """Dispatches by operator."""

    name = "per_query"

    def __init__(self, library: Mapping[str, Mechanism], fallback: str) -> None:
        if fallback not in library:
            raise unknown("mechanism", fallback, library)
        self.library, self.fallback = dict(library), fallback
        self.by_operator: dict[OperatorId, str] = {}
        self.failures: list[tuple[str, str]] = []
        """Mechanisms that broke, with the reason, until the caller takes them."""
        self.proposed: list[tuple[str, tuple[OperatorId, ...], int]] = []
        """Mechanisms that placed operators, and the bytes of their messages, until the caller takes them."""
        self.metadata = self._metadata()

    def of(self, operator: OperatorId) -> str:
        """The mechanism that an operator has."""
        return self.by_operator.get(operator, self.fallback)

    def _metadata(self) -> Metadata:
        """A cost space is needed, and Python's lock left, while some operator has a mechanism that does."""
        used = [self.library[name].metadata for name in {self.fallback, *self.by_operator.values()}]
        return Metadata(
            (),
            "the mechanism that each query has",
            needs_cost_space=any(m.needs_cost_space for m in used),
            leaves_lock=any(m.leaves_lock for m in used),
        )

    def leaves_lock_for(self, operators: Sequence[OperatorId]) -> bool:
        """As the mechanism that would place them does."""
        return self.metadata.leaves_lock and self.library[self.elected(operators)].leaves_lock_for(operators)

    def assign(self, operators: Iterable[OperatorId], mechanism: str) -> None:
        if mechanism not in self.library:
            raise unknown("mechanism", mechanism, self.library)
        self.by_operator.update(dict.fromkeys(operators, mechanism))
        self.metadata = self._metadata()

    def elected(self, operators: Iterable[OperatorId]) -> str:
        """The mechanism that most of the operators have."""
        votes = Counter(self.by_operator.get(o, self.fallback) for o in operators)
        return votes.most_common(1)[0][0] if votes else self.fallback

    def allowed(self, problem: Problem) -> dict[OperatorId, frozenset[NodeId]]:
        names = {o: self.by_operator.get(o, self.fallback) for o in problem.free}
        limits = {name: self.library[name].allowed(problem) for name in set(names.values())}
        return {o: limits[name][o] for o, name in names.items() if o in limits[name]}

    def place(self, problem: Problem) -> Proposal:
        name, found = self.elected(problem.free), None
        if name != self.fallback:
            try:
                found = self.library[name].place(problem)
            except Exception as error:  # told to the loop
                self.failures.append((name, f"mechanism {name} failed: {error}"))
                name = self.fallback
        if found is None:
            found = self.library[self.fallback].place(problem)
        if found.bytes and len(self.proposed) < MOST_PROPOSED:
            self.proposed.append((name, tuple(problem.free), found.bytes))
        return found


def assign(engine: Engine, query: QueryId, mechanism: str) -> list[OperatorId]:
    """From now on the query's operators are placed by this mechanism; returns those that can move."""
    chosen = engine.mechanism
    if not isinstance(chosen, PerQuery):
        raise TypeError(f"the engine has mechanism {chosen.name}, not {PerQuery.name}")
    plan = engine.catalog.plan
    movable = [o for o in plan.serving(query) if plan[o].pin is None]
    chosen.assign(movable, mechanism)
    if not engine.needs_cost_space:
        engine.catalog.space = None  # it would not be kept up to date
    return movable


def place_again(engine: Engine, query: QueryId, mechanism: str, *, escalates: bool = True) -> BatchReport:
    """Assigns the mechanism and has it place all of the query's operators that can move.

    Without `escalates` it gets no help: operators for which it finds no place wait.
    """
    movable, plan = assign(engine, query, mechanism), engine.catalog.plan
    for operator in movable:
        if plan[operator].state is OperatorState.PLACED:
            plan[operator].become(OperatorState.TO_BE_REPLACED)
    engine.log.write(movable, (), f"query {query} switches to {mechanism}")
    return engine.run([], escalates=escalates)
