"""Topologies from other people's files. One format, one file; `IMPORTERS` is the ordered table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from meander.lang.importers.change_scenarios import import_changes
from meander.lang.importers.edge_list import import_edge_list
from meander.lang.importers.imported import Imported
from meander.lang.importers.rtt_matrix import import_rtt_matrix
from meander.model.errors import unknown

__all__ = ["IMPORTERS", "Imported", "Importer", "importer"]


@dataclass(frozen=True, slots=True)
class Importer:
    """A format that can be imported; `read` takes the path and whether to repair what can be repaired."""

    kind: str
    about: str
    read: Callable[[Path, bool], Imported]


IMPORTERS: tuple[Importer, ...] = (
    Importer("changes", "folder with fixed_topology.json, topology_updates.json, source_groups.json", import_changes),
    Importer("rtt", "square matrix of round-trip times in ms, .csv or .npz (key rtt_ms)", import_rtt_matrix),
    Importer("edges", "edge list source,target[,latency_ms[,bandwidth_mbps]], .csv", import_edge_list),
)


def importer(kind: str) -> Importer:
    """The importer of a kind, or an error that names them all."""
    for candidate in IMPORTERS:
        if candidate.kind == kind:
            return candidate
    raise unknown("import kind", kind, (i.kind for i in IMPORTERS))
