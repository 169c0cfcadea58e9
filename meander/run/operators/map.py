"""Map: each output column from the input columns; hidden columns stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from meander.model.operators import Map
from meander.run.expressions import typed


def apply(operator: Map, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return inputs[0].selectExpr(*carried, *(f"{typed(c.expression)} AS {c.name}" for c in operator.columns))
