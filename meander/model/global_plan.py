"""The global query plan: all running operators, grouped into shared plans (its connected components).

Adding operators joins the shared plans they touch, smaller into larger. Removing some may split a shared plan: that is
only noted, and settled when the shared plans are asked for, by searching from all sides at once and stopping when one
side is left. So the cost of a change grows with the operators it adds or removes, not with the shared plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from meander.model.errors import InputError, unknown
from meander.model.ids import FragmentId, NodeId, OperatorId, QueryId, SharedPlanId
from meander.model.operators import Operator, Source
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.signature import Signature


class OperatorState(Enum):
    """The state of an operator's life."""

    TO_BE_PLACED = "to be placed"
    PLACED = "placed"
    TO_BE_REPLACED = "to be re-placed"
    TO_BE_REMOVED = "to be removed"
    REMOVED = "removed"


_S = OperatorState
TRANSITIONS: frozenset[tuple[OperatorState, OperatorState]] = frozenset(
    {
        (_S.TO_BE_PLACED, _S.PLACED),
        (_S.TO_BE_PLACED, _S.TO_BE_REMOVED),
        (_S.TO_BE_PLACED, _S.REMOVED),
        (_S.PLACED, _S.TO_BE_REPLACED),
        (_S.PLACED, _S.TO_BE_REMOVED),
        (_S.TO_BE_REPLACED, _S.TO_BE_PLACED),
        (_S.TO_BE_REPLACED, _S.PLACED),
        (_S.TO_BE_REPLACED, _S.TO_BE_REMOVED),
        (_S.TO_BE_REMOVED, _S.PLACED),
        (_S.TO_BE_REMOVED, _S.TO_BE_REPLACED),
        (_S.TO_BE_REMOVED, _S.TO_BE_PLACED),
        (_S.TO_BE_REMOVED, _S.REMOVED),
    }
)
"""Allowed changes of state. From "to be removed" an operator comes back when a new query wants it again."""


NO_PLAN = SharedPlanId(-1)


@dataclass(slots=True, eq=False)
class PlanOperator:
    """An operator of the global query plan with all that placing it needs to know."""

    id: OperatorId
    spec: Operator
    schema: Schema
    signature: Signature
    inputs: tuple[OperatorId, ...]
    pin: NodeId | None = None
    """The node it must run on: sources, sinks, and operators that a user pinned."""
    slots: int = 1
    load_tps: float = 0.0
    """Tuples it takes in per second, all inputs together."""
    rate_tps: float = 0.0
    """Tuples it emits per second."""
    row_bytes: int = 0
    memory_mb: float = 0.0
    """Its memory: window contents, partial aggregates, and a little for running at all."""
    state: OperatorState = OperatorState.TO_BE_PLACED
    readers: dict[OperatorId, None] = field(default_factory=dict)
    """Operators that take its output, in the order in which they came."""
    users: int = 0
    """The number of its users: the readers that are not about to be removed or, for a sink, its query."""
    plan: SharedPlanId = NO_PLAN
    """Its shared plan when the shared plans were last asked for; see `GlobalPlan.plan_of`."""
    reason: str | None = None
    """The reason why it is not placed, for people."""

    @property
    def is_held(self) -> bool:
        """Whether it was put on its node by hand; sources and sinks are where they must be."""
        return self.pin is not None and self.slots > 0

    @property
    def charge(self) -> tuple[int, float, float]:
        """Slots, tuples/s and MB that its node is charged; sources and sinks run where they are for nothing."""
        return (self.slots, self.load_tps, self.memory_mb) if self.slots else (0, 0.0, 0.0)

    def become(self, state: OperatorState) -> None:
        """Checked change of state."""
        if (self.state, state) not in TRANSITIONS:
            raise InputError(f"operator {self.id} is {self.state.value} and cannot become {state.value}")
        self.state = state


def _producer(record: PlanOperator) -> tuple[str, str] | None:
    """The stream and the node of an operator that is a source at one of its producers."""
    spec = record.spec
    return (spec.stream, spec.node) if isinstance(spec, Source) and spec.node is not None else None


ByPin = tuple[list[OperatorId], dict[NodeId, list[OperatorId]]]
"""Operators that may run anywhere, and those that are pinned, by node."""


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query and its sinks in the global query plan; everything that feeds them serves it."""

    query: Query
    sinks: tuple[OperatorId, ...]


class GlobalPlan:
    """All operators, queries and shared plans."""

    def __init__(self) -> None:
        self.operators: dict[OperatorId, PlanOperator] = {}
        self.queries: dict[QueryId, RunningQuery] = {}
        self.sources: dict[tuple[str, str], set[OperatorId]] = {}
        """The sources of each stream at each of its producers, whether they are placed or wait."""
        self._plans: dict[SharedPlanId, set[OperatorId]] = {}
        self._doubts: dict[SharedPlanId, dict[OperatorId, None]] = {}
        """Shared plans that removals may have split, with at least one operator of every part."""
        self.bundles: dict[QueryId, dict[OperatorId, None]] = {}
        """Operators of a query that are deployed together or not at all, because some replace others."""
        self.replacing: set[QueryId] = set()
        """Queries with a bundle in which some operators still replace others: those are not moved meanwhile."""
        self.former: dict[tuple[FragmentId, int], object] = {}
        """The operators of running fragments, by id and version: kept for their hosts."""
        self._by_pin: dict[OperatorId, ByPin] = {}
        """Readers by pin, as far as they were asked for since readers or pins last changed."""
        self.shape = 0
        """The number of changes of operators, readers and pins so far."""
        self._next_operator = 1
        self._next_plan = 1

    def __getitem__(self, operator: OperatorId) -> PlanOperator:
        return self.operators[operator]

    def readers_by_pin(self, operator: OperatorId) -> ByPin:
        """Readers that may run anywhere, and those that are pinned by their node; a union may have thousands."""
        found = self._by_pin.get(operator)
        if found is None:
            found = self._by_pin[operator] = self.by_pin(self.operators[operator].readers)
        return found

    def by_pin(self, operators: Iterable[OperatorId]) -> ByPin:
        """Operators that may run anywhere, and those that are pinned by their node."""
        anywhere: list[OperatorId] = []
        pinned: dict[NodeId, list[OperatorId]] = {}
        for operator in operators:
            pin = self.operators[operator].pin
            (anywhere if pin is None else pinned.setdefault(pin, [])).append(operator)
        return anywhere, pinned

    def readers_changed(self) -> None:
        """Has to be called when readers or pins of operators were changed from outside."""
        self._by_pin.clear()
        self.shape += 1

    def query(self, query: QueryId) -> RunningQuery:
        running = self.queries.get(query)
        if running is None:
            raise unknown("query", query, self.queries, "queries")
        return running

    @property
    def plans(self) -> dict[SharedPlanId, set[OperatorId]]:
        """All shared plans with their operators."""
        self._settle()
        return self._plans

    def plan_of(self, operator: OperatorId) -> SharedPlanId:
        """The shared plan that an operator belongs to."""
        self._settle()
        return self.operators[operator].plan

    def serving(self, query: QueryId) -> list[OperatorId]:
        """The operators that serve a query, sinks first."""
        found = dict.fromkeys(self.query(query).sinks)
        stack = list(found)
        while stack:
            for upstream in self.operators[stack.pop()].inputs:
                if upstream not in found:
                    found[upstream] = None
                    stack.append(upstream)
        return list(found)

    @property
    def next_operator(self) -> int:
        """The number that the next operator gets."""
        return self._next_operator

    def count_from(self, number: int) -> None:
        """Lets the next operator have this number."""
        self._next_operator = number

    def fresh_id(self) -> OperatorId:
        operator = OperatorId(self._next_operator)
        self._next_operator += 1
        return operator

    def neighbours(self, operator: OperatorId) -> Iterator[OperatorId]:
        """Inputs and readers."""
        record = self.operators[operator]
        yield from record.inputs
        yield from record.readers

    def edges_of(self, operator: OperatorId) -> list[tuple[OperatorId, OperatorId]]:
        """Edges (upstream, reader) that touch the operator, each once."""
        record = self.operators[operator]
        edges = [(upstream, operator) for upstream in dict.fromkeys(record.inputs)]
        edges += [(operator, reader) for reader in record.readers]
        return edges

    def add_operator(self, record: PlanOperator) -> None:
        """Adds an operator below which everything is present already, and joins the shared plans it touches."""
        operators, own = self.operators, record.id
        operators[own] = record
        self.readers_changed()
        if (producer := _producer(record)) is not None:
            self.sources.setdefault(producer, set()).add(own)
        touched = set()
        for upstream in record.inputs:
            below = operators[upstream]
            if own not in below.readers:
                below.readers[own] = None
                below.users += 1
            touched.add(below.plan)
        record.plan = touched.pop() if len(touched) == 1 else self._joined(touched)
        self._plans[record.plan].add(own)

    def add_query(self, running: RunningQuery) -> None:
        """Notes that the query needs its sinks."""
        if running.query.id in self.queries:
            raise InputError(f"query {running.query.id!r} is running already; remove it first or choose another name")
        self.queries[running.query.id] = running
        for sink in running.sinks:
            self.operators[sink].users += 1

    def remove_query(self, query: QueryId) -> list[OperatorId]:
        """Forgets the query; returns its operators that no other query needs. They stay in the plan until dropped."""
        running = self.query(query)
        del self.queries[query]
        self.bundles.pop(query, None)
        self.replacing.discard(query)
        unused: list[OperatorId] = []
        stack = list(running.sinks)
        while stack:
            operator = stack.pop()
            record = self.operators[operator]
            record.users -= 1
            if not record.users:
                unused.append(operator)
                stack.extend(dict.fromkeys(record.inputs))
        return unused

    def drop_operators(self, gone: Iterable[OperatorId]) -> None:
        """Takes operators out of the plan, and notes where that may have split it."""
        removed = set(gone)
        self.readers_changed()
        left: dict[SharedPlanId, dict[OperatorId, None]] = {}
        for operator in removed:
            record = self.operators[operator]
            remaining = left.setdefault(record.plan, {})
            for upstream in dict.fromkeys(record.inputs):
                if upstream not in removed:
                    del self.operators[upstream].readers[operator]
                    remaining[upstream] = None
            remaining.update((r, None) for r in record.readers if r not in removed)
        for operator in removed:
            record = self.operators.pop(operator)
            self._plans[record.plan].discard(operator)
            if (producer := _producer(record)) is not None:
                self.sources[producer].discard(operator)
                if not self.sources[producer]:
                    del self.sources[producer]
        for plan, remaining in left.items():
            self._doubt(plan, remaining, removed)

    def _doubt(self, plan: SharedPlanId, remaining: dict[OperatorId, None], removed: set[OperatorId]) -> None:
        """Notes neighbours of removed operators: every part of a plan that may be split has one that is noted."""
        if not self._plans[plan]:
            del self._plans[plan]
            self._doubts.pop(plan, None)
        elif plan in self._doubts:
            seeds = self._doubts[plan]
            seeds.update(remaining)
            for operator in removed:
                seeds.pop(operator, None)
        elif len(remaining) > 1:
            self._doubts[plan] = remaining

    def _settle(self) -> None:
        """Finds out which plans that may be split are."""
        while self._doubts:
            plan, seeds = self._doubts.popitem()
            if len(seeds) > 1:
                self._split(plan, list(seeds))

    def _joined(self, plans: set[SharedPlanId]) -> SharedPlanId:
        if not plans:
            plan = SharedPlanId(self._next_plan)
            self._next_plan += 1
            self._plans[plan] = set()
            return plan
        largest, *others = sorted(plans, key=lambda p: (-len(self._plans[p]), p))
        for other in others:
            members = self._plans.pop(other)
            for operator in members:
                self.operators[operator].plan = largest
            self._plans[largest] |= members
            if other in self._doubts:
                self._doubts.setdefault(largest, {}).update(self._doubts.pop(other))
        return largest

    def _split(self, plan: SharedPlanId, seeds: list[OperatorId]) -> None:
        """Searches from every seed in turn; searches that meet become one. The last search left keeps the plan."""
        searches = {i: (deque([seed]), {seed}) for i, seed in enumerate(seeds)}
        owner = {seed: i for i, seed in enumerate(seeds)}
        alias = {i: i for i in searches}

        def find(i: int) -> int:
            while alias[i] != i:
                alias[i] = alias[alias[i]]
                i = alias[i]
            return i

        while len(searches) > 1:
            for i in list(searches):
                if i not in searches or len(searches) == 1:
                    continue
                queue, seen = searches[i]
                if not queue:
                    del searches[i]
                    fresh = self._joined(set())
                    for operator in seen:
                        self.operators[operator].plan = fresh
                    self._plans[fresh] = seen
                    self._plans[plan] -= seen
                    continue
                for neighbour in self.neighbours(queue.popleft()):
                    other = owner.get(neighbour)
                    if other is None:
                        owner[neighbour] = i
                        seen.add(neighbour)
                        queue.append(neighbour)
                    elif (met := find(other)) != find(i):
                        mine = find(i)
                        other_queue, other_seen = searches.pop(met)
                        alias[met] = mine
                        queue.extend(other_queue)
                        if len(other_seen) > len(seen):
                            other_seen |= seen
                            seen = other_seen
                        else:
                            seen |= other_seen
                        searches[mine] = (queue, seen)
