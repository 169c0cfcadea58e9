"""The lags of replicas behind their sites, from what sites and keepers tell with their heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from meander.run.store.records.replicas import KeepersRecord

LATE_MS = 1_000
"""A replica that is behind for so long is not in step."""
STUCK_MS = 120_000
"""A keeper in sync that is behind for so long is not waited for any more."""
Kept = Mapping[str, Mapping[str, Any]]
"""A keeper's account of its replicas, by site."""


class ReplicaState(StrEnum):
    """How a replica is doing."""

    IN_STEP = "in step"
    BEHIND = "behind"
    INCOMPLETE = "incomplete"
    """It never had everything yet, so that it could not go on for its site."""
    SERVING = "serving"
    """It goes on in place of its site."""


@dataclass(frozen=True, slots=True)
class KeeperLag:
    """One replica of a site."""

    keeper: str
    state: ReplicaState
    behind_bytes: int = 0
    behind_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def lags_of(record: KeepersRecord, replication: Kept, kept: Mapping[str, Kept]) -> list[KeeperLag]:
    """The replicas of a site: what it says about those who keep them, and which of them runs in its place.

    >>> lags_of(KeepersRecord("west", {"hub": 1}), {"hub": {"in_sync": True, "behind_ms": 4000}}, {})[0].state.value
    'behind'
    """
    found: list[KeeperLag] = []
    if record.stands_in:
        runs = mapping(kept.get(record.stands_in, {}).get(record.site)).get("stands_in") is not None
        found.append(KeeperLag(record.stands_in, ReplicaState.SERVING if runs else ReplicaState.INCOMPLETE))
    for keeper, term in sorted(record.keepers.items()):
        told = mapping(replication.get(keeper))
        size, late_ms = _whole(told.get("behind_bytes")), _whole(told.get("behind_ms"))
        if not told.get("in_sync") or told.get("term", term) != term:
            state = ReplicaState.INCOMPLETE
        else:
            state = ReplicaState.BEHIND if late_ms >= LATE_MS else ReplicaState.IN_STEP
        found.append(KeeperLag(keeper, state, size, late_ms))
    return found


def lagging(site: str, lags: Sequence[KeeperLag]) -> str:
    """In words, which replicas of a site are not in step, and what that means; empty if all are.

    >>> lagging("west", [KeeperLag("hub", ReplicaState.BEHIND, 1_200_000, 4_000)])
    'the replica of site west at hub is 4 s behind (1.2 MB), and results wait for it'
    """
    words: list[str] = []
    for lag in lags:
        about = f"the replica of site {site} at {lag.keeper}"
        if lag.state is ReplicaState.INCOMPLETE:
            words.append(f"{about} is not complete yet")
        elif lag.state is ReplicaState.BEHIND:
            size = f"{lag.behind_bytes / 1e6:.1f} MB"
            words.append(f"{about} is {lag.behind_ms / 1000:.0f} s behind ({size}), and results wait for it")
    return "; ".join(words)


def mapping(value: Any) -> Mapping[str, Any]:
    """A value of another process as a mapping; an empty one if it is none."""
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def refusal_of(kept: Mapping[str, Any] | None, followed: Mapping[str, Any] | None) -> str | None:
    """Why a keeper keeps no replica any more, by its own account, or must not be waited for, by the site's.

    >>> refusal_of({"refused": "its store is larger than 10 MB"}, None)
    'its store is larger than 10 MB'
    """
    if refused := mapping(kept).get("refused"):
        return str(refused)
    if mapping(followed).get("in_sync") and _whole(mapping(followed).get("behind_ms")) >= STUCK_MS:
        return f"it has been behind for more than {STUCK_MS // 1000} s"
    return None
