"""Query sharing: a new query adds only the operators that nobody runs yet.

Signatures of all running operators are one dictionary, so the whole search is a look-up per operator of the new query,
however many queries run. A match covers everything below it. Columns may have other names on the running side; the
first operator above a match is rewritten to read those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meander.model.global_plan import OperatorState, PlanOperator, RunningQuery
from meander.model.ids import OperatorId
from meander.model.operators import Operator, Sink, Source, output_schema, with_renamed_inputs
from meander.model.schema import Schema
from meander.place.catalog import Catalog, Sharing
from meander.place.physical import PhysicalPlan, PreparedQuery
from meander.place.rates import output_rate_tps
from meander.place.room import in_steps


def add_query(catalog: Catalog, prepared: PreparedQuery) -> list[OperatorId]:
    """Merges a query into the global query plan; returns the operators that it adds or brings back."""
    if catalog.sharing is Sharing.COMPLETE:
        return _add_complete(catalog, prepared)
    mapping: dict[OperatorId, OperatorId] = {}
    changed: list[OperatorId] = []
    physical = prepared.physical
    for own in physical.plan.order:
        shareable = not isinstance(physical.plan.operators[own], Sink)
        existing = catalog.running.get(physical.signatures[own]) if shareable else None
        if existing is None:
            existing = _add(catalog, physical, own, mapping, shareable)
            changed.append(existing)
        elif catalog.plan[existing].state is OperatorState.TO_BE_REMOVED:
            changed.append(_revived(catalog, existing))
        mapping[own] = existing
    _use(catalog, prepared, mapping, mapping.values())
    return changed


def _add_complete(catalog: Catalog, prepared: PreparedQuery) -> list[OperatorId]:
    """Shares all or nothing: only what feeds a sink is looked up, and only that is indexed."""
    plan, physical = catalog.plan, prepared.physical
    found = {top: catalog.running.get(physical.signatures[top]) for top in physical.tops}
    mapping = {top: existing for top, existing in found.items() if existing is not None}
    changed: list[OperatorId] = []
    if len(mapping) == len(found):
        shared = _below(catalog, mapping.values())
        changed.extend(_revived(catalog, o) for o in shared if plan[o].state is OperatorState.TO_BE_REMOVED)
        missing = physical.plan.sinks
    else:
        shared, mapping, missing = {}, {}, physical.plan.order
    for own in missing:
        mapping[own] = _add(catalog, physical, own, mapping, own in physical.tops)
        changed.append(mapping[own])
    _use(catalog, prepared, mapping, (*shared, *mapping.values()))
    return changed


def _below(catalog: Catalog, tops: Iterable[OperatorId]) -> dict[OperatorId, None]:
    """These operators and everything that feeds them."""
    found: dict[OperatorId, None] = {}
    stack = list(tops)
    while stack:
        operator = stack.pop()
        if operator not in found:
            found[operator] = None
            stack.extend(catalog.plan[operator].inputs)
    return found


def _use(
    catalog: Catalog,
    prepared: PreparedQuery,
    mapping: Mapping[OperatorId, OperatorId],
    operators: Iterable[OperatorId],
) -> None:
    sinks = tuple(mapping[s] for s in prepared.physical.plan.sinks)
    catalog.plan.add_query(RunningQuery(prepared.query, tuple(dict.fromkeys(operators)), sinks))


def _add(
    catalog: Catalog,
    physical: PhysicalPlan,
    own: OperatorId,
    mapping: Mapping[OperatorId, OperatorId],
    index: bool,
) -> OperatorId:
    """A new operator in the global query plan; with `index` later queries can find it."""
    plan, own_plan = catalog.plan, physical.plan
    inputs = tuple(mapping[i] for i in own_plan.inputs[own])
    old = tuple(own_plan.schemas[i] for i in own_plan.inputs[own])
    new = tuple(plan[i].schema for i in inputs)
    spec, schema = _renamed(own_plan.operators[own], old, new, own_plan.schemas[own])
    record = PlanOperator(plan.fresh_id(), spec, schema, physical.signatures[own], inputs)
    record.row_bytes = physical.row_bytes[own]
    _pin(catalog, record)
    estimate(catalog, record)
    plan.add_operator(record)
    if index:
        catalog.running[record.signature] = record.id
    return record.id


def remove_query(catalog: Catalog, query: RunningQuery) -> list[OperatorId]:
    """Takes a query out; returns its operators that nobody else needs, which must now be removed."""
    unused = catalog.plan.remove_query(query.query.id)
    for operator in unused:
        catalog.plan[operator].become(OperatorState.TO_BE_REMOVED)
    return unused


def forget(catalog: Catalog, gone: list[OperatorId]) -> None:
    """Drops operators that hold nothing any more from the plan and the index."""
    for operator in gone:
        record = catalog.plan[operator]
        record.become(OperatorState.REMOVED)
        if catalog.running.get(record.signature) == operator:
            del catalog.running[record.signature]
    catalog.plan.drop_operators(gone)


def estimate(catalog: Catalog, record: PlanOperator) -> None:
    """Sets the operator's load and rate from its inputs'."""
    rates = [catalog.plan[i].rate_tps for i in record.inputs]
    spec = record.spec
    if isinstance(spec, Source):
        assert spec.node is not None
        record.rate_tps = in_steps(catalog.source_rate_tps(spec.stream, spec.node))
    else:
        record.load_tps = in_steps(sum(rates))
        record.rate_tps = 0.0 if isinstance(spec, Sink) else output_rate_tps(spec, rates)


def _pin(catalog: Catalog, record: PlanOperator) -> None:
    """Sources and sinks are where they are, and take no slot."""
    match record.spec:
        case Source(node=str() as name):
            record.pin, record.slots = catalog.topology.known_id(name), 0
        case Sink(name=name):
            record.pin, record.slots = catalog.topology.known_id(catalog.sinks[name].node), 0


def _renamed(
    operator: Operator, old: tuple[Schema, ...], new: tuple[Schema, ...], schema: Schema
) -> tuple[Operator, Schema]:
    if all(a is b or a.names == b.names for a, b in zip(old, new, strict=True)):
        return operator, schema
    renamed = with_renamed_inputs(operator, old, new)
    return renamed, output_schema(renamed, new)


def _revived(catalog: Catalog, operator: OperatorId) -> OperatorId:
    """Brings back an operator that was about to be removed: it still runs, unless its node is gone."""
    record = catalog.plan[operator]
    node = catalog.placement.nodes.get(operator)
    alive = node is not None and catalog.topology.is_alive(node)
    record.become(OperatorState.PLACED if alive else OperatorState.TO_BE_REPLACED)
    return operator
