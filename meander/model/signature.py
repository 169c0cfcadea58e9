"""Canonical signatures: equal for sub-plans that compute the same under other aliases and spellings.

A signature sees columns by position, predicates as sets, and inputs of a union in any order. So it says that two
operators emit the same tuples, not that they name them alike; `operators.with_renamed_inputs` bridges the names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import NewType

from meander.model.expressions.canonical import canonical, canonical_sql
from meander.model.expressions.tree import TRUE, Call, Expression, conjuncts, renamed, sql
from meander.model.ids import OperatorId
from meander.model.operators import (
    Binary,
    Conjunction,
    Disjunction,
    Filter,
    JoinKind,
    Map,
    Operator,
    Sequence,
    Sink,
    Source,
    Union,
    UserFunction,
    WindowAggregate,
    WindowJoin,
)
from meander.model.plan import QueryPlan
from meander.model.schema import BOOLEAN, Schema, beside

Signature = NewType("Signature", str)


def signatures(plan: QueryPlan) -> dict[OperatorId, Signature]:
    """The signature of the sub-plan below each operator, the operator included."""
    result: dict[OperatorId, Signature] = {}
    for operator_id in plan.order:
        below = plan.inputs[operator_id]
        schemas = tuple(plan.schemas[i] for i in below)
        base, filters = filter_chain(plan.operators, plan.inputs, operator_id)
        if filters:
            result[operator_id] = filter_signature(filters, plan.schemas[base], result[base])
        else:
            result[operator_id] = signature_of(plan.operators[operator_id], schemas, tuple(result[i] for i in below))
    return result


def filter_chain(
    operators: Mapping[OperatorId, Operator], inputs: Mapping[OperatorId, tuple[OperatorId, ...]], start: OperatorId
) -> tuple[OperatorId, list[Expression]]:
    """The predicates of consecutive filters ending at `start`, and the operator below them."""
    predicates: list[Expression] = []
    operator_id = start
    while isinstance(operator := operators[operator_id], Filter):
        predicates.append(operator.predicate)
        operator_id = inputs[operator_id][0]
    return operator_id, predicates


def filter_signature(predicates: list[Expression], schema: Schema, below: Signature) -> Signature:
    """Filters in a row are one set of conjuncts: their order and grouping do not matter."""
    positions = _positions(schema)
    together = canonical(Call("and", tuple(renamed(p, positions) for p in predicates), BOOLEAN))
    texts = {sql(c) for c in conjuncts(together)} - {sql(TRUE)}
    return _digest("filter", *sorted(texts), below) if texts else below


def signature_of(operator: Operator, schemas: tuple[Schema, ...], below: tuple[Signature, ...]) -> Signature:
    """The signature of one operator over inputs with these schemas and signatures."""
    schema = beside(*schemas) if isinstance(operator, Binary) else schemas[0] if schemas else Schema(())
    write = _writer(schema)
    match operator:
        case Source(stream, node=node):
            return _digest("source", stream, node or "")
        case Filter(predicate):
            return filter_signature([predicate], schema, below[0])
        case Map(columns):
            return _digest("map", *(write(c.expression) for c in columns), *below)
        case UserFunction(function, output):
            return _digest("user function", function, str(output), ",".join(schema.names), *below)
        case Union():
            return _digest("union", *sorted(below))
        case WindowAggregate(window, keys, aggregates, lateness):
            spec = [write(c.expression) for c in keys] + ["|"] + [write(c.expression) for c in aggregates]
            return _digest("window aggregate", str(window), str(lateness), *spec, *below)
        case WindowJoin(window, keys, condition, lateness, kind):
            pairs = sorted(f"{schemas[0].index_of(a)}={schemas[1].index_of(b)}" for a, b in keys)
            word = "window join" if kind is JoinKind.INNER else f"{kind.value} window join"
            return _digest(word, str(window), str(lateness), *pairs, "|", write(condition), *below)
        case Conjunction(window, condition, lateness):
            return _digest("conjunction", str(window), str(lateness), write(condition), *below)
        case Sequence(within_ms, condition, lateness):
            return _digest("sequence", str(within_ms), str(lateness), write(condition), *below)
        case Disjunction():
            return _digest("disjunction", *below)
        case Sink(name, names):
            return _digest("sink", name, *names, *below)


def _positions(schema: Schema) -> dict[str, str]:
    return {name: f"#{index}" for index, name in enumerate(schema.names)}


def _writer(schema: Schema) -> Callable[[Expression | None], str]:
    positions = _positions(schema)
    return lambda expression: "" if expression is None else canonical_sql(expression, positions)


def _digest(*parts: str) -> Signature:
    text = "".join(f"{len(p)}:{p}" for p in parts)
    return Signature(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
