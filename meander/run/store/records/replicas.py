"""Records of replicas: which sites have one of a store, and which ones a site keeps for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from meander.run.store.records.record import Record, Upgrade, as_noted


@dataclass(frozen=True, slots=True)
class ReplicationRecord(Record[None]):
    """The sites that keep replicas of this store, each with the term in which it began to."""

    kind: ClassVar[str] = "replication"
    keepers: Mapping[str, int]
    in_sync: tuple[str, ...] = ()
    """Keepers that have had everything once: nothing leaves this host before they have it."""
    most_bytes: int = 0
    """How far replicas may be behind before nothing more is taken in."""
    most_ms: int = 0
    every_ms: int = 0
    """How long a replica rests between two looks; 0 if it follows at once."""

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ReplicaRecord(Record[str]):
    """A replica of another site's store that is kept here."""

    kind: ClassVar[str] = "replica"
    site: str
    term: int
    route: tuple[str, ...]
    """The sites on the way to the store, nearest first."""
    stands_in: bool = False
    """Whether it runs here under the site's name."""
    key_of_site: str = ""
    """With what clients of the site show who they are, while it runs here."""

    @property
    def key(self) -> str:
        return self.site


@dataclass(frozen=True, slots=True)
class KeepersRecord(Record[str]):
    """At the coordinator: the sites that keep replicas of a site's store, and where the site runs."""

    kind: ClassVar[str] = "keepers"
    version: ClassVar[int] = 2
    upgrades: ClassVar[tuple[Upgrade, ...]] = (as_noted, lambda row: [*row, []])
    site: str
    keepers: Mapping[str, int] = field(default_factory=dict)
    """Each with the term in which it began to; a keeper that was dropped and comes again begins a new one."""
    term: int = 0
    stands_in: str = ""
    """The keeper whose replica runs under the site's name, if one does."""
    restoring: str = ""
    """The directory that gets the store back, if one does now."""
    is_forgotten: bool = False
    """Whether the site was given up: it ends when nothing runs there any more."""
    nodes: tuple[str, ...] = ()
    """Its nodes that are there beside the keeper's, because their sources and sinks are reached from there."""

    @property
    def key(self) -> str:
        return self.site
