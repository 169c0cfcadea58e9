"""Values for the columns of a generated stream: from the generator's model by name, otherwise random ones of the type.

A model gives numbers or labels. A number fits every numeric column and, as text, a string column; a label fits a string
column by its name and a whole-number column by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.schema import DataType, Field, Kind
from meander.run.connectors import noise
from meander.run.connectors.noise import Int64s
from meander.run.connectors.options import ConnectorOptions
from meander.run.connectors.schedule import Due
from meander.run.frames import arrow_type

DISTINCT = 10
"""The number of different texts in a random string column, unless configured."""
_RANGES = {Kind.INT: (0, 99), Kind.BIGINT: (0, 999), Kind.FLOAT: (0, 100), Kind.DOUBLE: (0, 100)}

Fill = Callable[[Due], pa.Array]


@dataclass(frozen=True, slots=True)
class Label:
    """A name out of a few: `index` counts from 0."""

    index: Int64s
    names: pa.Array
    numbers: Int64s | None = None
    """The value of a whole-number column for each name; 1, 2, ... without."""


Value = NDArray[np.float64] | NDArray[np.int64] | Label


def as_column(value: Value, type_: DataType) -> pa.Array:
    """A model's value in a column's type."""
    wanted = arrow_type(type_)
    if isinstance(value, Label):
        if type_.kind is Kind.STRING:
            return value.names.take(pa.array(value.index))
        numbers = value.index + 1 if value.numbers is None else value.numbers[value.index]
        return pa.array(numbers.astype(wanted.to_pandas_dtype()), wanted)
    if type_.is_integral:
        return pa.array(np.rint(value).astype(wanted.to_pandas_dtype()), wanted)
    if type_.is_numeric:
        return pa.array(value.astype(wanted.to_pandas_dtype()), wanted)
    return pc.cast(pa.array(value), pa.string())


def check_fit(name: str, type_: DataType, gives: str) -> None:
    """Refuses a column that cannot hold what the model gives: `number` or `name`."""
    fits = type_.kind is Kind.STRING or (type_.is_integral if gives == "name" else type_.is_numeric)
    if not fits:
        allowed = "string, int or bigint" if gives == "name" else "a number or a string"
        raise InputError(f"column {name!r} is {type_}, but this connector gives it as a {gives}; make it {allowed}")


def random_column(field: Field, options: ConnectorOptions, seed: str) -> Fill:
    """Random values of a field's type. `values.<column>` lists them, `range.<column>` bounds a number: `0..40`."""
    salt = noise.key("column", seed, field.name)
    listed = options.words(f"values.{field.name}")
    if listed:
        try:
            choices = pc.cast(pa.array(listed, pa.string()), arrow_type(field.type))
        except pa.ArrowException:
            raise options.wrong(f"values.{field.name}", f"values of type {field.type}") from None
        return lambda due: choices.take(pa.array(noise.whole(due.keys, due.index, salt, len(choices))))
    low, high = _range(field, options)
    return _of_type(field, salt, low, high)


def _range(field: Field, options: ConnectorOptions) -> tuple[float, float]:
    name = f"range.{field.name}"
    default = _RANGES.get(field.type.kind, (0, DISTINCT - 1))
    if name not in options.values:
        return default
    parts = options.values[name].split("..")
    try:
        low, high = (float(p) for p in parts)
    except ValueError:
        raise options.wrong(name, "two numbers such as 0..40") from None
    if low > high or field.type.kind not in _RANGES:
        raise options.wrong(name, f"a range of a numeric column; {field.name!r} is {field.type}")
    return low, high


def _of_type(field: Field, salt: np.uint64, low: float, high: float) -> Fill:
    kind, wanted = field.type.kind, arrow_type(field.type)
    match kind:
        case Kind.INT | Kind.BIGINT:
            count = int(high) - int(low) + 1
            return lambda due: pa.array(
                (noise.whole(due.keys, due.index, salt, count) + int(low)).astype(wanted.to_pandas_dtype()), wanted
            )
        case Kind.FLOAT | Kind.DOUBLE:
            return lambda due: pa.array(
                (low + (high - low) * noise.uniform(due.keys, due.index, salt)).astype(wanted.to_pandas_dtype()), wanted
            )
        case Kind.BOOLEAN:
            return lambda due: pa.array(noise.uniform(due.keys, due.index, salt) < 0.5)
        case Kind.TIMESTAMP:
            return lambda due: pa.array(due.emitted_ms * 1000, pa.int64()).cast(wanted)
        case Kind.DATE:
            return lambda due: pa.array((due.emitted_ms // 86_400_000).astype(np.int32)).cast(wanted)
        case Kind.BINARY:
            return lambda due: pa.array([v.tobytes() for v in noise.bits(due.keys, due.index, salt)], pa.binary())
        case Kind.ARRAY:
            return _arrays(field, salt)
        case Kind.NULL:
            return lambda due: pa.nulls(due.index.size, wanted)
    names = pa.array([f"{field.name}-{i + 1}" for i in range(DISTINCT)])
    return lambda due: names.take(pa.array(noise.whole(due.keys, due.index, salt, DISTINCT)))


def _arrays(field: Field, salt: np.uint64) -> Fill:
    """Arrays of no to three elements."""
    assert field.type.element is not None
    inner = Field(field.name, field.type.element)
    element = _of_type(inner, salt, *map(float, _RANGES.get(inner.type.kind, (0, DISTINCT - 1))))

    def fill(due: Due) -> pa.Array:
        sizes = noise.whole(due.keys, due.index, noise.key("size", int(salt)), 4)
        rows = np.repeat(np.arange(due.index.size), sizes)
        nth = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        many = Due(
            due.producer[rows], due.index[rows] * 4 + nth, due.emitted_ms[rows], due.elapsed_s[rows], due.keys[rows]
        )
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()), element(many))

    return fill


Gives = Mapping[str, str]
"""The columns of a model, each a `number` or a `name`."""
