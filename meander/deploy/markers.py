"""Markers: control records that travel in band, so that a change takes effect at one exact place of every channel.

A marker says for each (fragment, version) that a reconfiguration touches what the fragment does when the marker
reaches it. It is plain data: the data plane carries it in channels, the deployer writes it and reads its arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from meander.model.errors import InputError
from meander.model.ids import FragmentId


class MarkerAction(Enum):
    """The action of a fragment when the marker reaches it."""

    DRAIN = "drain"
    """Process all tuples before the marker and end."""
    UPDATE = "update"
    """Process all tuples before the marker and go on as the new version."""
    UPDATE_THEN_DRAIN = "update_then_drain"
    """Process all tuples before the marker, hand the state over, end."""


@dataclass(frozen=True, slots=True)
class MarkerEntry:
    """The action of one fragment that runs as `version` until the marker."""

    fragment: FragmentId
    version: int
    action: MarkerAction


@dataclass(frozen=True, slots=True)
class Marker:
    """One reconfiguration, in band. Entries are kept sorted, so that equal markers compare and serialise alike."""

    reconfiguration: int
    entries: tuple[MarkerEntry, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.entries, key=lambda e: (e.fragment, e.version)))
        for one, other in pairwise(ordered):
            if (one.fragment, one.version) == (other.fragment, other.version):
                raise InputError(
                    f"marker {self.reconfiguration} names fragment {one.fragment} version {one.version} twice; "
                    "give it one action"
                )
        object.__setattr__(self, "entries", ordered)

    @staticmethod
    def of(reconfiguration: int, actions: Mapping[tuple[FragmentId, int], MarkerAction]) -> Marker:
        """A marker from a mapping (fragment, version) -> action."""
        return Marker(reconfiguration, tuple(MarkerEntry(f, v, action) for (f, v), action in actions.items()))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back.

        >>> Marker.of(3, {(FragmentId(7), 1): MarkerAction.DRAIN}).to_json()
        {'reconfiguration': 3, 'entries': [[7, 1, 'drain']]}
        """
        return {
            "reconfiguration": self.reconfiguration,
            "entries": [[e.fragment, e.version, e.action.value] for e in self.entries],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Marker:
        """The marker that `to_json` wrote."""
        return Marker(
            int(data["reconfiguration"]),
            tuple(MarkerEntry(FragmentId(int(f)), int(v), MarkerAction(a)) for f, v, a in data["entries"]),
        )
