"""From a query as written to the operators that will run: rewritten, one source per producer, stateless work beside it.

A stream with many producers becomes as many source operators, each pinned to its node. Filters, projections and user
functions are repeated behind each of them, so that they can run near the data; the branches meet in a union before the
first operator that needs all tuples. Filters in a row become one. Signatures are computed here, once per query, so that
adding the query later is a matter of look-ups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.expressions.functions import call
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Map, Operator, Sink, Source, Union, UserFunction
from meander.model.plan import Query, QueryPlan
from meander.model.signature import Signature, signatures
from meander.model.streams import SinkTarget, Stream
from meander.place.rates import row_bytes
from meander.place.rewrites import RULES_NUMBER, rewritten

MEMOISED_PLANS = 4096


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query with its physical plan, ready to be added."""

    query: Query
    physical: PhysicalPlan


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """The result of preparing a plan. Keeps the logical plan alive, so that its identity is not reused."""

    logical: QueryPlan
    plan: QueryPlan
    signatures: Mapping[OperatorId, Signature]
    row_bytes: Mapping[OperatorId, int]
    tops: frozenset[OperatorId]
    """Operators that feed a sink."""
    sinks: frozenset[OperatorId]


class Preparation:
    """Prepares queries. Plans it has seen before, as when many users submit the same query, cost a look-up."""

    def __init__(self, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> None:
        self.streams, self.sinks = streams, sinks
        self._seen: OrderedDict[tuple[int, int], PhysicalPlan] = OrderedDict()

    def prepare(self, query: Query, rules: int = RULES_NUMBER) -> PreparedQuery:
        """The physical plan; raises when a stream or sink is unknown, or a stream has no producer."""
        known = self._seen.get((id(query.plan), rules))
        if known is None:
            try:
                known = self._prepared(query.plan, rules)
            except InputError as error:
                raise error.inside(f"query {query.id!r}") from None
            self._seen[id(query.plan), rules] = known
            if len(self._seen) > MEMOISED_PLANS:
                self._seen.popitem(last=False)
        return PreparedQuery(query, known)

    def forget(self) -> None:
        """Starts over, because streams or sinks changed."""
        self._seen.clear()

    def _prepared(self, logical: QueryPlan, rules: int) -> PhysicalPlan:
        plan = expanded(rewritten(logical, rules), self.streams)
        for sink in plan.sinks:
            operator = plan.operators[sink]
            if isinstance(operator, Sink) and operator.name not in self.sinks:
                raise unknown("sink", operator.name, self.sinks)
        tops = frozenset(i for sink in plan.sinks for i in plan.inputs[sink])
        widths = {o: row_bytes(schema) for o, schema in plan.schemas.items()}
        return PhysicalPlan(logical, plan, signatures(plan), widths, tops, frozenset(plan.sinks))


def expanded(plan: QueryPlan, streams: Mapping[str, Stream]) -> QueryPlan:
    """One source per producer, with stateless operators repeated behind each."""
    return _Expansion(plan, streams).build()


class _Expansion:
    def __init__(self, plan: QueryPlan, streams: Mapping[str, Stream]) -> None:
        self.plan, self.streams = plan, streams
        self.operators: dict[OperatorId, Operator] = {}
        self.inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}
        self.branches: dict[OperatorId, list[OperatorId]] = {}
        self.merged: dict[OperatorId, OperatorId] = {}
        self.readers = plan.outputs

    def build(self) -> QueryPlan:
        for operator_id in self.plan.order:
            operator = self.plan.operators[operator_id]
            below = self.plan.inputs[operator_id]
            match operator:
                case Source():
                    self.branches[operator_id] = [self._add(s) for s in self._producers(operator)]
                case Filter() | Map() | UserFunction():
                    branches = self.branches[below[0]]
                    self.branches[operator_id] = [self._stateless(operator, b, below[0]) for b in branches]
                case Union():
                    feeds = [b for i in below for b in self.branches[i]]
                    self.branches[operator_id] = [self._add(operator, *feeds)]
                case _:
                    self.branches[operator_id] = [self._add(operator, *(self._one(i) for i in below))]
        return QueryPlan(self.operators, self.inputs).numbered()

    def _producers(self, source: Source) -> list[Source]:
        if source.node is not None:
            return [source]
        stream = self.streams.get(source.stream)
        if stream is None:
            raise unknown("stream", source.stream, self.streams)
        if not stream.nodes:
            raise InputError(f"stream {source.stream!r} has no node that produces it; list its nodes in the topology")
        return [Source(source.stream, source.schema, source.event_time, node) for node in stream.nodes]

    def _stateless(self, operator: Operator, branch: OperatorId, below: OperatorId) -> OperatorId:
        """Adds the operator; a filter whose only input is a filter with no other reader is merged with it."""
        previous = self.operators[branch]
        if isinstance(operator, Filter) and isinstance(previous, Filter) and len(self.readers[below]) == 1:
            self.operators[branch] = Filter(call("and", previous.predicate, operator.predicate))
            return branch
        return self._add(operator, branch)

    def _one(self, operator_id: OperatorId) -> OperatorId:
        """The operator's output as one stream: its only branch, or a union of all."""
        branches = self.branches[operator_id]
        if len(branches) == 1:
            return branches[0]
        if operator_id not in self.merged:
            self.merged[operator_id] = self._add(Union(), *branches)
        return self.merged[operator_id]

    def _add(self, operator: Operator, *inputs: OperatorId) -> OperatorId:
        operator_id = OperatorId(len(self.operators) + 1)
        self.operators[operator_id] = operator
        self.inputs[operator_id] = inputs
        return operator_id
