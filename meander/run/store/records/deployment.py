"""Records of what runs: fragments, channels, their slots, and numbers that are never given twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from meander.deploy.fragments import Channel, Fragment
from meander.model.ids import ChannelId, FragmentId, NodeId
from meander.run.store.records.record import Record, Row, Upgrade


def without_key(row: Row) -> Row:
    """The upgrade of notes whose value names its key again."""
    return [row[1]]


@dataclass(frozen=True, slots=True)
class FragmentRecord(Record[FragmentId]):
    """A fragment that runs on this host."""

    kind: ClassVar[str] = "fragment"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (without_key,)
    fragment: Fragment

    @property
    def key(self) -> FragmentId:
        return self.fragment.id


@dataclass(frozen=True, slots=True)
class ChannelRecord(Record[ChannelId]):
    """A channel with at least one end on this host."""

    kind: ClassVar[str] = "channel"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (without_key,)
    channel: Channel

    @property
    def key(self) -> ChannelId:
        return self.channel.id


@dataclass(frozen=True, slots=True)
class RemoteFragmentRecord(Record[FragmentId]):
    """A fragment that runs at a site; the coordinator remembers it."""

    kind: ClassVar[str] = "remote fragment"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: row[1],)
    site: str
    fragment: Fragment

    @property
    def key(self) -> FragmentId:
        return self.fragment.id


@dataclass(frozen=True, slots=True)
class RemoteChannelRecord(Record[ChannelId]):
    """A channel both ends of which are at sites; the coordinator remembers it."""

    kind: ClassVar[str] = "remote channel"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (without_key,)
    channel: Channel

    @property
    def key(self) -> ChannelId:
        return self.channel.id


@dataclass(frozen=True, slots=True)
class SerialisedFragmentRecord(Record[FragmentId]):
    """The operators that binding a fragment of this site looks at: a site has no plan of its own."""

    kind: ClassVar[str] = "serialised fragment"
    fragment: FragmentId
    operators: tuple[Any, ...]

    @property
    def key(self) -> FragmentId:
        return self.fragment


@dataclass(frozen=True, slots=True)
class NumbersRecord(Record[None]):
    """The next fragment, channel and reconfiguration get these numbers, or higher ones."""

    kind: ClassVar[str] = "numbers"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: row[0],)
    fragment: int
    channel: int
    reconfiguration: int

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class SlotRecord(Record[FragmentId]):
    """The slot that a fragment is bound to. It ends with its fragment."""

    kind: ClassVar[str] = "slot"
    fragment: FragmentId
    slot: int

    @property
    def key(self) -> FragmentId:
        return self.fragment


@dataclass(frozen=True, slots=True)
class SlotCountRecord(Record[None]):
    """How many slots there were when fragments were bound to them."""

    kind: ClassVar[str] = "slot count"
    slots: int

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class SinkBindingRecord(Record[ChannelId]):
    """The query and the sink whose results a channel of this site brings."""

    kind: ClassVar[str] = "sink binding"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0], *row[1]],)
    channel: ChannelId
    query: str
    sink: str

    @property
    def key(self) -> ChannelId:
        return self.channel


@dataclass(frozen=True, slots=True)
class GoneNodeRecord(Record[NodeId]):
    """A node that failed, and the nodes that have copies of what was there."""

    kind: ClassVar[str] = "gone node"
    node: NodeId
    copies: tuple[NodeId, ...]

    @property
    def key(self) -> NodeId:
        return self.node
