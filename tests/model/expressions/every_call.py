"""Every scalar function with every number of arguments, over arguments of several types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meander.model.errors import InputError
from meander.model.expressions.functions import SCALARS, call
from meander.model.expressions.tree import Call, Column, Expression, literal, sql
from meander.model.schema import DataType

TYPES: dict[str, tuple[str, ...]] = {
    "n": ("int", "double", "bigint", "float"),
    "i": ("int", "bigint"),
    "j": ("int", "bigint"),
    "b": ("boolean",),
    "s": ("string",),
    "y": ("string", "binary"),
    "t": ("timestamp", "date"),
    "u": ("timestamp", "date"),
    "d": ("date",),
    "a": ("array<double>", "array<string>"),
    "A": ("array<array<int>>",),
    "c": ("double", "string", "timestamp", "int"),
    "x": ("double", "string", "array<int>"),
}
CONSTANTS: dict[str, tuple[Any, ...]] = {"k": (2, -1, 0), "B": (True, False), "S": ("X", "n")}


def calls() -> Iterator[Call]:
    """Every function with every number of arguments, over arguments of several types."""
    for name, signature in SCALARS.items():
        found = {c for takes in signature.takes for c in _calls_of(name, takes)}
        assert found, f"no arguments for {name}"
        yield from sorted(found, key=sql)


def _calls_of(name: str, takes: str) -> Iterator[Call]:
    required, _, optional = takes.partition("?")
    letters = (required + optional).replace("*", "")
    least = len(required.replace("*", ""))
    more = letters + letters[-1] if "*" in takes else letters
    for count in range(least, len(more) + 1):
        for variant in range(4):
            try:
                yield call(name, *_arguments(more[:count], variant))
            except InputError:  # these types do not go together
                continue


def _arguments(letters: str, variant: int) -> Iterator[Expression]:
    for i, letter in enumerate(letters):
        if letter in CONSTANTS:
            constants = CONSTANTS[letter]
            yield literal(constants[variant % len(constants)])
        else:
            types = TYPES[letter]
            yield Column(f"a{i}", DataType.parse(types[variant % len(types)]))


def columns_of(call_: Call) -> tuple[tuple[str, str], ...]:
    return tuple((a.name, str(a.type)) for a in call_.args if isinstance(a, Column))


def types_of(each: Call) -> str:
    return ", ".join(str(a.type) for a in each.args)
