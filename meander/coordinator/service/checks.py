"""Checks of commands that the core makes when their turn has come: each raises with the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meander.coordinator.core.core import Core
from meander.coordinator.problems import conflict, not_found
from meander.model.errors import InputError, unknown
from meander.model.ids import OperatorId, QueryId


def has_query(query: str) -> Callable[[Core], None]:
    """A check that a query is there."""

    def check(core: Core) -> None:
        known = core.loop.catalog.plan.queries
        if QueryId(query) not in known:
            raise not_found(unknown("query", query, known, "queries"))

    return check


def matrix_of(core: Core, query: QueryId) -> dict[str, Any]:
    """The join matrix of a query that Nova places; raises for any other."""
    has_query(query)(core)
    try:
        matrix = core.loop.engine.parted.joined(query).matrix
    except InputError as error:
        raise conflict(str(error)) from None
    room = set(matrix.without_room)
    pairs = [{"left": a, "right": b, "has_room": (a, b) not in room} for a, b in sorted(matrix.pairs)]
    return {"query": query, "joins": matrix.producers, "pairs": pairs}


def can_go(core: Core, operator: OperatorId, node: str) -> None:
    """Raises when a node cannot take an operator: it is gone, has no room, or cannot be reached."""
    catalog = core.loop.catalog
    plan, placed = catalog.plan, catalog.placement.nodes
    record = plan.operators.get(operator)
    if record is None:
        raise not_found(InputError(f"no operator {operator}; `meander describe` shows the numbers"))
    try:
        target = catalog.topology.id(node)
    except InputError as error:
        raise not_found(error) from None
    if placed.get(operator) == target:
        return
    if record.slots and not catalog.ledger.fits(target, *record.charge):
        raise conflict(
            f"node {node!r} has no room for operator {operator}; stop something there or choose another node"
        )
    for other in plan.neighbours(operator):
        there = placed.get(other)
        pair = (there, target) if other in record.inputs else (target, there)
        if there is not None and catalog.topology.path(*pair) is None:
            name = catalog.topology.name(there)
            raise conflict(f"there is no way between {node!r} and {name!r}, where operator {other} runs")


def is_held(core: Core, operator: OperatorId) -> None:
    """Raises when an operator was not placed by hand."""
    record = core.loop.catalog.plan.operators.get(operator)
    if record is None:
        raise not_found(InputError(f"no operator {operator}; `meander describe` shows the numbers"))
    if not record.is_held:
        raise conflict(f"operator {operator} was not moved by hand; there is nothing to release")
