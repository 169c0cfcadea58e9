"""The table of all record types. What is not in it is neither written nor read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meander.run.store.records.decisions import QuarantineRecord, StreamsAndSinksRecord, TransitionRecord
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    GoneNodeRecord,
    NumbersRecord,
    RemoteChannelRecord,
    RemoteFragmentRecord,
    SerialisedFragmentRecord,
    SinkBindingRecord,
    SlotCountRecord,
    SlotRecord,
)
from meander.run.store.records.progress import (
    DeliveryRecord,
    FloorRecord,
    IngestNodesRecord,
    IngestRecord,
    LostStateRecord,
)
from meander.run.store.records.reconfigurations import (
    DecidedRecord,
    DrainedRecord,
    OverlapRecord,
    PartRecord,
    ReconfigurationRecord,
)
from meander.run.store.records.record import Change, Forgotten, Record, UnknownRecordError, key_codec
from meander.run.store.records.replicas import KeepersRecord, ReplicaRecord, ReplicationRecord
from meander.run.store.records.transport import CopyRecord, PeersRecord, ReaderRecord, TopicOffsetRecord, TopicRecord

TYPES: tuple[type[Record[Any]], ...] = (
    FragmentRecord,
    ChannelRecord,
    RemoteFragmentRecord,
    RemoteChannelRecord,
    SerialisedFragmentRecord,
    NumbersRecord,
    SlotRecord,
    SlotCountRecord,
    SinkBindingRecord,
    GoneNodeRecord,
    ReconfigurationRecord,
    DrainedRecord,
    OverlapRecord,
    PartRecord,
    DecidedRecord,
    CopyRecord,
    ReaderRecord,
    TopicRecord,
    TopicOffsetRecord,
    PeersRecord,
    ReplicationRecord,
    ReplicaRecord,
    KeepersRecord,
    IngestRecord,
    IngestNodesRecord,
    DeliveryRecord,
    FloorRecord,
    LostStateRecord,
    QuarantineRecord,
    TransitionRecord,
    StreamsAndSinksRecord,
)
"""One line for each type, in the order of docs/concepts/store.md."""
BY_KIND: Mapping[str, type[Record[Any]]] = {type_.kind: type_ for type_ in TYPES}


class Records:
    """All records of one store, by type and key. Guarded by the store's lock."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[Any, Record[Any]]] = {kind: {} for kind in BY_KIND}

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Forgotten):
                self.by_kind[change.kind].pop(change.key, None)
            else:
                self.by_kind[change.kind][change.key] = change

    def to_plain(self) -> list[list[Any]]:
        """Every record with its kind and version."""
        return [[r.kind, r.version, *r.to_plain()] for found in self.by_kind.values() for r in found.values()]


def last_of_each(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The last of all changes to the same record."""
    return tuple({(change.kind, change.key): change for change in changes}.values())


def read_record(kind: str, version: int, *row: Any) -> Record[Any]:
    """A record as it was written."""
    return type_of(kind).from_plain(version, list(row))


def read_forgotten(kind: str, key: Any) -> Forgotten:
    type_ = type_of(kind)
    return type_.forgotten(key_codec(type_).decode(key))


def type_of(kind: str) -> type[Record[Any]]:
    found = BY_KIND.get(kind)
    if found is None:
        raise UnknownRecordError(f"records of kind {kind!r} are not known")
    return found
