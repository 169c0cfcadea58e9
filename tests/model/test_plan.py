"""Plans refuse wrong shapes, number themselves the same way each time, and draw themselves."""

from __future__ import annotations

import pytest

from meander.model.errors import InputError
from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, literal
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Operator, Sink, Source, Union
from meander.model.plan import QueryPlan, drawn, topological_order
from meander.model.schema import DOUBLE, Schema

SCHEMA = Schema.of(ts="timestamp", speed="double")
SOURCE = Source("train", SCHEMA, "ts")
SLOW = Filter(call("<", Column("speed", DOUBLE), literal(30)))
OUT = Sink("alerts", SCHEMA.names)


def plan(operators: dict[int, Operator], inputs: dict[int, tuple[int, ...]]) -> QueryPlan:
    return QueryPlan(
        {OperatorId(o): operator for o, operator in operators.items()},
        {OperatorId(o): tuple(map(OperatorId, below)) for o, below in inputs.items()},
    )


def test_a_plan_knows_its_schemas_sources_and_sinks() -> None:
    made = plan({1: SOURCE, 2: SLOW, 3: OUT}, {1: (), 2: (1,), 3: (2,)})
    assert made.schemas[OperatorId(3)] == SCHEMA
    assert (made.sources, made.sinks) == ((1,), (3,))
    assert made.outputs == {1: (2,), 2: (3,), 3: ()}


def test_numbering_does_not_depend_on_the_ids_before() -> None:
    one = plan({7: OUT, 5: SLOW, 9: SOURCE}, {9: (), 5: (9,), 7: (5,)})
    other = plan({1: SOURCE, 2: SLOW, 3: OUT}, {1: (), 2: (1,), 3: (2,)})
    assert one != other
    assert one.numbered() == other.numbered() == other


def test_a_cycle_is_named() -> None:
    with pytest.raises(InputError, match="the plan has a cycle: 1 -> 2 -> 1; remove one of these edges"):
        topological_order({OperatorId(1): [OperatorId(2)], OperatorId(2): [OperatorId(1)]})


@pytest.mark.parametrize(
    ("operators", "inputs", "message"),
    [
        ({1: SOURCE, 2: OUT}, {1: (), 2: (3,)}, "no operator 3"),
        ({1: SOURCE}, {1: ()}, "operator 1 (source train) feeds nothing; every path must end in a sink"),
        ({1: SOURCE, 2: OUT, 3: OUT}, {1: (), 2: (1,), 3: (2,)}, "(sink alerts (ts, speed)) feeds another operator"),
        ({1: SLOW, 2: OUT}, {1: (), 2: (1,)}, "operator 1 (filter speed < 30) takes 1 inputs, but has 0"),
        ({1: SOURCE, 2: OUT}, {1: ()}, "needs the inputs of exactly its operators"),
    ],
)
def test_wrong_shapes_are_refused(
    operators: dict[int, Operator], inputs: dict[int, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        plan(operators, inputs)
    assert message in str(caught.value)


def test_an_expression_over_another_type_is_refused() -> None:
    other = Source("train", Schema.of(ts="timestamp", speed="int"), "ts")
    with pytest.raises(InputError, match="column 'speed' is int, but the expression speed < 30 reads double"):
        plan({1: other, 2: SLOW, 3: OUT}, {1: (), 2: (1,), 3: (2,)})


def test_drawing_refers_to_what_was_drawn() -> None:
    made = plan({1: SOURCE, 2: SLOW, 3: Union(), 4: OUT}, {1: (), 2: (1,), 3: (1, 2), 4: (3,)})
    assert drawn(made).splitlines() == [
        "4 sink alerts (ts, speed)",
        "└─ 3 union",
        "   ├─ 1 source train",
        "   └─ 2 filter speed < 30",
        "      └─ 1 source (as above)",
    ]
