"""Estimates of how many tuples flow, from source rates and what each kind of operator lets through.

They are starting values until measured rates arrive; what matters to placement is their order, not their digits.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.operators import (
    Conjunction,
    Filter,
    Operator,
    Sequence,
    UserFunction,
    WindowAggregate,
    WindowJoin,
)
from meander.model.schema import Kind, Schema
from meander.place.nova.split import share_of
from meander.place.room import in_steps

_PASSES: dict[type, float] = {
    Filter: 0.5,
    UserFunction: 1.0,
    WindowAggregate: 0.1,
    WindowJoin: 0.5,
    Conjunction: 0.5,
    Sequence: 0.2,
}
_BYTES = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.FLOAT: 4, Kind.DATE: 4, Kind.STRING: 24, Kind.BINARY: 64, Kind.ARRAY: 64}
HIDDEN_BYTES = 24
"""Event time and watermark that travel with every tuple."""


def output_rate_tps(operator: Operator, input_rates_tps: Iterable[float]) -> float:
    """Tuples a second that the operator emits. A filter that splits a stream passes exactly its share."""
    share = share_of(operator.predicate) if isinstance(operator, Filter) else None
    if share is not None:
        return in_steps(sum(input_rates_tps) * share)
    return in_steps(sum(input_rates_tps) * _PASSES.get(type(operator), 1.0))


def row_bytes(schema: Schema) -> int:
    """Size of a tuple on the wire."""
    return HIDDEN_BYTES + sum(_BYTES.get(f.type.kind, 8) for f in schema)
