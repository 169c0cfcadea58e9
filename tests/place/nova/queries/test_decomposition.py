"""Aggregates taken apart: merged in a tree, partial results give what the whole aggregate gives, bit for bit."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang import sql
from meander.model.ids import OperatorId
from meander.model.operators import Operator, Sink, Source, Union, WindowAggregate
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.place.nova.queries.decomposition import decomposed
from meander.run.oracle.batch import PRODUCER, oracle

NODES = ("north", "east", "south")
STREAMS = {"train": Stream("train", Schema.of(ts="bigint", id="int", n="bigint", v="double"), "ts", NODES)}
AGGREGATES = (
    "count(*) AS c, count(v) AS cv, count_if(n > 3) AS ci, sum(id) AS si, sum(n) AS sn, sum(v) AS sv, avg(id) AS ai, "
    "avg(n) AS an, avg(v) AS av, min(v) AS mi, max(n) AS ma, bool_and(n > 2) AS ba, bool_or(n > 2) AS bo, "
    "bit_and(n) AS bta, bit_or(n) AS bto, bit_xor(n) AS btx"
)
WILD = (0.1, -0.1, 1e300, -1e300, 3e18, 7e-13, float("inf"), float("nan"), -0.0, 2.0**63, None)


def plan_of(text: str) -> QueryPlan:
    (query,) = sql(text, STREAMS).queries
    return query.plan


def in_a_tree(plan: QueryPlan) -> QueryPlan:
    """The same query with a partial aggregate for two producers and for one, and a merge of both."""
    (at,) = (o for o, spec in plan.operators.items() if isinstance(spec, WindowAggregate))
    whole, below = plan.operators[at], plan.inputs[at][0]
    assert isinstance(whole, WindowAggregate)
    parts = decomposed(whole, plan.schemas[below])
    operators: dict[OperatorId, Operator] = {}
    inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}

    def add(spec: Operator, *read: OperatorId) -> OperatorId:
        number = OperatorId(len(operators) + 1)
        operators[number], inputs[number] = spec, read
        return number

    def over(node: str) -> OperatorId:
        top = OperatorId(0)
        for own in plan.order[: plan.order.index(at)]:
            spec = plan.operators[own]
            top = add(replace(spec, node=node)) if isinstance(spec, Source) else add(spec, top)
        return add(parts.before, top)

    leaves = [over(node) for node in NODES]
    partials = [add(parts.named, add(parts.partial, add(Union(), *some))) for some in (leaves[:2], leaves[2:])]
    merged = add(parts.named_again, add(parts.merge, add(Union(), *partials)))
    again = add(parts.named_again, add(parts.merge, add(Union(), merged)))
    top = add(parts.finish, again)
    for own in plan.order[plan.order.index(at) + 1 :]:
        top = add(plan.operators[own], top)
    assert isinstance(operators[top], Sink)
    return QueryPlan(operators, inputs)


def bits(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Rows with doubles by their bits; all NaN are one."""

    def exact(value: object) -> object:
        if not isinstance(value, float):
            return value
        return "NaN" if np.isnan(value) else struct.pack("d", value)

    return Counter(tuple(map(exact, row.values())) for row in table.to_pylist())


@pytest.mark.parametrize(
    "window", ["GROUP BY id WINDOW TUMBLING(ts, 1 s)", "WINDOW SLIDING(ts, 900 ms, 300 ms) ALLOW LATENESS 200 ms"]
)
def test_partial_results_that_are_merged_are_the_whole_result_to_the_last_bit(spark: SparkSession, window: str) -> None:
    rng = np.random.default_rng(1)
    count = 900
    wild = [WILD[i] for i in rng.integers(0, len(WILD), count)]
    tame = (rng.normal(0, 1, count) * 10.0 ** rng.integers(-12, 15, count)).tolist()
    times = np.sort(rng.integers(0, 20_000, count)) + rng.integers(0, 400, count)
    values = [w if t > 14_000 else v for w, v, t in zip(wild, tame, times.tolist(), strict=True)]
    tuples = pa.table({
        "ts": pa.array(times), "id": pa.array(rng.integers(0, 3, count), pa.int32()),
        "n": pa.array([None if x == 9 else int(x) << 40 for x in rng.integers(-9, 10, count)], pa.int64()),
        "v": pa.array(values, pa.float64()), PRODUCER: pa.array([NODES[i] for i in rng.integers(0, 3, count)]),
    })  # fmt: skip
    plan = plan_of(f"SELECT window_start, {AGGREGATES} FROM train WHERE id < 2 {window} INTO out")
    wanted = oracle(spark, plan, {"train": tuples}, 300)["out"]
    found = oracle(spark, in_a_tree(plan), {"train": tuples}, 300)["out"]
    assert found.schema.names == wanted.schema.names
    assert bits(found) == bits(wanted)
    assert len(wanted) > 30
