"""Bytes that reach joins and windows, of each Nexmark query as it is written and as it is placed.

All that reaches an operator which needs tuples of several nodes may have to cross a link. Run with
`python -m lab.experiments.rewritten_bytes`; it prints a table.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import SparkSession

from lab.workloads.nexmark import QUERIES, STREAMS, events
from meander.lang.sql.script import sql
from meander.model.ids import OperatorId
from meander.model.operators import STATEFUL, Sink
from meander.model.plan import QueryPlan
from meander.place.rewrites import rewritten
from meander.run.oracle.batch import answer
from meander.run.session import start_session


def received_bytes(spark: SparkSession, plan: QueryPlan, tables: Mapping[str, pa.Table]) -> int:
    """Bytes of the tuples, as Arrow holds them in channels, that operators with state read from the streams."""
    stateful = {o for o, operator in plan.operators.items() if isinstance(operator, STATEFUL)}
    read = [i for o in stateful for i in plan.inputs[o]]
    return sum(
        answer(spark, _up_to(plan, each), tables, 0).sinks["out"].nbytes
        for each in read
        if not _below(plan, each, stateful)
    )


def _below(plan: QueryPlan, operator: OperatorId, stateful: set[OperatorId]) -> bool:
    """Whether an operator reads results of another one with state."""
    return operator in stateful or any(_below(plan, i, stateful) for i in plan.inputs[operator])


def _up_to(plan: QueryPlan, top: OperatorId) -> QueryPlan:
    needed, waiting = set[OperatorId](), [top]
    while waiting:
        operator = waiting.pop()
        needed.add(operator)
        waiting.extend(plan.inputs[operator])
    sink = OperatorId(max(plan.operators) + 1)
    operators = {o: plan.operators[o] for o in needed}
    inputs = {o: plan.inputs[o] for o in needed}
    return QueryPlan({**operators, sink: Sink("out", plan.schemas[top].names)}, {**inputs, sink: (top,)})


def main() -> None:
    spark, tables = start_session("bytes"), events(1)
    print("| query | as written, kB | as placed, kB | times less |\n|---|---|---|---|")  # noqa: T201
    for name, query in QUERIES.items():
        (parsed,) = sql(f"{query.sql} INTO out", STREAMS).queries
        written, placed = (received_bytes(spark, p, tables) for p in (parsed.plan, rewritten(parsed.plan)))
        if written:
            print(f"| {name} | {written / 1e3:.1f} | {placed / 1e3:.1f} | {written / placed:.1f} |")  # noqa: T201


if __name__ == "__main__":
    main()
