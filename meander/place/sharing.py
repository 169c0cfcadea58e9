"""Query sharing: a new query adds only the operators that nobody runs yet.

Signatures of all running operators are one dictionary, so the whole search is a look-up per operator of the new query,
however many queries run. A match covers everything below it. Columns may have other names on the running side; the
first operator above a match is rewritten to read those.
"""

from __future__ import annotations

from meander.model.global_plan import OperatorState, PlanOperator, RunningQuery
from meander.model.ids import OperatorId
from meander.model.operators import Operator, Sink, Source, output_schema, with_renamed_inputs
from meander.model.schema import Schema
from meander.place.catalog import Catalog
from meander.place.physical import PreparedQuery
from meander.place.rates import output_rate_tps, row_bytes
from meander.place.room import in_steps


def add_query(catalog: Catalog, prepared: PreparedQuery) -> list[OperatorId]:
    """Merges a query into the global query plan; returns the operators that it adds or brings back."""
    plan, physical = catalog.plan, prepared.plan
    mapping: dict[OperatorId, OperatorId] = {}
    changed: list[OperatorId] = []
    for own in prepared.order:
        operator = physical.operators[own]
        signature = prepared.signatures[own]
        existing = None if isinstance(operator, Sink) else catalog.running.get(signature)
        if existing is not None:
            mapping[own] = existing
            if plan[existing].state is OperatorState.TO_BE_REMOVED:
                changed.append(_revived(catalog, existing))
            continue
        inputs = tuple(mapping[i] for i in physical.inputs[own])
        old = tuple(physical.schemas[i] for i in physical.inputs[own])
        new = tuple(plan[i].schema for i in inputs)
        spec, schema = _renamed(operator, old, new, physical.schemas[own])
        record = PlanOperator(plan.fresh_id(), spec, schema, signature, inputs)
        _pin(catalog, record)
        estimate(catalog, record)
        plan.add_operator(record)
        if not isinstance(operator, Sink):
            catalog.running[signature] = record.id
        mapping[own] = record.id
        changed.append(record.id)
    operators = tuple(dict.fromkeys(mapping.values()))
    sinks = tuple(mapping[s] for s in physical.sinks)
    plan.add_query(RunningQuery(prepared.query, operators, sinks))
    return changed


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
    record.row_bytes = row_bytes(record.schema)


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
    if all(a.names == b.names for a, b in zip(old, new, strict=True)):
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
