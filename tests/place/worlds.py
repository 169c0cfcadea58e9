"""Small random worlds for placement tests: a topology with tight capacities, streams, sinks and overlapping queries."""

from __future__ import annotations

import numpy as np

from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, Named, literal
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import (
    Filter,
    Map,
    Operator,
    Sink,
    Source,
    Union,
    WindowAggregate,
    WindowJoin,
    output_schema,
)
from meander.model.plan import Query, QueryPlan, topological_order
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.model.windows import Tumbling
from meander.place.catalog import Catalog

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")
SPEED, ID = Column("speed", SCHEMA.type_of("speed")), Column("id", SCHEMA.type_of("id"))
STREAMS, SINKS, SENSORS, EDGES = 4, 2, 6, 4


def world(seed: int, *, slots: int = 3, bandwidth_mbps: float = 1.0) -> Catalog:
    """sensors - edges (meshed at random) - two clouds; every stream has one to three producers.

    s0 s1 s2 ... s5
     \\ |  X  |  /
     e0-e1--e2-e3
       \\  \\/  /
      cloud0 cloud1
    """
    rng = np.random.default_rng(seed)
    nodes = [Node(f"s{i}", NodeKind.SENSOR, slots, capacity_tps=2000, mobile=True) for i in range(SENSORS)]
    nodes += [Node(f"e{i}", NodeKind.EDGE, slots, capacity_tps=4000) for i in range(EDGES)]
    nodes += [Node(f"cloud{i}", NodeKind.CLOUD, 4 * slots) for i in range(2)]
    links = [
        Link(f"s{i}", f"e{rng.integers(EDGES)}", 1 + float(rng.integers(5)), bandwidth_mbps) for i in range(SENSORS)
    ]
    links += [Link(f"e{i}", f"e{(i + 1) % EDGES}", 2, bandwidth_mbps) for i in range(EDGES)]
    links += [Link(f"e{i}", f"cloud{i % 2}", 10, bandwidth_mbps) for i in range(EDGES)]
    links += [Link("cloud0", "cloud1", 3)]
    streams = {}
    for i in range(STREAMS):
        producers = sorted(int(n) for n in rng.choice(SENSORS, size=int(rng.integers(1, 4)), replace=False))
        streams[f"stream{i}"] = Stream(f"stream{i}", SCHEMA, "ts", tuple(f"s{n}" for n in producers), rate_tps=100)
    sinks = {f"sink{i}": SinkTarget(f"sink{i}", f"cloud{i}") for i in range(SINKS)}
    return Catalog(Topology.of(nodes, links), streams, sinks)


def query(seed: int, name: str) -> Query:
    """One of a few hundred queries that overlap in part: filter, then map, window, union or join, then a sink."""
    rng = np.random.default_rng(seed)
    operators: dict[OperatorId, Operator] = {}
    inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}

    def add(operator: Operator, *below: OperatorId) -> OperatorId:
        operator_id = OperatorId(len(operators) + 1)
        operators[operator_id], inputs[operator_id] = operator, below
        return operator_id

    def branch() -> OperatorId:
        top = add(Source(f"stream{rng.integers(STREAMS)}", SCHEMA, "ts"))
        if rng.random() < 0.8:
            top = add(Filter(call("<", SPEED, literal(float(rng.integers(2))))), top)
        if rng.random() < 0.5:
            kept = (Named("id", ID), Named("speed", call("*", SPEED, literal(float(1 + rng.integers(2))))))
            top = add(Map(kept), top)
        return top

    shape = rng.integers(4)
    top = branch()
    if shape == 1:
        top = add(WindowAggregate(Tumbling(1000), (Named("id", ID),), (Named("n", call("count")),)), top)
    elif shape == 2:
        top = add(WindowJoin(Tumbling(1000), (("id", "id"),)), top, branch())
    elif shape == 3:
        other = branch()
        kept = Map((Named("id", ID), Named("speed", SPEED)))
        top = add(Union(), add(kept, top), add(kept, other))
    width = len(_columns(operators, inputs, top))
    add(Sink(f"sink{rng.integers(SINKS)}", tuple(f"c{i}" for i in range(width))), top)
    return Query(QueryId(name), QueryPlan(operators, inputs))


def _columns(
    operators: dict[OperatorId, Operator], inputs: dict[OperatorId, tuple[OperatorId, ...]], top: OperatorId
) -> Schema:
    """What an operator emits, before its sink exists."""
    schemas: dict[OperatorId, Schema] = {}
    for operator in topological_order(inputs):
        schemas[operator] = output_schema(operators[operator], tuple(schemas[i] for i in inputs[operator]))
    return schemas[top]
