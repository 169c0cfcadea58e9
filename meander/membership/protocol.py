"""The records of the site protocol, as both ends use them; `docs/reference/site-protocol.md` explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PROTOCOL = 4
"""The newest version that this program speaks."""
OLDEST_PROTOCOL = 3
"""The oldest one: that of the version before. Both ends speak the newest that both know."""
FIRST_PROTOCOL = 1
"""The protocol of sites that name none."""
CLOCK_MS = 2_000
"""The greatest difference between the clocks of a site and the coordinator."""
STANDBY_TERM = "standby_term"
"""The measure by which a site says which term of standbys it remembers."""
HEARTBEAT_MS, SESSION_TIMEOUT_MS = 1_000, 5_000


def is_spoken(version: int) -> bool:
    """Whether this program speaks a version of the protocol."""
    return OLDEST_PROTOCOL <= version <= PROTOCOL


def not_spoken(site: int, coordinator: int) -> str:
    """The refusal of versions that are too far apart, in words: `site` and `coordinator` are the newest of each."""
    older = "site" if site < coordinator else "coordinator"
    return (
        f"the site speaks version {site} of the protocol, the coordinator {coordinator}; they may be one apart, so "
        f"update the {older}, version by version"
    )


class Code(StrEnum):
    """The reason why a site was refused, for programs."""

    TOKEN = "token"
    NOT_YOURS = "not_yours"
    CLAIMED = "claimed"
    TWICE = "twice"
    EPOCH = "epoch"
    PROTOCOL = "protocol"
    CLOCK = "clock"
    INPUT = "input"
    UNAVAILABLE = "unavailable"
    SESSION = "session"

    @property
    def passes(self) -> bool:
        """Whether a later try may succeed by itself."""
        return self in (Code.EPOCH, Code.UNAVAILABLE, Code.SESSION)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The identity of the acting coordinator: the number grows with every start, the name tells apart two of the
    same number."""

    number: int
    coordinator: str

    def as_json(self) -> dict[str, Any]:
        return {"epoch": self.number, "coordinator": self.coordinator}

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Epoch:
        return Epoch(int(value["epoch"]), str(value["coordinator"]))


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a site, given when it joins."""

    site: str
    nodes: tuple[Mapping[str, Any], ...]
    """Each with its name; one that the topology does not know with its kind, and links if it has some."""
    address: str
    """The address at which other sites reach its channels."""
    instance: str
    """Made once for the directory of a site: two processes with different ones are different sites."""
    version: str
    broker: str = ""
    """The broker that it uses, if it uses one."""
    protocol: int = PROTOCOL
    """The version of the site protocol that it speaks with this coordinator."""

    @property
    def names(self) -> list[str]:
        return [str(node["name"]) for node in self.nodes]


@dataclass(frozen=True, slots=True)
class Peer:
    """The site that runs the fragments of a node, and its address."""

    site: str
    address: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of a registration."""

    session: str
    epoch: Epoch
    heartbeat_ms: int = HEARTBEAT_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteMeasures:
    """The measures of a heartbeat: about the site's nodes, and about its process."""

    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"nodes": {n: dict(m) for n, m in self.nodes.items()}, "host": dict(self.host)}
