"""The result of importers."""

from __future__ import annotations

from dataclasses import dataclass

from meander.lang.topology.reader import TopologyFile
from meander.model.events import TopologyEvent


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology, the changes that happen to it in order of time, and remarks on assumptions and repairs."""

    contents: TopologyFile
    events: tuple[TopologyEvent, ...] = ()
    notes: tuple[str, ...] = ()
