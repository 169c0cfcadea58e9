"""The part of a query that Nova places: one join of two streams, filters and projections on either side of it.

Operators before the join run beside each source, those right behind it beside each part of the join; the rest of the
query runs where its results go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.ids import OperatorId
from meander.model.operators import Conjunction, Filter, Map, Operator, Sequence, Sink, Source, UserFunction, WindowJoin
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream

PAIRING = (WindowJoin, Conjunction, Sequence)
"""Operators that look at pairs of tuples, one pair at a time: each pair can be made anywhere."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of the join: a stream's producers, and the operators on their way."""

    source: Source
    chain: tuple[Operator, ...]
    nodes: tuple[str, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class JoinShape:
    """A query taken apart."""

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


def shape_of(query: Query, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> JoinShape:
    """Takes a query apart; raises when it is not a join of two streams."""
    try:
        return _shape_of(query, streams, sinks)
    except InputError as error:
        raise error.inside(f"query {query.id!r}") from None


def _shape_of(query: Query, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> JoinShape:
    plan = query.plan
    pairing = [o for o in plan.order if isinstance(plan.operators[o], PAIRING)]
    if len(pairing) != 1:
        raise InputError(
            f"it has {len(pairing)} joins; Nova runs queries with exactly one, so use another mechanism for it"
        )
    join = pairing[0]
    (left, below_left), (right, below_right) = (_side(plan, i, streams) for i in plan.inputs[join])
    behind: list[Operator] = []
    end = join
    while len(plan.outputs[end]) == 1 and isinstance(plan.operators[plan.outputs[end][0]], Filter | Map):
        end = plan.outputs[end][0]
        behind.append(plan.operators[end])
    used = below_left | below_right | {join}
    step = join
    while step != end:
        step = plan.outputs[step][0]
        used.add(step)
    rest = tuple(o for o in plan.order if o not in used)
    known = {*rest, end}
    for operator in rest:
        if isinstance(plan.operators[operator], Source) or not set(plan.inputs[operator]) <= known:
            raise InputError("more than the join's results flows into it; Nova runs a join and what follows it")
    spec = plan.operators[join]
    assert isinstance(spec, PAIRING)
    return JoinShape(query, left, right, spec, tuple(behind), end, rest, _sink_node(plan, sinks))


def _side(plan: QueryPlan, top: OperatorId, streams: Mapping[str, Stream]) -> tuple[Side, set[OperatorId]]:
    chain: list[Operator] = []
    used = {top}
    operator = top
    while isinstance(plan.operators[operator], Filter | Map | UserFunction):
        chain.insert(0, plan.operators[operator])
        operator = plan.inputs[operator][0]
        used.add(operator)
    source = plan.operators[operator]
    if not isinstance(source, Source):
        raise InputError("an input of its join is not a stream with filters and projections; use another mechanism")
    if source.stream not in streams:
        raise unknown("stream", source.stream, streams)
    nodes = (source.node,) if source.node is not None else streams[source.stream].nodes
    if not nodes:
        raise InputError(f"stream {source.stream!r} has no node that produces it; list its nodes in the topology")
    return Side(source, tuple(chain), nodes, plan.schemas[top]), used


def _sink_node(plan: QueryPlan, sinks: Mapping[str, SinkTarget]) -> str:
    names = [operator.name for o in plan.sinks if isinstance(operator := plan.operators[o], Sink)]
    for name in names:
        if name not in sinks:
            raise unknown("sink", name, sinks)
    nodes = {sinks[name].node for name in names}
    if len(nodes) != 1:
        raise InputError(f"its sinks are on nodes {', '.join(sorted(nodes))}; Nova needs all results at one node")
    return nodes.pop()
