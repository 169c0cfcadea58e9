"""Records of how far things are: streams that come in, results that go out, watermarks that were forced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from meander.model.ids import ChannelId, FragmentId
from meander.run.store.records.record import Record, Row, Upgrade


def _counted(row: Row) -> Row:
    name, saved = row
    counts = [saved.get(n, 0) for n in ("rows", "malformed", "forgiven", "aside")]
    return [name, saved.get("offset"), saved["newest"], *counts]


def _ranged(row: Row) -> Row:
    name, saved = row
    begun = saved.get("begun")
    return [name, saved["rows"], saved["note"], None if begun is None else [*begun, saved["stop"]]]


@dataclass(frozen=True, slots=True)
class IngestRecord(Record[str]):
    """How far a stream was taken in."""

    kind: ClassVar[str] = "ingest"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (_counted,)
    stream: str
    offset: Any
    """The source's own, as plain JSON."""
    newest: str
    """The producers' newest event times, packed."""
    rows: int = 0
    malformed: int = 0
    forgiven: int = 0
    """How many malformed rows there were when somebody said to go on."""
    aside_bytes: int = 0
    """How much of the file of malformed rows counts."""

    @property
    def key(self) -> str:
        return self.stream


@dataclass(frozen=True, slots=True)
class IngestNodesRecord(Record[str]):
    """The nodes that produced a stream, in the order of their newest event times."""

    kind: ClassVar[str] = "ingest nodes"
    stream: str
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.stream


@dataclass(frozen=True, slots=True)
class DeliveryRecord(Record[str]):
    """How far the results of one query went out into one sink."""

    kind: ClassVar[str] = "delivery"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (_ranged,)
    binding: str
    rows: int = 0
    note: Any = None
    """The sink's own, as plain JSON."""
    begun: tuple[ChannelId, int, int] | None = None
    """The range that is being written, for sinks that must get the same one again: channel, start and stop."""

    @property
    def key(self) -> str:
        return self.binding


@dataclass(frozen=True, slots=True)
class FloorRecord(Record[FragmentId]):
    """The watermark that a fragment reached without an input that was cut off for too long."""

    kind: ClassVar[str] = "floor"
    fragment: FragmentId
    watermark_ms: int

    @property
    def key(self) -> FragmentId:
        return self.fragment


@dataclass(frozen=True, slots=True)
class LostStateRecord(Record[FragmentId]):
    """A fragment whose state is gone with its node, and has to be built from what its senders keep."""

    kind: ClassVar[str] = "lost state"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: row[:1],)
    fragment: FragmentId

    @property
    def key(self) -> FragmentId:
        return self.fragment
