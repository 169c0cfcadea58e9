"""The records of a site while the coordinator runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from meander.coordinator.membership.store import MemberRow


class MemberState(StrEnum):
    """Whether a site is there."""

    HERE = "here"
    DRAINING = "draining"
    AWAY = "away"
    LEFT = "left"

    @property
    def is_present(self) -> bool:
        return self in (MemberState.HERE, MemberState.DRAINING)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The content of a heartbeat."""

    session: str
    protocol: int
    now_ms: int
    """The time by the site's clock."""
    measures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class MemberSite:
    """A site that registered once."""

    row: MemberRow
    nodes: tuple[str, ...]
    heard: float
    """The time of arrival, by the monotonic clock."""
    measures: Mapping[str, Any] = field(default_factory=dict)
    told_peers: int = -1
    """The number of the list of peers that it knows."""
    clock_off: int = 0
    """The number of consecutive heartbeats whose time is too far off: a single one may have been long on its way."""
    joining: bool = False
    """Whether its nodes are on their way into the topology."""

    @property
    def state(self) -> MemberState:
        return MemberState(self.row.state)

    def shown(self, now: float) -> dict[str, Any]:
        row = self.row
        return {
            "site": row.name,
            "state": row.state,
            "nodes": list(self.nodes),
            "address": row.address,
            "broker": row.broker or None,
            "version": row.version,
            "protocol": row.protocol,
            "since_ms": row.since_ms,
            "clock_ms": row.clock_ms,
            "silent_ms": round((now - self.heard) * 1000) if self.state.is_present else None,
            "measures": dict(self.measures),
        }
