"""Estimates of how many tuples flow and how much memory they take, from source rates and the kinds of operators.

They are starting values until measured rates arrive; placement depends on their order, not on their digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf

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
from meander.model.windows import Between, Count, PairWindow, Session, Sliding, Tumbling, Within
from meander.place.free_capacity import in_memory_steps, in_steps
from meander.place.nova.queries.split import share_of

_PASSES: dict[type, float] = {
    Filter: 0.5,
    UserFunction: 1.0,
    WindowAggregate: 0.1,
    WindowJoin: 0.5,
    Conjunction: 0.5,
    Sequence: 0.2,
}
_BYTES = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.FLOAT: 4, Kind.DATE: 4, Kind.STRING: 24, Kind.BINARY: 64, Kind.ARRAY: 64}
KEEPING: frozenset[type] = frozenset({WindowAggregate, WindowJoin, Conjunction, Sequence})
"""Operators that keep tuples or rows."""
STATELESS_MB = 1 / 16
"""The memory that an operator takes for running at all."""
HIDDEN_BYTES = 24
"""Event time and watermark that travel with every tuple."""


def output_rate_tps(operator: Operator, input_rates_tps: Iterable[float]) -> float:
    """Tuples a second that the operator emits. A filter that splits a stream passes exactly its share."""
    share = share_of(operator.predicate) if isinstance(operator, Filter) else None
    if share is not None:
        return in_steps(sum(input_rates_tps) * share)
    return in_steps(sum(input_rates_tps) * _PASSES.get(type(operator), 1.0))


def row_bytes(schema: Schema) -> int:
    """Size of a tuple in transit."""
    return HIDDEN_BYTES + sum(_BYTES.get(f.type.kind, 8) for f in schema)


def memory_mb(operator: Operator, inputs: ListOf[tuple[float, int]], output: tuple[float, int]) -> float:
    """The memory of an operator's state, from the rates (tuples/s) and row sizes (bytes) of its inputs and its output.

    Joins, conjunctions and sequences keep the tuples of their window, aggregates one row per window and key.
    """
    arriving = sum(rate * size for rate, size in inputs)
    kept = 0.0
    match operator:
        case WindowJoin(window=window, lateness_ms=late) | Conjunction(window=window, lateness_ms=late):
            kept = arriving * (_span_ms(window) + late) / 1000
        case Sequence(within_ms=span, lateness_ms=late):
            kept = arriving * (span + late) / 1000
        case WindowAggregate(window=Count(size=count)):
            kept = count * sum(size for _, size in inputs)
        case WindowAggregate(window=Session(gap_ms=span), lateness_ms=late):
            kept = output[0] * output[1] * (span + late) / 1000
        case WindowAggregate(window=Tumbling(size_ms=span) | Sliding(size_ms=span), lateness_ms=late):
            kept = output[0] * output[1] * (span + late) / 1000
    return in_memory_steps(STATELESS_MB + kept / 1e6)


def _span_ms(window: PairWindow) -> int:
    return window.ms if isinstance(window, Within | Between) else window.size_ms
