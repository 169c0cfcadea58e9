"""Records: small typed facts that a store remembers until they are replaced or forgotten.

A record type is a frozen dataclass with a kind, a version and a typed key. Its plain form is the list of its fields in
order, so a field that is added, or has another meaning, is a new version with one more upgrade. The types stand in one
table, see `table`; they hold numbers, texts and the nouns of `model` and `deploy`, and leave it to the rooms that write
them to make more of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, get_type_hints

from meander.deploy.typed_json import Codec, codec_of, fields_of
from meander.run.store.journal import JournalError

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

Row = Sequence[Any]
"""The plain form of a record."""
Upgrade = Callable[[Row], Row]
"""Makes the plain form of a version that of the next one."""


class RecordError(JournalError):
    """A record that was read is not what its type says."""


class UnknownRecordError(RecordError):
    """A record that was read is of a kind or a version that this program does not know."""


def as_noted(row: Row) -> Row:
    """The upgrade from version 0, a note under a text, where key and value stay as they were."""
    return row


class Record(Generic[K]):
    """The base of all types."""

    __slots__ = ()
    kind: ClassVar[str]
    version: ClassVar[int] = 1
    upgrades: ClassVar[tuple[Upgrade, ...]] = (as_noted,)
    """From version 0 on, one for each version before this one."""

    @property
    def key(self) -> K:
        """By which a record of its type is found; None where there is only one."""
        raise NotImplementedError

    def to_plain(self) -> Row:
        """The values of all fields, as JSON writes them."""
        row: Row = _codec_of(type(self)).encode(self)
        return row

    @classmethod
    def from_plain(cls, version: int, row: Row) -> Self:
        """The record of a plain form, which may be that of an older version."""
        if version > cls.version:
            raise UnknownRecordError(
                f"{_shown(cls, row)} has version {version}, and only versions up to {cls.version} are known"
            )
        try:
            for upgrade in cls.upgrades[version:]:
                row = upgrade(row)
            record: Self = _codec_of(cls).decode(row)
            return record
        except (ValueError, TypeError, LookupError, AttributeError) as problem:
            raise RecordError(
                f"{_shown(cls, row)} cannot be read: {problem}; bring the directory back from a copy, or begin with an "
                "empty one"
            ) from problem

    @classmethod
    def forgotten(cls, key: K) -> Forgotten:
        """The change that forgets the record with a key, if there is one."""
        return Forgotten(cls, key)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """In a commit: no record of this type has this key any more."""

    of: type[Record[Any]]
    key: Any

    @property
    def kind(self) -> str:
        return self.of.kind

    def to_plain(self) -> Any:
        return key_codec(self.of).encode(self.key)


Change = Record[Any] | Forgotten
"""The change of one record in a commit: the record itself takes the place of the one with its key."""


class RecordType(Protocol[K_contra, R_co]):
    """A record type as an argument: which keys it has, and what is found under them."""

    @property
    def kind(self) -> str: ...

    def from_plain(self, version: int, row: Row) -> R_co: ...

    def forgotten(self, key: K_contra) -> Forgotten: ...


def forget(type_: RecordType[K, Record[Any]], key: K) -> Forgotten:
    """The change that forgets a record.

    >>> from meander.run.store.records.progress import FloorRecord
    >>> forget(FloorRecord, 3).to_plain()
    3
    """
    return type_.forgotten(key)


def forget_all(type_: RecordType[K, Record[Any]], keys: Iterable[K]) -> list[Change]:
    """Changes that forget the records of one type with these keys."""
    return [type_.forgotten(key) for key in keys]


def _shown(type_: type[Record[Any]], row: Row) -> str:
    return f"record {type_.kind!r} {str(list(row))[:200]}"


_codecs: dict[type[Record[Any]], Codec] = {}


def _codec_of(type_: type[Record[Any]]) -> Codec:
    found = _codecs.get(type_)
    if found is None:
        found = _codecs[type_] = fields_of(type_)
    return found


def key_codec(type_: type[Record[Any]]) -> Codec:
    """How keys of a type are written."""
    return codec_of(get_type_hints(vars(type_)["key"].fget)["return"])
