"""Records of changes under way: what a host that starts again goes on with, or takes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from meander.deploy.fragments import DeploymentChange
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.run.store.records.record import Record, Row, Upgrade

_FROZEN = 2
"""How notes said that a fragment stayed where it was."""


def _sides(change: Mapping[str, Any]) -> Row:
    return [*change["fragments"], *change["channels"]]


@dataclass(frozen=True, slots=True)
class ReconfigurationRecord(Record[int]):
    """A change whose markers are in the channels."""

    kind: ClassVar[str] = "reconfiguration"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0], _sides(row[1])],)
    number: int
    change: DeploymentChange

    @property
    def key(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class DrainedRecord(Record[tuple[int, FragmentId]]):
    """A fragment has done its part of a change: it came to the marker, or is paused and stays where it is."""

    kind: ClassVar[str] = "drained"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [*row[:2], row[2] == _FROZEN],)
    number: int
    fragment: FragmentId
    is_frozen: bool = False

    @property
    def key(self) -> tuple[int, FragmentId]:
        return self.number, self.fragment


@dataclass(frozen=True, slots=True)
class OverlapRecord(Record[int]):
    """Old and new fragments of a change run side by side; for operators whose results leave, where old ends."""

    kind: ClassVar[str] = "overlap"
    version: ClassVar[int] = 2
    upgrades: ClassVar[tuple[Upgrade, ...]] = (
        lambda row: [row[0], _sides(row[1]["change"]), row[1]["times"]],
        lambda row: [*row, []],
    )
    number: int
    change: DeploymentChange
    times: Mapping[OperatorId, int]
    sites: Mapping[FragmentId, str] = field(default_factory=dict)
    """The sites of new fragments that run at one."""

    @property
    def key(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class PartRecord(Record[int]):
    """This host's part of a change, as it was told, and how far it is."""

    kind: ClassVar[str] = "part"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (
        lambda row: [row[0], row[1]["share"], row[1]["marked"], row[1]["fetched"], row[1]["added"]],
        lambda row: [*row, None],
    )
    version: ClassVar[int] = 2
    number: int
    part: Mapping[str, Any]
    is_marked: bool = False
    fetched: Mapping[str, Any] | None = None
    """The positions that the coordinator gave with the order to fetch; None before."""
    added: tuple[ChannelId, ...] = ()
    """Logs that were begun here to take others over."""
    times: Mapping[OperatorId, int] | None = None
    """Where old ends and new begins, while old and new fragments run side by side."""

    @property
    def key(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class DecidedRecord(Record[int]):
    """A change that is decided and not yet in effect at all of its sites, with what they are to hear."""

    kind: ClassVar[str] = "decided"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0], row[1]["sites"], row[1]["told"]],)
    number: int
    sites: tuple[str, ...]
    told: Mapping[str, Any]

    @property
    def key(self) -> int:
        return self.number
