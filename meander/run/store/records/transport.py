"""Records of what goes from site to site: where copies come from, who reads what is here, and who is where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from meander.model.ids import ChannelId
from meander.run.store.records.record import Record, Row, Upgrade


def _contacts(row: Row) -> Row:
    """Sites that knew nothing of brokers saved two texts."""
    return [{site: [*found, ""][:3] for site, found in row[0].items()}]


@dataclass(frozen=True, slots=True)
class CopyRecord(Record[ChannelId]):
    """A channel that is read here and whose log is elsewhere: the sites on the route to it, nearest first."""

    kind: ClassVar[str] = "copy"
    channel: ChannelId
    route: tuple[str, ...]

    @property
    def key(self) -> ChannelId:
        return self.channel


@dataclass(frozen=True, slots=True)
class ReaderRecord(Record[ChannelId]):
    """The site that may pull a channel from here, and those that may pass it on."""

    kind: ClassVar[str] = "reader"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0], row[1][0], row[1][1:]],)
    channel: ChannelId
    reader: str
    relays: tuple[str, ...] = ()

    @property
    def key(self) -> ChannelId:
        return self.channel


@dataclass(frozen=True, slots=True)
class TopicRecord(Record[str]):
    """A topic of the broker that was made here, and the site it is for."""

    kind: ClassVar[str] = "topic"
    topic: str
    reader: str

    @property
    def key(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class TopicOffsetRecord(Record[str]):
    """How far a topic was read: which topic of that name it was, and the next offset."""

    kind: ClassVar[str] = "topic offset"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0], *row[1]],)
    topic: str
    id: str
    offset: int

    @property
    def key(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class PeersRecord(Record[None]):
    """The other sites: address, what proves messages between them and this one, and broker."""

    kind: ClassVar[str] = "peers"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (_contacts,)
    contacts: Mapping[str, tuple[str, str, str]]

    @property
    def key(self) -> None:
        return None
