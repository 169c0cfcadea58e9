"""Messages and parts as JSON values, and back: records by their fields, read by the types that these are declared with.

Only the declared types are ever made, whatever the values say. A field that has its default value is left out, and one
that this version does not know is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pyarrow as pa

from meander.deploy.fragments import Channel, DeploymentChange
from meander.deploy.markers import Marker
from meander.deploy.records import CHANNEL, change_from_json, change_to_json
from meander.run.store.encoding import schema_from, schema_text

LOCAL = {"local": True}
"""Marks fields that never leave the process."""
_OWN: Mapping[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    DeploymentChange: (change_to_json, change_from_json),
    Channel: (CHANNEL.encode, CHANNEL.decode),
    Marker: (Marker.to_json, Marker.from_json),
    pa.Schema: (schema_text, schema_from),
}
"""Types that have a JSON form already."""


def encode(value: Any) -> Any:
    """JSON values that say the same.

    >>> from meander.reconfigure.messages import Mark
    >>> decode(Mark, encode(Mark((3, 4))))
    Mark(numbers=(3, 4))
    """
    if type(value) in _OWN:
        return _OWN[type(value)][0](value)
    if is_dataclass(value):
        told = {f.name: getattr(value, f.name) for f in fields(value) if not f.metadata}
        return {f.name: encode(told[f.name]) for f in fields(value) if f.name in told and told[f.name] != _default(f)}
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [encode(each) for each in value] if isinstance(value, tuple | list) else value


def decode(kind: Any, data: Any) -> Any:
    """The value of a declared type that `encode` was given."""
    kind = getattr(kind, "__supertype__", kind)
    origin, args = get_origin(kind), get_args(kind)
    if kind in _OWN:
        return _OWN[kind][1](data)
    if is_dataclass(kind):
        hints = _hints(cast(type, kind))
        return cast(type, kind)(**{name: decode(hints[name], each) for name, each in data.items() if name in hints})
    if origin is UnionType:
        return None if data is None else decode(next(a for a in args if a is not type(None)), data)
    if origin is tuple and args[-1] is not ...:
        return tuple(decode(a, each) for a, each in zip(args, data, strict=True))
    if origin in (tuple, frozenset):
        return origin(decode(args[0], each) for each in data)
    if origin is not None and issubclass(origin, Mapping):
        return {decode(args[0], key): decode(args[1], each) for key, each in data.items()}
    return kind(data) if kind in (int, float, str, bool) else data


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if not f.metadata}


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
