"""Filter: keeps the tuples for which the predicate is true; null is not true."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from meander.model.operators import Filter
from meander.run.expressions import spark_sql


def apply(operator: Filter, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return inputs[0].where(predicate(operator))


def predicate(operator: Filter) -> str:
    return spark_sql(operator.predicate)
