"""User function: a Python function from Arrow batches to Arrow batches, run by Spark's Python workers.

The function sees its input columns by their names and, behind them, the hidden columns. A result with as many rows as
the batch is taken row by row; a function that drops or multiplies rows hands the hidden columns on (`batch.filter` and
`batch.take` do it by themselves), so that every result tuple keeps the event time of the tuple it came from.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import ANY, AllowedFunctions
from meander.model.operators import UserFunction
from meander.run.expressions import type_text
from meander.run.frames import Mapping, arrow_type, mapped, positions


@dataclass(slots=True)
class Allowing:
    """The functions that this process may import; a service sets it, and other commands import what their user says."""

    functions: AllowedFunctions = ANY


allowing = Allowing()


@contextmanager
def only(functions: AllowedFunctions) -> Iterator[None]:
    """Within this block, the process imports these functions and no others."""
    before, allowing.functions = allowing.functions, functions
    try:
        yield
    finally:
        allowing.functions = before


def apply(
    operator: UserFunction, inputs: Sequence[DataFrame], carried: Sequence[str], names: Sequence[str]
) -> DataFrame:
    allowing.functions.check(operator.function)
    load(operator.function)
    types = [arrow_type(t) for t in operator.output.types]
    hidden = [inputs[0].schema[name] for name in carried]
    result = [
        StructField(name, _parse_datatype_string(type_text(type_)))
        for name, type_ in zip(positions(len(types)), operator.output.types, strict=True)
    ]
    run = runner(operator.function, tuple(names), tuple(carried), operator.output.names, types)
    return mapped(inputs[0], run, StructType([*hidden, *result]))


def load(function: str) -> Callable[[pa.RecordBatch], object]:
    """The function that `module:function` names; the error names the missing part."""
    module_name, _, name = function.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        importlib.invalidate_caches()  # the next try sees what was put there meanwhile
        raise InputError(
            f"user function {function!r}: cannot import {module_name!r} ({error}); put it on the path"
        ) from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"user function {function!r}: {module_name!r} fails when it is imported "
            f"({type(error).__name__}: {error}); mend it"
        ) from None
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"user function {function!r}: {module_name!r} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def runner(
    function: str, names: tuple[str, ...], carried: tuple[str, ...], wanted: tuple[str, ...], types: list[pa.DataType]
) -> Mapping:
    """The function that a worker runs: names in, the user's function, positions out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        called = load(function)
        for batch in batches:
            given = batch.select([*positions(len(names)), *carried])
            named = pa.RecordBatch.from_arrays(given.columns, [*names, *carried])
            yield from _shaped(function, called(named), named, carried, wanted, types)

    return run


def _shaped(
    function: str,
    result: object,
    given: pa.RecordBatch,
    carried: tuple[str, ...],
    wanted: tuple[str, ...],
    types: list[pa.DataType],
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
    if not isinstance(table, pa.Table):
        raise InputError(f"user function {function!r} returned {type(result).__name__}; return a batch or a table")
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise InputError(f"user function {function!r} returned no column {missing[0]!r}; its query declares one")
    if all(name in table.column_names for name in carried):
        hidden = [table.column(name) for name in carried]
    elif len(table) == len(given):
        hidden = [pa.chunked_array([given.column(name)]) for name in carried]
    else:
        raise InputError(
            f"user function {function!r} returned {len(table)} rows for {len(given)}; "
            "when it drops or adds rows it must keep the columns " + ", ".join(carried)
        )
    columns = [table.column(name).cast(type_) for name, type_ in zip(wanted, types, strict=True)]
    yield from pa.table([*hidden, *columns], [*carried, *positions(len(wanted))]).combine_chunks().to_batches()
