"""The settings of a deployment for nodes that fail or move and links that are away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from meander.model.errors import InputError


class ReplicationMode(StrEnum):
    """Whether sites keep replicas of each other's stores, and how closely replicas follow."""

    OFF = "off"
    ASYNC = "async"
    """Intake goes on; replicas may be behind by so much at most."""
    SYNC = "sync"
    """Nothing more is taken in before replicas have what was."""


@dataclass(frozen=True, slots=True)
class Resilience:
    """Settings of a whole topology."""

    replicas: int = 1
    """On how many of the next nodes towards the cloud a node's last commit has copies; 0 for upstream backup."""
    idle_timeout_ms: int | None = None
    """The time for which event time waits for an input that is cut off; None for as long as that takes."""
    detour: float = 1.5
    """The factor over a fresh placement's latency that data may take before operators move after it."""
    replication: ReplicationMode = ReplicationMode.OFF
    """Whether that number of other sites keeps replicas of each site's store."""
    replication_lag_ms: int = 10_000
    """How far replicas may be behind before nothing more is taken in."""
    replication_lag_bytes: int = 64_000_000
    takeover_ms: int = 15_000
    """How long a site is away before a replica stands in for it."""
    replica_bytes: int = 10_000_000_000
    """The bytes of one site that another one keeps at most."""

    def __post_init__(self) -> None:
        check_detour(self.detour)


def check_detour(detour: float) -> None:
    """Raises for a detour that no placement could keep."""
    if not detour >= 1:
        raise InputError(f"detour must be at least 1, the length of a way without one, not {detour:g}")
