"""Templates: what makes two fragments one frame."""

from __future__ import annotations

from meander.model.ids import OperatorId
from meander.model.operators import Operator, Sink, Source
from meander.model.schema import Schema
from meander.run.template import bind


def key_of(stream: str, node: str, column: str) -> str:
    source = Source(stream, Schema.of(ts="bigint", **{column: "double"}), "ts", node)
    operators: dict[OperatorId, Operator] = {OperatorId(1): source, OperatorId(2): Sink("s", ("a", "b"))}
    return bind(operators, {OperatorId(1): (), OperatorId(2): (OperatorId(1),)}).template.key


def test_sources_whose_columns_have_other_names_are_not_read_as_one_table() -> None:
    assert key_of("pressure", "p1", "pressure") == key_of("pressure", "p2", "pressure")
    assert key_of("pressure", "p1", "pressure") != key_of("humidity", "h1", "humidity")
