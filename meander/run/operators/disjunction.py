"""Disjunction: every tuple of either side, with nulls in the other side's columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from meander.model.operators import Disjunction


def apply(operator: Disjunction, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    left, right = inputs
    mine, theirs = (_columns(frame, carried) for frame in inputs)
    first = left.selectExpr(*carried, *(f.name for f in mine), *(_null(f, len(mine) + i) for i, f in enumerate(theirs)))
    second = right.selectExpr(
        *carried,
        *(_null(f, i) for i, f in enumerate(mine)),
        *(f"{f.name} AS c{len(mine) + i}" for i, f in enumerate(theirs)),
    )
    return first.unionAll(second)


def _columns(frame: DataFrame, carried: Sequence[str]) -> list[StructField]:
    return [f for f in frame.schema.fields if f.name not in carried]


def _null(field: StructField, position: int) -> str:
    return f"CAST(NULL AS {field.dataType.simpleString()}) AS c{position}"
