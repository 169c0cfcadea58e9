"""Merging: a stage looks the same however many sources it has, and computes what it did."""

from __future__ import annotations

import pytest

from meander.lang import sql
from meander.model.events import QueryAdded
from meander.model.operators import Filter, Map, Union, WindowAggregate
from meander.model.streams import Stream
from meander.model.topology.elements import Link, NodeKind
from meander.model.topology.elements import Node as Place
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.fragments.operator_merging import merged
from meander.run.fragments.stage_nodes import StageEdge, StageNode
from meander.run.fragments.template import Stage, bind
from tests.run.harness import CARS, SINKS, STREAMS, queries

LOAD = "SELECT road, count(*) AS n FROM cars WHERE speed > 10 GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one"


def stages_over(sources: int, text: str = LOAD) -> tuple[Stage, ...]:
    """The stages of a query whose stream has so many sources, all operators together, filters before the union."""
    names = [f"s{i}" for i in range(sources)]
    places = [*(Place(n, NodeKind.SENSOR, 9) for n in names), Place("cloud", NodeKind.CLOUD, 999)]
    streams = {**STREAMS, "cars": Stream("cars", CARS, "ts", tuple(names))}
    catalog = Catalog(Topology.of(places, [Link(n, "cloud", 1) for n in names]), streams, dict(SINKS))
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, q) for q in sql(text, streams, SINKS).queries])
    operators = {o: record.spec for o, record in catalog.plan.operators.items()}
    inputs = {o: tuple(record.inputs) for o, record in catalog.plan.operators.items()}
    return bind(operators, inputs).template.stages


def test_the_plan_does_not_depend_on_the_number_of_sources() -> None:
    (two,), (five,) = stages_over(2), stages_over(5)
    assert two.key == five.key
    assert [type(n.operator) for n in five.nodes] == [Filter, WindowAggregate, Map]
    (edge,) = five.reads
    assert len(edge.union) == 5


def graph(*branches: str) -> tuple[tuple[StageEdge, ...], tuple[StageNode, ...]]:
    """A union of one-stream queries over ports of their own, merged."""
    nodes: list[StageNode] = []
    reads, schemas, ends = [], [], []
    for number, text in enumerate(branches):
        (query,) = queries(text)
        (stage,) = bind(query.plan.operators, query.plan.inputs).template.stages
        last = -1 - number
        for node in stage.nodes:
            nodes.append(StageNode(node.operator, (last,), node.schema, node.names))
            last = len(nodes) - 1
        reads.append(StageEdge(port=number))
        schemas.append(stage.schemas[0])
        ends.append(last)
    nodes.append(StageNode(Union(), tuple(ends), nodes[-1].schema))
    found_reads, _, found = merged(reads, schemas, nodes)
    return found_reads, found


FAST = "SELECT id, road FROM cars WHERE speed > 10 INTO one"
SLOW = "SELECT id, road FROM cars WHERE speed < 3 INTO one"


@pytest.mark.parametrize(
    ("branches", "reads", "kinds"),
    [
        ([FAST, FAST, FAST], [{0, 1, 2}], [Filter, Map]),
        ([FAST, SLOW, FAST], [{0, 2}, {1}], [Filter, Filter, Union, Map]),
        ([FAST], [{0}], [Filter, Map]),
    ],
)
def test_what_does_the_same_is_one(branches: list[str], reads: list[set[int]], kinds: list[type]) -> None:
    edges, nodes = graph(*branches)
    assert [{e.port for e in (edge.union or (edge,))} for edge in edges] == reads
    assert [type(n.operator) for n in nodes] == kinds
    for number, node in enumerate(nodes):
        assert all(i < number for i in node.inputs), "inputs come first"


def test_what_is_used_twice_stays() -> None:
    (query,) = queries(FAST)
    (stage,) = bind(query.plan.operators, query.plan.inputs).template.stages
    both = StageNode(Union(), (1, 1), stage.schema)
    nodes = (*stage.nodes, both)
    assert merged(stage.reads, stage.schemas, nodes) == (stage.reads, stage.schemas, nodes)
