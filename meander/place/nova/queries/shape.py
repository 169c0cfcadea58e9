"""The part of a query that Nova places: joins of two inputs each, filters and projections on either side of them.

Operators before a join run beside each source, those right behind it beside each part of the join; the rest of the
query runs where its results go. A join may read the results of another one: both are stages of a cascade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.ids import OperatorId
from meander.model.operators import (
    Conjunction,
    Filter,
    JoinKind,
    Map,
    Operator,
    Sequence,
    Sink,
    Source,
    UserFunction,
    WindowJoin,
)
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream

PAIRING = (WindowJoin, Conjunction, Sequence)
"""Operators that look at pairs of tuples, one pair at a time: each pair can be made anywhere."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of the join: a stream's producers, or another stage, and the operators on their way."""

    source: Source
    """Of another stage's results, a stand-in with the stage's name: `join1`, `join2`, .."""
    chain: tuple[Operator, ...]
    nodes: tuple[str, ...]
    schema: Schema
    below: int | None = None
    """The stage whose results it reads, by its place in the cascade."""


@dataclass(frozen=True, slots=True)
class JoinShape:
    """A query taken apart: one of its joins, and what follows the last one."""

    query: Query
    left: Side
    right: Side
    join: WindowJoin | Conjunction | Sequence
    behind: tuple[Operator, ...]
    """Filters and projections of the join's results."""
    end: OperatorId
    """The last of these in the query's plan, or the join: what the rest reads."""
    rest: tuple[OperatorId, ...]
    """Everything else, inputs first."""
    sink_node: str
    """Where the results of the join are wanted."""
    is_last: bool = True
    """Whether no other stage reads it."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right


def shape_of(query: Query, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> JoinShape:
    """Takes a query apart; raises when it is not a join of two streams."""
    stages = stages_of(query, streams, sinks)
    if len(stages) != 1:
        raise InputError(f"query {query.id!r} has {len(stages)} joins; here it must be one")
    return stages[0]


def stages_of(query: Query, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> tuple[JoinShape, ...]:
    """Takes a query apart into its joins, each behind those that it reads; raises when there is more to it. Where the
    results of all but the last one are wanted is for the caller to say: here it is where the query's results go."""
    try:
        return _stages_of(query, streams, sinks)
    except InputError as error:
        raise error.inside(f"query {query.id!r}") from None


def _stages_of(query: Query, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> tuple[JoinShape, ...]:
    plan = query.plan
    joins = [o for o in plan.order if isinstance(plan.operators[o], PAIRING)]
    if not joins:
        raise InputError("it has no join; Nova runs queries with joins, so use another mechanism for it")
    behind = {join: _behind(plan, join) for join in joins}
    ends = {(behind[join] or [join])[-1]: number for number, join in enumerate(joins)}
    sides = [tuple(side_of(plan, i, streams, ends) for i in plan.inputs[join]) for join in joins]
    read = {side.below for pair in sides for side, _ in pair}
    tops = [number for number in range(len(joins)) if number not in read]
    if len(tops) != 1:
        raise InputError(f"it has {len(tops)} joins that no other join reads; Nova needs one that brings all together")
    used = set(joins).union(*behind.values(), *(walked for pair in sides for _, walked in pair))
    rest = tuple(o for o in plan.order if o not in used)
    end = (behind[joins[tops[0]]] or [joins[tops[0]]])[-1]
    known = {*rest, end}
    for operator in rest:
        if isinstance(plan.operators[operator], Source) or not set(plan.inputs[operator]) <= known:
            raise InputError("more than the join's results flows into it; Nova runs a join and what follows it")
    sink_node = sink_node_of(plan, sinks)
    found: list[JoinShape] = []
    for number, join in enumerate(joins):
        spec = plan.operators[join]
        assert isinstance(spec, PAIRING)
        if isinstance(spec, WindowJoin) and spec.kind is not JoinKind.INNER:
            kind = spec.kind.value
            raise InputError(f"its join is a {kind} join; Nova runs inner joins, so use another mechanism for it")
        (left, _), (right, _) = sides[number]
        specs, last = tuple(plan.operators[o] for o in behind[join]), number == tops[0]
        top = (behind[join] or [join])[-1]
        found.append(JoinShape(query, left, right, spec, specs, top, rest if last else (), sink_node, last))
    return tuple(found)


def _behind(plan: QueryPlan, join: OperatorId) -> list[OperatorId]:
    """The filters and projections right behind a join."""
    found: list[OperatorId] = []
    end = join
    while len(plan.outputs[end]) == 1 and isinstance(plan.operators[plan.outputs[end][0]], Filter | Map):
        end = plan.outputs[end][0]
        found.append(end)
    return found


def side_of(
    plan: QueryPlan, top: OperatorId, streams: Mapping[str, Stream], ends: Mapping[OperatorId, int]
) -> tuple[Side, set[OperatorId]]:
    """An input of a join or an aggregate, and the operators that are part of it. `ends` are those of stages."""
    chain: list[Operator] = []
    used: set[OperatorId] = set()
    operator = top
    while operator not in ends and isinstance(plan.operators[operator], Filter | Map | UserFunction):
        chain.insert(0, plan.operators[operator])
        used.add(operator)
        operator = plan.inputs[operator][0]
    if operator in ends:
        below = ends[operator]
        source = Source(f"join{below + 1}", plan.schemas[operator], "")
        return Side(source, tuple(chain), (), plan.schemas[top], below), used
    used.add(operator)
    found = plan.operators[operator]
    if not isinstance(found, Source):
        raise InputError(
            "an input of its join is not a stream, or another join, with filters and projections; use another mechanism"
        )
    if found.stream not in streams:
        raise unknown("stream", found.stream, streams)
    nodes = (found.node,) if found.node is not None else streams[found.stream].nodes
    if not nodes:
        raise InputError(f"stream {found.stream!r} has no node that produces it; list its nodes in the topology")
    return Side(found, tuple(chain), nodes, plan.schemas[top]), used


def sink_node_of(plan: QueryPlan, sinks: Mapping[str, SinkTarget]) -> str:
    """The one node at which a query's results are wanted; raises when there are several."""
    names = [operator.name for o in plan.sinks if isinstance(operator := plan.operators[o], Sink)]
    for name in names:
        if name not in sinks:
            raise unknown("sink", name, sinks)
    nodes = {sinks[name].node for name in names}
    if len(nodes) != 1:
        raise InputError(f"its sinks are on nodes {', '.join(sorted(nodes))}; Nova needs all results at one node")
    return nodes.pop()
