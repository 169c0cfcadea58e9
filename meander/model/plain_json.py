"""Operators, expressions, schemas, streams and sinks as plain JSON values, and back, so that they can travel.

Only the classes named here are ever made: reading values runs no code of the sender's. A record is an object whose `@`
names its class, an enumeration's member has its value beside it, and every tuple is a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from meander.model import operators, windows
from meander.model.errors import InputError
from meander.model.expressions.tree import Call, Column, Literal, Named
from meander.model.schema import DataType, Field, Kind, Schema
from meander.model.streams import SinkTarget, Stream

RECORDS: tuple[type, ...] = (
    operators.Source,
    operators.Filter,
    operators.Map,
    operators.UserFunction,
    operators.Union,
    operators.WindowAggregate,
    operators.WindowJoin,
    operators.Conjunction,
    operators.Disjunction,
    operators.Sequence,
    operators.Sink,
    windows.Tumbling,
    windows.Sliding,
    windows.Session,
    windows.Count,
    windows.Within,
    windows.Between,
    Column,
    Literal,
    Call,
    Named,
    DataType,
    Field,
    Schema,
    Stream,
    SinkTarget,
)
_BY_NAME = {record.__name__: record for record in RECORDS}
_ENUMS: dict[str, type[Enum]] = {"Kind": Kind, "JoinKind": operators.JoinKind}
_ADDED: Mapping[type, Mapping[str, object]] = {operators.WindowJoin: {"kind": operators.JoinKind.INNER}}
"""Fields that a record did not have from the beginning: left out with the value that it meant before, so that readers
of an earlier version understand what they know."""


def to_plain(value: Any) -> Any:
    """JSON values that say the same.

    >>> to_plain(Field("id", DataType(Kind.INT)))["name"]
    'id'
    """
    if isinstance(value, Enum):
        return {"@": type(value).__name__, "value": value.value}
    if type(value) in RECORDS:
        added = _ADDED.get(type(value), {})
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        kept = {name: to_plain(each) for name, each in given.items() if name not in added or each != added[name]}
        return {"@": type(value).__name__, **kept}
    if isinstance(value, tuple | list):
        return [to_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(v) for key, v in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`. Values of other classes raise InputError."""
    if isinstance(value, list):
        return tuple(from_plain(v) for v in value)
    if not isinstance(value, dict):
        return value
    name = value.get("@")
    if name is None:
        return {key: from_plain(v) for key, v in value.items()}
    if name in _ENUMS:
        return _ENUMS[name](value.get("value"))
    if name not in _BY_NAME:
        raise InputError(f"{name!r} is no part of a query; the sender may be of another version")
    try:
        return _BY_NAME[name](**{key: from_plain(v) for key, v in value.items() if key != "@"})
    except TypeError as error:
        raise InputError(f"a {name} does not look like one ({error}); the sender may be of another version") from None
