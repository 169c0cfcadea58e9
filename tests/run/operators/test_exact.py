"""Aggregates whose result could depend on the order of additions, and does not."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.run.fragments.template import bind
from meander.run.frames import BEGIN, END, HIDDEN
from tests.run.operators.cases import table_of
from tests.run.operators.compare import rows_of
from tests.run.operators.driver import Driver
from tests.run.operators.test_operators import plan_of
from tests.run.reference import Row

GROUPS = 60
SUMS = "SELECT sum(v) AS x, avg(v) AS y, stddev(v) AS d FROM a WINDOW TUMBLING(1 s) INTO out"
DISTINCT = "SELECT approx_count_distinct(v) AS u FROM a WINDOW TUMBLING(1 s) INTO out"


def doubles(rng: random.Random) -> list[float]:
    """Doubles of one scale or of very different ones, with cancellation and repetition."""
    scale = rng.choice((1.0, 1e-3, 1e6))
    values = [rng.gauss(rng.choice((0, 1e6)), 1) * scale for _ in range(rng.randrange(1, 40))]
    values += [-v for v in values[: rng.randrange(3)]] + [values[0]] * rng.randrange(3)
    return values + rng.sample([0.1, -0.1, 1e17, -1e17, 5e-324, -0.0, 2.0**40 + 0.5], rng.randrange(3))


def tuples(values: list[float]) -> list[Row]:
    return [Row(0, BEGIN, 0, (0, 0, v, 0, None)) for v in values]


def stepped(spark: SparkSession, query: str, batches: list[list[list[float]]]) -> list[tuple[float, ...]]:
    """The result of each group (a fragment), whose values come in the given batches."""
    plan = plan_of(query)
    bound = bind(plan.operators, plan.inputs)
    groups = len(batches[0])
    driver = Driver(spark, bound, groups)
    made = []
    for number, batch in enumerate(batches, start=1):
        after = np.full(groups, END if number == len(batches) else BEGIN)
        made.append(driver.step({0: table_of(bound, 0, [tuples(v) for v in batch])}, after))
    rows = rows_of(pa.concat_tables([m[bound.template.outputs[0]] for m in made]))
    return [rows[g][0][len(HIDDEN) :] for g in range(groups)]


def test_sums_are_exact_and_independent_of_order(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    groups = [doubles(rng) for _ in range(GROUPS)]
    shuffled = [rng.sample(g, len(g)) for g in groups]
    once = stepped(spark, SUMS, [groups])
    halves = stepped(spark, SUMS, [[g[: len(g) // 3] for g in shuffled], [g[len(g) // 3 :] for g in shuffled]])
    assert [r[:2] for r in once] == [r[:2] for r in halves], f"seed {seed}"
    small = [max(map(abs, values)) < 2.0**47 for values in groups]
    deviations = [[r[2] for r, fits in zip(rows, small, strict=True) if fits] for rows in (once, halves)]
    assert deviations[0] == deviations[1], f"seed {seed}"
    for values, (total, mean, deviation) in zip(groups, once, strict=True):
        cut = len(values) * 2.0**-64
        assert math.isclose(total, math.fsum(values), rel_tol=4e-16, abs_tol=cut), f"seed {seed}: {values}"
        assert math.isclose(mean, math.fsum(values) / len(values), rel_tol=6e-16, abs_tol=cut)
        if len(values) > 1:
            wanted = float(statistics.stdev(map(Fraction, values)))
            assert math.isclose(deviation, wanted, rel_tol=1e-11, abs_tol=1e-9), f"seed {seed}: {values}"
        else:
            assert deviation is None


def test_special_values_stay_special(spark: SparkSession) -> None:
    inf, nan = math.inf, math.nan
    results = stepped(spark, SUMS, [[[1.0, inf], [inf, -inf], [nan, 1.0], [1e300, 1e300]]])
    assert [str(r[0]) for r in results] == ["inf", "nan", "nan", "2e+300"]


def test_distinct_counts_are_close_and_independent_of_order(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [10, 1023, 1024, 3000, 20_000]
    groups = [[float(i) for i in range(n)] + [1.0, -0.0] for n in sizes]
    once = stepped(spark, DISTINCT, [groups])
    shuffled = [rng.sample(g, len(g)) for g in groups]
    thirds = [[g[i::3] for g in shuffled] for i in range(3)]
    assert stepped(spark, DISTINCT, thirds) == once
    for size, (count,) in zip(sizes, once, strict=True):
        assert count == size if size < 1024 else abs(count - size) < 0.15 * size
