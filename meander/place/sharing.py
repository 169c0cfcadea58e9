"""Query sharing: a new query adds only operators that do not run yet.

Signatures of all running operators are one dictionary, so the whole search is a look-up per operator of the new query,
however many queries run. A match covers everything below it. Columns may have other names on the running side; the
first operator above a match is rewritten to read those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meander.model.global_plan import OperatorState, PlanOperator, RunningQuery
from meander.model.ids import OperatorId
from meander.model.operators import Sink, Source, output_schema, with_renamed_inputs
from meander.place.catalog import Catalog, SharingPolicy
from meander.place.free_capacity import in_steps
from meander.place.physical import PhysicalPlan, PreparedQuery
from meander.place.rates import KEEPING, STATELESS_MB, memory_mb, output_rate_tps

Matches = dict[OperatorId, OperatorId]
"""Operators of a query as written, and those of the global query plan that compute the same."""


def add_query(catalog: Catalog, prepared: PreparedQuery) -> list[OperatorId]:
    """Merges a query into the global query plan; returns the operators that it adds or brings back."""
    physical = prepared.physical
    plan, partial = physical.plan, catalog.sharing is SharingPolicy.PARTIAL
    mapping, missing = _common_parts(catalog, physical) if partial else _all_or_nothing(catalog, physical)
    changed: list[OperatorId] = []
    for own in missing:
        inputs = tuple([mapping[i] for i in plan.inputs[own]])
        _revive(catalog, inputs, changed)
        index = own not in physical.sinks if partial else own in physical.tops
        mapping[own] = _add(catalog, physical, own, inputs, index)
        changed.append(mapping[own])
    sinks = tuple([mapping[s] for s in plan.sinks])
    catalog.plan.add_query(RunningQuery(prepared.query, sinks))
    return changed


def _common_parts(catalog: Catalog, physical: PhysicalPlan) -> tuple[Matches, Sequence[OperatorId]]:
    """The running operators that the query can read, found from its sinks down, and its own operators that do not
    run yet."""
    plan, signatures, running = physical.plan, physical.signatures, catalog.running
    mapping: Matches = {}
    missing: set[OperatorId] = set()
    stack = list(plan.sinks)
    while stack:
        for own in plan.inputs[stack.pop()]:
            if own in mapping or own in missing:
                continue
            existing = running.get(signatures[own])
            if existing is not None:
                mapping[own] = existing
            else:
                missing.add(own)
                stack.append(own)
    if not missing:
        return mapping, plan.sinks
    return mapping, [o for o in plan.order if o in missing or o in physical.sinks]


def _all_or_nothing(catalog: Catalog, physical: PhysicalPlan) -> tuple[Matches, Sequence[OperatorId]]:
    """The running operators that feed the query's sinks if there are all of them, otherwise nothing."""
    mapping: Matches = {}
    for top in physical.tops:
        existing = catalog.running.get(physical.signatures[top])
        if existing is None:
            return {}, physical.plan.order
        mapping[top] = existing
    return mapping, physical.plan.sinks


def _revive(catalog: Catalog, operators: Iterable[OperatorId], changed: list[OperatorId]) -> None:
    """Brings back operators that were about to be removed, and all below. They still run, and stay where they may."""
    stack = list(operators)
    while stack:
        operator = stack.pop()
        record = catalog.plan[operator]
        if record.state is not OperatorState.TO_BE_REMOVED:
            continue
        node = catalog.placement.nodes.get(operator)
        stays = node is not None and record.pin in (None, node) and catalog.ledger.fits(node, 0, 0.0)
        record.become(OperatorState.PLACED if stays else OperatorState.TO_BE_REPLACED)
        changed.append(operator)
        for upstream in dict.fromkeys(record.inputs):
            catalog.plan[upstream].users += 1
            stack.append(upstream)


def _add(
    catalog: Catalog, physical: PhysicalPlan, own: OperatorId, inputs: tuple[OperatorId, ...], index: bool
) -> OperatorId:
    """A new operator in the global query plan; with `index` later queries can find it."""
    plan, own_plan = catalog.plan, physical.plan
    spec, schema = own_plan.operators[own], own_plan.schemas[own]
    old = [own_plan.schemas[i] for i in own_plan.inputs[own]]
    new = [plan[i].schema for i in inputs]
    if any(a is not b and a.names != b.names for a, b in zip(old, new, strict=True)):
        spec = with_renamed_inputs(spec, tuple(old), tuple(new))
        schema = output_schema(spec, tuple(new))
    record = PlanOperator(plan.fresh_id(), spec, schema, physical.signatures[own], inputs)
    record.row_bytes = physical.row_bytes[own]
    _pin(catalog, record)
    estimate(catalog, record)
    plan.add_operator(record)
    if index:
        catalog.running[record.signature] = record.id
    return record.id


def remove_query(catalog: Catalog, query: RunningQuery) -> list[OperatorId]:
    """Takes a query out; returns the operators that no other query needs, which must now be removed."""
    unused = catalog.plan.remove_query(query.query.id)
    for operator in unused:
        catalog.plan[operator].become(OperatorState.TO_BE_REMOVED)
    return unused


def forget(catalog: Catalog, gone: list[OperatorId]) -> None:
    """Drops operators that hold nothing any more from the plan and the index."""
    for operator in gone:
        record = catalog.plan[operator]
        catalog.recorder.operator(operator, catalog.placement.nodes.get(operator))
        record.become(OperatorState.REMOVED)
        if catalog.running.get(record.signature) == operator:
            del catalog.running[record.signature]
    catalog.plan.drop_operators(gone)


def estimate(catalog: Catalog, record: PlanOperator) -> None:
    """Sets the operator's load, rate and memory from its inputs'."""
    spec = record.spec
    if isinstance(spec, Source):
        assert spec.node is not None
        record.rate_tps = in_steps(catalog.source_rate_tps(spec.stream, spec.node))
        return
    below = [catalog.plan[i] for i in record.inputs]
    rates = [b.rate_tps for b in below]
    record.load_tps = in_steps(sum(rates))
    record.rate_tps = 0.0 if isinstance(spec, Sink) else output_rate_tps(spec, rates)
    record.memory_mb = STATELESS_MB
    if type(spec) in KEEPING:
        sizes = [(b.rate_tps, b.row_bytes) for b in below]
        record.memory_mb = memory_mb(spec, sizes, (record.rate_tps, record.row_bytes))


def _pin(catalog: Catalog, record: PlanOperator) -> None:
    """Sources and sinks are where they are, and take no slot."""
    spec = record.spec
    if isinstance(spec, Sink):
        record.pin, record.slots = catalog.topology.known_id(catalog.sinks[spec.name].node), 0
    elif isinstance(spec, Source) and spec.node is not None:
        record.pin, record.slots = catalog.topology.known_id(spec.node), 0
