"""The part of a query that Nova places as a tree: producers, one aggregate over them, and what follows it."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.errors import InputError
from meander.model.ids import OperatorId
from meander.model.operators import STATEFUL, Source, WindowAggregate
from meander.model.plan import Query
from meander.place.catalog import Catalog
from meander.place.nova.queries.decomposition import Decomposition, decomposed
from meander.place.nova.queries.shape import Side, side_of, sink_node_of


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A query taken apart: producers, the aggregate over them, and what follows it."""

    query: Query
    side: Side
    aggregate: OperatorId
    rest: tuple[OperatorId, ...]
    sink_node: str
    operators: Decomposition


def tree_of(query: Query, catalog: Catalog) -> TreeShape:
    """Takes a query apart; raises when it is not one aggregate over a stream that can be merged in a tree."""
    try:
        return _tree_of(query, catalog)
    except InputError as error:
        raise error.inside(f"query {query.id!r}") from None


def _tree_of(query: Query, catalog: Catalog) -> TreeShape:
    plan = query.plan
    memory = [o for o in plan.order if isinstance(plan.operators[o], STATEFUL)]
    if len(memory) != 1 or not isinstance(plan.operators[memory[0]], WindowAggregate):
        raise InputError(
            "it has no join, and not exactly one aggregate with nothing with memory behind it; Nova places joins, and "
            "aggregates over a stream, so use another mechanism for it"
        )
    spec, (below,) = plan.operators[memory[0]], plan.inputs[memory[0]]
    assert isinstance(spec, WindowAggregate)
    side, used = side_of(plan, below, catalog.streams, {})
    rest = tuple(o for o in plan.order if o not in used and o != memory[0])
    if any(isinstance(plan.operators[o], Source) for o in rest):
        raise InputError("more than the aggregate's results flows into it; use another mechanism for it")
    taken = decomposed(spec, side.schema)
    return TreeShape(query, side, memory[0], rest, sink_node_of(plan, catalog.sinks), taken)
