"""The explanation of a query, before anything runs: its operator graph as text for people and as JSON for programs."""

from __future__ import annotations

from meander.model.operators import STATEFUL, Operator, describe, kind_of
from meander.model.plan import Query, drawn
from meander.model.signature import signatures


def explain_text(query: Query) -> str:
    """The plan as a tree, then every operator's output, then the demands.

    The tree starts at the sinks, and data flows upwards. Signatures are shortened; operators of two queries with the
    same signature emit the same tuples.
    """
    plan = query.plan
    marks = signatures(plan)
    lines = [f"query {query.id}", "", *_indented(drawn(plan).splitlines()), "", "  operators"]
    width = max(len(kind_of(o)) for o in plan.operators.values())
    for number, operator in plan.operators.items():
        schema = f"({plan.schemas[number]})"
        lines.append(f"  {number:>4}  {kind_of(operator):<{width}}  {marks[number][:8]}  {schema}")
    if query.demands:
        lines += ["", "  demands", *(f"        {d}" for d in query.demands)]
    return "\n".join(lines)


def explain_json(query: Query) -> dict[str, object]:
    """The same as plain data, with full signatures and the inputs of each operator."""
    plan = query.plan
    marks = signatures(plan)
    return {
        "query": str(query.id),
        "operators": [
            {
                "id": int(number),
                "kind": kind_of(operator),
                "description": describe(operator),
                "inputs": [int(i) for i in plan.inputs[number]],
                "schema": [{"name": f.name, "type": str(f.type)} for f in plan.schemas[number]],
                "stateful": _is_stateful(operator),
                "signature": str(marks[number]),
            }
            for number, operator in plan.operators.items()
        ],
        "demands": [
            {
                "metric": d.metric.value,
                "comparison": d.comparison,
                "bound": d.bound,
                "weight": d.weight,
                "when": [str(clause) for clause in d.when],
                "text": str(d),
            }
            for d in query.demands
        ],
    }


def _is_stateful(operator: Operator) -> bool:
    return isinstance(operator, STATEFUL)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
