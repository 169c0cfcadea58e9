"""Plain JSON values of typed ones, by their annotations: records of stores, deployments, and changes in messages.

Numbers, texts and truths stay what they are, tuples and dataclasses become lists, mappings become objects, or lists of
pairs if their keys are no texts. What is read must have the annotated type. A deployment of thousands of fragments is
one commit, so nothing is done for values that JSON writes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from meander.deploy.fragments import Channel, DeploymentChange, Fragment


class NotPlainError(ValueError):
    """A value that was read is not what its annotation says."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are written and read."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    is_plain: bool = False
    """Whether JSON writes a value as it is."""


@cache
def codec_of(annotation: Any) -> Codec:
    """The codec of a type.

    >>> codec_of(tuple[int, ...]).decode([1, 2])
    (1, 2)
    >>> codec_of(int).decode("1")
    Traceback (most recent call last):
        ...
    meander.deploy.typed_json.NotPlainError: '1' is not int
    """
    if isinstance(annotation, NewType):
        return codec_of(annotation.__supertype__)
    if annotation is Any:
        return Codec(_same, _same, is_plain=True)
    if annotation in (int, str, bool, type(None)):
        return Codec(_same, _checked(annotation), is_plain=True)
    if annotation is float:
        return Codec(_same, _number, is_plain=True)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (inner,) = [a for a in arguments if a is not type(None)]
        return _optional(codec_of(inner))
    if origin is tuple and arguments[1:] == (...,):
        return _list(codec_of(arguments[0]), plain_type(arguments[0]))
    if origin is tuple:
        return _tuple([codec_of(a) for a in arguments])
    if origin is frozenset:
        return _set(codec_of(arguments[0]))
    if origin is Mapping:
        return _mapping(*map(codec_of, arguments), of_texts=_is_text(arguments[0]))
    if annotation is DeploymentChange:
        return _change()
    if is_dataclass(annotation):
        return fields_of(annotation)
    raise TypeError(f"records have no {annotation}; use numbers, texts, tuples, mappings and dataclasses of them")


def _same(value: Any) -> Any:
    return value


def _checked(expected: type) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if type(value) is not expected:
            raise NotPlainError(f"{_shown(value)} is not {expected.__name__}")
        return value

    return decode


def _number(value: Any) -> Any:
    if type(value) is not float and type(value) is not int:
        raise NotPlainError(f"{_shown(value)} is not a number")
    return value


def plain_type(annotation: Any) -> type | None:
    """The class of whole numbers, texts and truths by their annotation."""
    if isinstance(annotation, NewType):
        return plain_type(annotation.__supertype__)
    return annotation if annotation in (int, str, bool) else None


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _items(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise NotPlainError(f"{_shown(value)} is not a list")
    return value


def _optional(inner: Codec) -> Codec:
    return Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
        inner.is_plain,
    )


def _list(inner: Codec, only: type | None = None) -> Codec:
    encode, decode = inner.encode, inner.decode
    expected = {only}

    def read(value: Any) -> Any:
        items = _items(value)
        return tuple(items) if expected.issuperset(map(type, items)) else tuple([decode(v) for v in items])

    if inner.is_plain:
        return Codec(_same, read, is_plain=True)
    return Codec(lambda value: [encode(v) for v in value], read)


def _set(inner: Codec) -> Codec:
    return Codec(
        lambda value: sorted(map(inner.encode, value)), lambda value: frozenset(map(inner.decode, _items(value)))
    )


def _tuple(inner: list[Codec]) -> Codec:
    decoders, count = [codec.decode for codec in inner], len(inner)

    def decode(value: Any) -> Any:
        if len(_items(value)) != count:
            raise NotPlainError(f"{_shown(value)} has {len(value)} values, not {count}")
        return tuple([read(v) for read, v in zip(decoders, value, strict=True)])

    if all(codec.is_plain for codec in inner):
        return Codec(_same, decode, is_plain=True)
    return Codec(_writer(inner), decode)


def _writer(codecs: list[Codec]) -> Callable[[Iterable[Any]], list[Any]]:
    """Writes values one after the other, touching only those that are not plain."""
    special = [(index, codec.encode) for index, codec in enumerate(codecs) if not codec.is_plain]

    def write(values: Iterable[Any]) -> list[Any]:
        row = list(values)
        for index, encode in special:
            row[index] = encode(row[index])
        return row

    return write


def _is_text(annotation: Any) -> bool:
    return annotation is str or (isinstance(annotation, NewType) and _is_text(annotation.__supertype__))


def _mapping(keys: Codec, values: Codec, *, of_texts: bool) -> Codec:
    if not of_texts:
        pairs = _list(_tuple([keys, values]))
        return Codec(lambda value: pairs.encode(list(value.items())), lambda value: dict(pairs.decode(value)))

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise NotPlainError(f"{_shown(value)} is not an object")
        return {key: values.decode(v) for key, v in value.items()}

    return Codec(lambda value: {key: values.encode(v) for key, v in value.items()}, decode)


def fields_of(type_: Any) -> Codec:
    """How the instances of a dataclass are written and read, whatever it is itself."""
    hints, names = get_type_hints(type_), [f.name for f in fields(type_)]
    codecs = [codec_of(hints[name]) for name in names]
    inner = _tuple(codecs)
    values = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    write = _writer(codecs)
    encode = values if inner.is_plain else lambda value: write(values(value))
    return Codec(encode, lambda value: type_(*inner.decode(value)))


def _change() -> Codec:
    """Fragments before and after, channels before and after."""
    sides = _tuple([codec_of(side) for side in 2 * [tuple[Fragment, ...]] + 2 * [tuple[Channel, ...]]])

    def encode(value: Any) -> Any:
        both = (value.fragments_before, value.fragments_after, value.channels_before, value.channels_after)
        return sides.encode([side.values() for side in both])

    def decode(value: Any) -> Any:
        fragments_before, fragments_after, channels_before, channels_after = sides.decode(value)
        return DeploymentChange(
            {f.id: f for f in fragments_before},
            {f.id: f for f in fragments_after},
            {(c.upstream, c.receiver): c for c in channels_before},
            {(c.upstream, c.receiver): c for c in channels_after},
        )

    return Codec(encode, decode)
