"""Union: all tuples of all inputs, column by column in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame

from meander.model.operators import Union


def apply(operator: Union, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return reduce(DataFrame.unionAll, inputs)
