"""Every operator: against the naive reference over the whole input, and cut into random steps.

Each test runs forty random fragments as one frame: disorder, stragglers, nulls, ties, empty batches, steps that bring
nothing but a watermark.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang import sql
from meander.model.plan import QueryPlan
from meander.run.fragments.template import BoundFragment, bind
from meander.run.frames import END
from tests.run.operators.cases import STREAMS, Case, random_case, table_of
from tests.run.operators.compare import Rows, assert_close, of_reference, rows_of
from tests.run.operators.driver import Driver
from tests.run.reference import run

CASES, STEPS = 40, 4

AGGREGATES = """count(*) AS c, count(v) AS cv, sum(v) AS sv, sum(n) AS sn, sum(k) AS sk, avg(v) AS av, avg(n) AS an,
    min(v) AS lo, max(s) AS hi, stddev(v) AS dv, approx_count_distinct(s) AS ds, first(v) AS fv, last(s) AS ls,
    top_k(v, 3) AS tv"""

SOME = "count(*) AS c, sum(v) AS sv, avg(n) AS an, max(s) AS hi, first(v) AS fv, last(s) AS ls, top_k(v, 3) AS tv"

QUERIES = {
    "filter": "SELECT * FROM a WHERE v > 0 AND k IS NOT NULL INTO out",
    "map": "SELECT v * 2 AS x, n / k AS q, n * 3 AS o, upper(s) AS u FROM a INTO out",
    "union": "SELECT k, v FROM a WHERE v < 1 UNION ALL SELECT k, w FROM b INTO out",
    "disjunction": "SELECT * FROM a, b MATCH a OR b INTO out",
    "tumbling": f"SELECT k, window_start, {AGGREGATES} FROM a WHERE v < 1e8"
    " WINDOW TUMBLING(700 ms) GROUP BY k INTO out",
    "tumbling with lateness": "SELECT window_end, s, avg(w) AS m FROM (SELECT s, v AS w FROM a)"
    " WINDOW TUMBLING(500 ms) ALLOW LATENESS 400 ms"
    " GROUP BY s HAVING count(*) > 1 INTO out",
    "sliding": "SELECT window_start, k, count(*) AS c, sum(v) AS x, top_k(n, 2) AS t FROM a"
    " WINDOW SLIDING(1 s, 300 ms) GROUP BY k INTO out",
    "session": f"SELECT window_start, window_end, k, {SOME} FROM a WINDOW SESSION(150 ms) GROUP BY k INTO out",
    "session without key": "SELECT window_start, count(*) AS c FROM a"
    " WINDOW SESSION(100 ms) ALLOW LATENESS 100 ms INTO out",
    "count": f"SELECT window_start, window_end, k, {SOME} FROM a WINDOW COUNT(3) GROUP BY k INTO out",
    "count with slide": "SELECT k, sum(v) AS x, last(n) AS l FROM a WINDOW COUNT(5, 2) GROUP BY k INTO out",
    "join within": "SELECT a.k, v, w, a.ts, b.ts AS other FROM a JOIN b ON a.k = b.k AND v < w WITHIN 250 ms INTO out",
    "join in tumbling windows": "SELECT v, w FROM a JOIN b ON a.k = b.k WINDOW TUMBLING(600 ms) INTO out",
    "join in sliding windows": "SELECT v, w FROM a JOIN b ON a.k = b.k WINDOW SLIDING(600 ms, 250 ms) INTO out",
    "join of a stream with itself": "SELECT l.n, r.v FROM a AS l JOIN a AS r ON l.k = r.k WITHIN 50 ms INTO out",
    "join between": "SELECT v, w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - 50 AND a.ts + 200 INTO out",
    "join after": "SELECT v, w FROM a JOIN b ON a.k = b.k AND b.ts > a.ts + 40 AND a.ts >= b.ts - 300 INTO out",
    "join on expressions": "SELECT * FROM a JOIN b ON a.n % 3 = b.k AND upper(a.s) = 'X' WITHIN 100 ms INTO out",
    "left join within": "SELECT a.k, v, w FROM a LEFT JOIN b ON a.k = b.k AND v < w WITHIN 150 ms INTO out",
    "left join between": "SELECT v, w FROM a LEFT JOIN b ON a.k = b.k AND b.ts >= a.ts AND b.ts < a.ts + 150 INTO out",
    "right join between": "SELECT n, w FROM a RIGHT JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - 200 AND b.ts INTO out",
    "full join in windows": "SELECT v, w FROM a FULL JOIN b ON a.k = b.k AND v > w WINDOW TUMBLING(300 ms) INTO out",
    "full join in sliding windows": "SELECT n, w FROM a FULL OUTER JOIN b ON a.k = b.k WINDOW SLIDING(400 ms, 150 ms)"
    " ALLOW LATENESS 100 ms INTO out",
    "full join within": "SELECT a.ts, n, w FROM a FULL JOIN b ON a.k = b.k WITHIN 60 ms ALLOW LATENESS 90 ms INTO out",
    "semi join": "SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k AND v < w WITHIN 200 ms INTO out",
    "anti join in windows": "SELECT n, v FROM a LEFT ANTI JOIN b ON a.k = b.k WINDOW SLIDING(400 ms, 200 ms) INTO out",
    "aggregate of a left join": "SELECT window_end, count(*) AS c, count(w) AS d FROM"
    " (SELECT a.k, w FROM a LEFT JOIN b ON a.k = b.k WITHIN 150 ms) WINDOW TUMBLING(300 ms) GROUP BY k INTO out",
    "conjunction": "SELECT v, w FROM a, b MATCH a AND b WITHIN 120 ms WHERE a.v > b.w INTO out",
    "sequence": "SELECT a.ts AS x, b.ts AS y FROM a, b MATCH a THEN b WITHIN 200 ms WHERE a.k = b.k INTO out",
    "aggregate of an aggregate": "SELECT window_start, max(c) AS m, count(*) AS k FROM"
    " (SELECT k, count(*) AS c FROM a WINDOW TUMBLING(200 ms) GROUP BY k) WINDOW TUMBLING(1 s) INTO out",
    "user function that drops and repeats": "SELECT * FROM APPLY('tests.run.operators.functions:twice_positive', a)"
    " RETURNS (k int, x double) INTO out",
    "user function before an aggregate": "SELECT window_start, sum(x) AS t FROM"
    " APPLY('tests.run.operators.functions:halved', a) RETURNS (x double) WINDOW TUMBLING(500 ms) INTO out",
    "aggregate of a join": "SELECT window_end, count(*) AS c, sum(v) AS x FROM"
    " (SELECT a.k, v, w FROM a JOIN b ON a.k = b.k WITHIN 150 ms) WINDOW TUMBLING(500 ms) GROUP BY k INTO out",
}


def plan_of(text: str) -> QueryPlan:
    (query,) = sql(text, STREAMS).queries
    return query.plan


@pytest.mark.parametrize("name", QUERIES)
def test_reference_and_cuts(spark: SparkSession, name: str, seed: int) -> None:
    plan = plan_of(QUERIES[name])
    bound = bind(plan.operators, plan.inputs)
    rng = random.Random(seed)
    cases = [random_case(rng, plan, bound, STEPS) for _ in range(CASES)]
    whole, late = run_whole(spark, bound, cases)
    wanted_late: Counter[tuple[int, int]] = Counter()
    for fragment, case in enumerate(cases):
        outcome = run(plan, {o: case.rows(port) for port, o in enumerate(bound.ports)})
        wanted_late.update({(fragment, o): n for o, n in outcome.late.items() if n})
        assert_close(whole.get(fragment, []), of_reference(outcome.sinks["out"]), f"seed {seed}, case {fragment}")
    assert late == wanted_late
    stepped, driver = run_in_steps(spark, bound, cases)
    assert stepped == whole
    assert driver.late == late
    assert {s: len(t) for s, t in driver.state.items() if len(t) and not is_open_count(driver, s)} == {}


def run_whole(
    spark: SparkSession, bound: BoundFragment, cases: list[Case]
) -> tuple[dict[int, Rows], Counter[tuple[int, int]]]:
    """All tuples in one step, as the oracle does it."""
    driver = Driver(spark, bound, len(cases))
    ports = {p: table_of(bound, p, [c.rows(p) for c in cases]) for p in range(len(bound.ports))}
    made = driver.step(ports, np.full(len(cases), END))
    return rows_of(made[bound.template.outputs[0]]), driver.late


def run_in_steps(spark: SparkSession, bound: BoundFragment, cases: list[Case]) -> tuple[dict[int, Rows], Driver]:
    driver = Driver(spark, bound, len(cases))
    outputs = []
    for step in range(STEPS):
        ports = {p: table_of(bound, p, [c.batch(p, step) for c in cases]) for p in range(len(bound.ports))}
        made = driver.step(ports, np.array([c.after[step] for c in cases]))
        outputs.append(made[bound.template.outputs[0]])
    return rows_of(pa.concat_tables(outputs)), driver


def is_open_count(driver: Driver, state: tuple[int, int]) -> bool:
    """Count windows that never fill stay open for ever."""
    stage, table = state
    return driver.template.stages[stage].states[table].name == "open"
