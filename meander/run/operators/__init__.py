"""Operators as functions over frames, one file each; the tables below say which file serves which operator.

A stateless operator is a function from frames to a frame. One with memory is prepared once for its schemas and then
makes the frame of a step out of new tuples and state (see `state.Stateful`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from meander.model.operators import (
    Conjunction,
    Disjunction,
    Filter,
    Map,
    Operator,
    Union,
    WindowAggregate,
    WindowJoin,
)
from meander.model.operators import Sequence as SequenceOperator
from meander.model.schema import Schema
from meander.run.operators import (
    conjunction,
    disjunction,
    filter,
    map,
    sequence,
    union,
    window_aggregate,
    window_join,
)
from meander.run.operators.state import Stateful

Apply = Callable[[Any, Sequence[DataFrame], Sequence[str]], DataFrame]
Prepare = Callable[[Any, tuple[Schema, ...]], Stateful]

STATELESS: dict[type[Operator], Apply] = {
    Filter: filter.apply,
    Map: map.apply,
    Union: union.apply,
    Disjunction: disjunction.apply,
}
"""Operators that need no more than their inputs and the hidden columns to carry along."""

STATEFUL: dict[type[Operator], Prepare] = {
    WindowAggregate: window_aggregate.prepare,
    WindowJoin: window_join.prepare,
    Conjunction: conjunction.prepare,
    SequenceOperator: sequence.prepare,
}
"""Operators that remember tuples between steps."""
