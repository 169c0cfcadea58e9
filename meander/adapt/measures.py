"""The measures that the running system gives the adaptation loop: plain counts and samples of a span of time, not
interpreted.

The data plane fills one `Measures` per round. Everything in it is about its span alone; windows over several spans are
made by the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.global_plan import GlobalPlan
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.placement import Edge, Placement, mbps

BYTES_PER_MBIT = 125_000.0


@dataclass(frozen=True, slots=True)
class MeasuredChannel:
    """An edge of a query as it is deployed, and the traffic over it in the span."""

    upstream: OperatorId
    reader: OperatorId
    hops: int
    latency_ms: float
    bytes: float


@dataclass(frozen=True, slots=True)
class QueryMeasures:
    """The measures of one query."""

    latencies_ms: Sequence[float] = ()
    """For each result: when it reached its sink, less the event time of the newest tuple it depends on."""
    results: Mapping[str, int] = field(default_factory=dict)
    """Results that each sink got."""
    channels: tuple[MeasuredChannel, ...] = ()
    control_bytes: float = 0.0
    """Control messages and moved state that were sent for this query, each counted once."""
    nodes: frozenset[NodeId] = frozenset()
    """Nodes that run its operators."""
    waits_ms: float = 0.0
    """At the end of the span: how long the oldest tuple has waited that is on its way and not processed yet."""
    held: str = ""
    """The reason why it stands still wherever it is placed, if it does: its data, its sink or its stream is paused."""
    power_w: float | None = None
    """Power that the nodes where its operators run draw for it; None while it runs nowhere."""
    price_per_h: float | None = None
    """Their price an hour for it."""
    waits_for: str = ""
    """The source that its windows wait for wherever they are placed, if it gives nothing while others go on."""


@dataclass(frozen=True, slots=True)
class EnvironmentMeasures:
    """The measures of the environment of all queries."""

    changes: int = 0
    """Nodes and links that came or went."""
    handovers: int = 0
    """Times that a mobile node got other links."""
    mobile_nodes: int = 0
    tuples: int = 0
    """Tuples that entered."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Everything about the span of `span_ms` that ended at `at_ms`."""

    at_ms: int
    span_ms: int
    queries: Mapping[QueryId, QueryMeasures] = field(default_factory=dict)
    loads: Mapping[NodeId, float] = field(default_factory=dict)
    """Share of a node's capacity that is used: how busy the slots are that run its fragments."""
    world: EnvironmentMeasures = EnvironmentMeasures()

    def __post_init__(self) -> None:
        if self.span_ms <= 0:
            raise InputError(f"measures must cover a time, not {self.span_ms} ms")


def channels_of(
    plan: GlobalPlan, placement: Placement, query: QueryId, span_ms: int, sent: Mapping[Edge, float] | None = None
) -> tuple[MeasuredChannel, ...]:
    """A query's channels from where it is placed, with the bytes that were sent.

    Without `sent`, bytes are estimated from rates. Edges with an end that is not placed are left out.
    """
    found: list[MeasuredChannel] = []
    for operator in plan.serving(query):
        for upstream in dict.fromkeys(plan[operator].inputs):
            if operator not in placement.nodes or upstream not in placement.nodes:
                continue
            route = placement.routes.get((upstream, operator))
            estimate = mbps(plan[upstream]) * BYTES_PER_MBIT * span_ms / 1000
            amount = estimate if sent is None else sent.get((upstream, operator), 0.0)
            hops, latency = (route.hops, route.latency_ms) if route else (0, 0.0)
            found.append(MeasuredChannel(upstream, operator, hops, latency, amount))
    return tuple(found)
